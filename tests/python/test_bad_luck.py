"""What happens to a run that is nobody's mistake: files that change, processes that die."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import hotset
import pytest
from hotset import _core
from hotset._dataset.numbers import numbers_of
from processes import Server, Trainer, alive, naming, until
from torch.utils.data import DataLoader
from trees import content, digest, equal_files, labelled_files, planned

WAIT = 120.0


def vanish(path: Path) -> None:
    """Removes a file."""
    path.unlink()


def shrink(path: Path) -> None:
    """Cuts a file short."""
    path.write_bytes(path.read_bytes()[:5])


def grow(path: Path) -> None:
    """Adds to a file."""
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize("change", [vanish, shrink, grow])
def test_a_file_that_changed_after_listing_is_named(tmp_path: Path, change: Callable[[Path], None]) -> None:
    place = equal_files(tmp_path / "tree", 20, 100)
    train = hotset.Dataset(place, with_ids=True)
    change(place / "000" / "000007.bin")
    with pytest.raises(hotset.ChangedError, match=r"sample 7 \(`000/000007\.bin`\)") as caught:
        train[7]
    assert (caught.value.sample, caught.value.key) == (7, "000/000007.bin")
    # In a plan as well, and only for the batch that holds it.
    sampler = hotset.Sampler(train)
    served = []
    for index in sampler:
        if index == 7:
            with pytest.raises(hotset.ChangedError, match=r"000/000007\.bin"):
                train[index]
        else:
            served.append(train[index])
    assert sorted(number for _, number in served) == [number for number in range(20) if number != 7]
    assert all(data == content(f"{number:06d}.bin", 100) for data, number in served)


def test_files_edited_or_replaced_before_a_run_are_listed_anew(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 20, 100)
    for directory in (place, place / "000"):
        os.utime(directory, (1_000_000_000, 1_000_000_000))
    first = hotset.Dataset(place)
    assert first[3] == content("000003.bin", 100)
    file = place / "000" / "000003.bin"
    before = file.stat()
    # As `cp -p` leaves it: other bytes, its size and its time. Again, until the clock has ticked.
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_bytes(b"n" * 100)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    (place / "000" / "000007.bin").write_bytes(b"longer than it was" * 10)
    second = hotset.Dataset(place, with_ids=True)
    served = [second[index] for index in hotset.Sampler(second)]
    assert sorted(number for _, number in served) == list(range(20))
    assert {number: data for data, number in served}[3] == b"n" * 100
    assert second[7][0] == b"longer than it was" * 10


def test_a_store_that_fails_for_good_is_unavailable_and_names_the_sample(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    # The server is there already: starting one may take longer than this one waits.
    assert hotset.Dataset(place)[1]
    dataset = hotset.Dataset(place, wait=3.0, storage_options={"fault.rate": "1", "fault.seed": "1"})
    with pytest.raises(hotset.UnavailableError, match=r"sample 1 \(`000/000001\.bin`\)"):
        dataset[1]


def test_a_lock_whose_holder_was_killed_holds_nobody_up(tmp_path: Path, runtime: Path) -> None:
    script = (
        "import fcntl, os, sys, time\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(3600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(runtime)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    place = equal_files(tmp_path / "tree", 3, 10)
    with pytest.raises(hotset.UnavailableError, match="lock"):
        hotset.Dataset(place, wait=0.5)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert hotset.Dataset(place, wait=WAIT)[0] == content("000000.bin", 10)
    # And the lock is free again once the server runs.
    directory = os.open(runtime, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(directory)


@pytest.mark.parametrize("same", [True, False])
def test_two_trainers_share_one_running_server(
    tmp_path: Path, serve: Callable[..., Server], same: bool
) -> None:
    trees = [tmp_path / "one", tmp_path / ("one" if same else "two")]
    truths = [labelled_files(tree, 100 + 20 * (tree.name == "two"), largest=3000) for tree in trees]
    server = serve()
    named = {"HOTSET_SERVER": str(server.socket)}
    trainers = [Trainer(tree, "--cache", "10%", environment=named) for tree in trees]
    for trainer, truth in zip(trainers, truths, strict=True):
        first, *steps, last = trainer.ended()
        assert first["server"] == server.process.pid
        for epoch in range(2):
            batches = [step["batch"] for step in steps if step["epoch"] == epoch]
            served = [sample for batch in batches for sample in batch]
            assert {number: (found, label) for found, label, number in served} == truth
            assert len(served) == len(truth)
        assert [epoch["served"] for epoch in last["stats"]["epochs"][:2]] == [len(truth)] * 2
    assert alive(server.process.pid)


def test_a_running_server_of_the_user_is_found(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve("server.sock")
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    assert dataset.stats()["server"]["pid"] == server.process.pid
    dataset.close()


def test_a_kept_view_never_changes_while_the_cache_turns_over(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 1024, 65536)
    client = hotset.connect()
    opened = client.open_dataset(str(place), layout="files", wait=WAIT)
    asked = {
        "dataset": opened["dataset"],
        "cache": "10%",
        "strategy": "uniform",
        "policy": "lru",
        "prefetch": True,
    }
    client.open_job("turning", asked, wait=WAIT)
    kept: list[tuple[memoryview, bytes]] = []
    # An epoch is ten times the cache, and all of them ten times the memory that the server may use.
    for epoch in range(11):
        plan = client.begin_epoch("turning", epoch, rank=0, world=1, start=0, wait=WAIT)
        for first in range(0, len(plan), 64):
            indices = list(map(numbers_of(epoch), plan.block(first, first + 64)))
            batch = client.get_batch("turning", indices, rank=0, wait=WAIT)
            if first == 0:
                kept.append((batch[0], content(f"{indices[0]:06d}.bin", 65536)))
            del batch
        assert all(view == expected for view, expected in kept)
    after = hotset.Dataset(place)
    # What was let go of is told over another connection than this one.
    until("only what is kept is leased", lambda: after.stats()["server"]["leases"] == len(kept))
    client.close()
    # Closing ends calls, not the promise.
    assert all(view == expected for view, expected in kept)
    with pytest.raises(TypeError):
        kept[0][0][0] = 1
    kept.clear()
    until("all leases are back", lambda: after.stats()["server"]["leases"] == 0)


def hold(dataset: hotset.Dataset, held: Any) -> None:
    """Takes a batch and never lets go."""
    batch = dataset.source.batch(_core.Indices([0, 1, 2], len(dataset)))
    held.set()
    time.sleep(3600)
    del batch


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_leases_of_a_killed_worker_come_back(tmp_path: Path, method: str) -> None:
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 10, 5000))
    assert dataset[0]
    context = multiprocessing.get_context(method)
    held = context.Event()
    worker = context.Process(target=hold, args=(dataset, held))  # type: ignore[attr-defined]
    worker.start()
    assert held.wait(WAIT)
    until("only its lease is left", lambda: dataset.stats()["server"]["leases"] == 1)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    until("its lease is back", lambda: dataset.stats()["server"]["leases"] == 0)
    assert dataset[1] == content("000001.bin", 5000)


def test_a_loader_whose_worker_was_killed_can_be_used_again(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 400, 2000), with_ids=True)
    sampler = hotset.Sampler(train)
    loader = DataLoader(train, batch_size=4, sampler=sampler, num_workers=2, collate_fn=list)
    batches = iter(loader)
    next(batches)
    with pytest.raises(RuntimeError, match="worker"):
        # Inside: torch's handler of SIGCHLD raises wherever it finds this process, also right here.
        os.kill(batches._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        list(batches)
    del batches
    sampler.set_epoch(1)
    assert sorted(number for batch in loader for _, number in batch) == list(range(400))
    until("all leases are back", lambda: train.stats()["server"]["leases"] == 0)


def epoch_with(
    train: hotset.Dataset,
    sampler: hotset.Sampler,
    epoch: int,
    workers: int,
    at: int,
    deed: Callable[[], None],
) -> list[Any]:
    """The samples of an epoch, with `deed` done at step `at`."""
    loader = DataLoader(train, batch_size=8, sampler=sampler, num_workers=workers, collate_fn=list)
    sampler.set_epoch(epoch)
    served = []
    for step, batch in enumerate(loader):
        served += batch
        if step == at:
            deed()
    return served


def kill(server: int, _: Path) -> None:
    """Ends a server as a crash does."""
    os.kill(server, signal.SIGKILL)


def stop(server: int, _: Path) -> None:
    """Ends a server as a user or a system does that shuts down."""
    os.kill(server, signal.SIGTERM)


def unlink(_: int, runtime: Path) -> None:
    """Removes a server's socket, as a cleaner of temporary files does."""
    for socket in runtime.glob("*.sock"):
        socket.unlink()


def remove(_: int, runtime: Path) -> None:
    """Removes the whole runtime directory."""
    shutil.rmtree(runtime)


SLOW = {"throttle.latency": "30ms"}
"""Makes a request that is not read ahead wait, so that a server ends in the middle of one."""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("deed", [kill, stop, unlink, remove])
def test_a_private_server_that_ends_is_started_again_and_the_epoch_goes_on(
    tmp_path: Path, runtime: Path, workers: int, deed: Callable[[int, Path], None]
) -> None:
    truth = labelled_files(tmp_path / "tree", 300, largest=2000)
    train = hotset.ImageFolder(
        tmp_path / "tree", loader=digest, with_ids=True, wait=WAIT, storage_options=SLOW, cache=0
    )
    sampler = hotset.Sampler(train, seed=2, prefetch=False)
    ended = []
    with ThreadPoolExecutor(1) as beside:
        for epoch in range(2):
            server = train.stats()["server"]["pid"]
            ended.append(server)
            done: list[Future[None]] = []
            # From another thread, so that it happens while this one waits for a batch.
            submit = partial(beside.submit, deed, server, runtime)
            served = epoch_with(train, sampler, epoch, workers, 10, lambda: done.append(submit()))  # noqa: B023
            done[0].result()
            assert [number for *_, number in served] == planned(300, epoch, seed=2)
            assert {number: (found, label) for found, label, number in served} == truth
            until("it has ended", lambda: not alive(server))  # noqa: B023
    assert train.stats()["server"]["pid"] not in ended
    assert len(naming(str(runtime))) == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_that_comes_back_in_time_is_gone_on_with(
    tmp_path: Path,
    serve: Callable[..., Server],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    ends: signal.Signals,
) -> None:
    truth = labelled_files(tmp_path / "tree", 300, largest=2000)
    server = serve()
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    train = hotset.ImageFolder(
        tmp_path / "tree", loader=digest, with_ids=True, wait=WAIT, storage_options=SLOW, cache=0
    )
    sampler = hotset.Sampler(train, prefetch=False)
    server_pid = server.process.pid

    def restart() -> None:
        server.process.send_signal(ends)
        # Asked to end it ends well, by whichever signal.
        assert server.process.wait(WAIT) == (-ends if ends == signal.SIGKILL else 0)
        server.start()

    with ThreadPoolExecutor(1) as beside:
        starting: list[Future[None]] = []
        served = epoch_with(train, sampler, 0, workers, 5, lambda: starting.append(beside.submit(restart)))
        starting[0].result()
    assert [number for *_, number in served] == planned(300, 0)
    assert {number: (found, label) for found, label, number in served} == truth
    assert train.stats()["server"]["pid"] == server.process.pid != server_pid


def test_a_server_that_stays_away_is_an_error_after_wait(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), wait=5.0)
    assert dataset[0]
    server.kill()
    with pytest.raises(hotset.UnavailableError, match=rf"{server.socket}`.*5 s.*wait="):
        dataset[1]
    with pytest.raises(hotset.UnavailableError, match="wait="):
        list(DataLoader(dataset, batch_size=2, num_workers=1))


def test_data_that_changed_while_the_server_was_away_is_said(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    place = equal_files(tmp_path / "tree", 3, 10)
    dataset = hotset.Dataset(place, wait=WAIT)
    assert dataset[0]
    server.kill()
    (place / "000" / "another.bin").write_bytes(b"new")
    server.start()
    with pytest.raises(hotset.ChangedError, match="no longer holds"):
        dataset[0]
