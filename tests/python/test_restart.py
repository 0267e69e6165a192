"""A server killed at any moment: the epoch serves its plan, and what is kept is what would have been kept."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotset
import pytest
from hotset._client import private_server as private
from processes import Server, alive, until
from torch.utils.data import DataLoader
from trees import digest, equal_files, planned

SAMPLES, BATCH, KILLS = 480, 16, 50
QUIET = 2
"""Epochs without a kill at the end, whose counts are compared."""
WAIT = 120.0


def _private_servers() -> list[int]:
    """The servers that watch this process and answer."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            arguments = (entry / "cmdline").read_text().split("\0")
            # Whoever starts one has the same arguments behind others.
            ours = arguments[5:7] == [private._NATIVE, "serve"]
            if ours and arguments[arguments.index("--watch") + 1] == str(os.getpid()):
                with contextlib.closing(socket.socket(socket.AF_UNIX)) as line:
                    line.connect(arguments[arguments.index("--socket") + 1])
                    found.append(int(entry.name))
    return found


class _Killer:
    """Kills the private server once as many batches have arrived since the last kill as the seed says.

    Never sooner: a call is made a dozen times, and on a slow machine kills by the clock would end every one.
    """

    def __init__(self, runtime: Path, seed: int) -> None:
        self._runtime = runtime
        self.kills = 0
        self.batches = 0
        """How many have arrived."""
        self._draw = random.Random(seed)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while self.kills < KILLS:
            wanted = self.batches + self._draw.randint(1, 12)
            while self.batches < wanted:
                if self._done.wait(0.002):
                    return
            # Workers are a few batches ahead: anywhere in what they ask for next.
            self._done.wait(self._draw.uniform(0.0, 0.03))
            while not self._killed():
                if self._done.wait(0.002):
                    return
            self.kills += 1

    def _killed(self) -> bool:
        """Whether one was there to be killed.

        None while one is being started, which is under the directory's lock: whoever starts a server takes
        its end for a server that cannot run. The dataset is not asked which it is, since a thread that logs
        while workers are forked leaves them a locked log.
        """
        held = os.open(self._runtime, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for pid in _private_servers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    until("it is gone", lambda pid=pid: not alive(pid))  # type: ignore[misc]
                    return True
            return False
        except BlockingIOError:
            return False
        finally:
            # Said, since a worker that is forked meanwhile has the open directory too.
            fcntl.flock(held, fcntl.LOCK_UN)
            os.close(held)

    def __enter__(self) -> _Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _epoch(
    loader: DataLoader[Any], sampler: hotset.Sampler, epoch: int, killer: _Killer | None = None
) -> list[tuple[str, int]]:
    sampler.set_epoch(epoch)
    served: list[tuple[str, int]] = []
    for samples, ids in loader:
        served += zip(samples, ids.tolist(), strict=True)
        if killer is not None:
            killer.batches += 1
    return served


def _counts(dataset: hotset.Dataset) -> dict[int, list[int]]:
    """What was counted of each epoch's plan: what a kill made storage deliver once more is recovery."""
    names = ("planned", "served", "hit", "single", "distinct")
    return {each["epoch"]: [each[name] for name in names] for each in dataset.stats()["epochs"]}


def _opened(place: Path, policy: str, latency: str, **more: Any) -> tuple[hotset.Dataset, hotset.Sampler]:
    slow = {"throttle.latency": latency}
    dataset = hotset.Dataset(
        str(place), cache="25%", decode=digest, with_ids=True, storage_options=slow, **more
    )
    return dataset, hotset.Sampler(dataset, policy=policy, seed=3)


@pytest.mark.filterwarnings("error::hotset.HotsetWarning")
@pytest.mark.parametrize("policy", ["lru", "minio"])
def test_fifty_kills_change_neither_what_is_served_nor_what_is_counted(
    tmp_path: Path, runtime: Path, policy: str
) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 2000)
    right = {number: digest(path.read_bytes()) for number, path in enumerate(sorted(place.rglob("*.bin")))}

    dataset, sampler = _opened(place, policy, "4ms")
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=2)
    epoch = 0
    with _Killer(runtime, seed=11) as killer:
        while killer.kills < KILLS:
            served = _epoch(loader, sampler, epoch, killer)
            assert [id_ for _, id_ in served] == planned(SAMPLES, epoch, seed=3)
            assert all(right[id_] == sample for sample, id_ in served)
            epoch += 1
            assert epoch < 400, f"{killer.kills} kills in {epoch} epochs"
    assert killer.kills == KILLS
    for last in range(epoch, epoch + QUIET):
        assert [id_ for _, id_ in _epoch(loader, sampler, last)] == planned(SAMPLES, last, seed=3)
    counted = _counts(dataset)
    assert sum(each["recovery_reads"] for each in dataset.stats()["epochs"]) > 0
    dataset.close()

    dataset, sampler = _opened(place, policy, "0ms")
    for whole in range(epoch + QUIET):
        sampler.set_epoch(whole)
        dataset.__getitems__(list(sampler))
    assert {at: some for at, some in _counts(dataset).items() if at in counted} == counted
    dataset.close()


def _begin(client: hotset.Client, place: Path, job: str, run: str = "") -> str:
    """Begins an epoch, of the run that this process was in before if it says so; the run."""
    dataset = client.open_dataset(str(place), layout="files", wait=WAIT)["dataset"]
    asked = {"dataset": dataset, "cache": "20%", "strategy": "uniform", "prefetch": True}
    opened = client.open_job(job, asked, lasting=True, run=run, wait=WAIT)
    client.begin_epoch(job, 0, rank=0, world=1, start=0, join=True, wait=WAIT)
    return str(opened["run"])


def test_scores_that_were_acknowledged_survive_a_kill(tmp_path: Path, serve: Callable[..., Server]) -> None:
    place = equal_files(tmp_path / "tree", 20, 100)
    state = tmp_path / "state"
    server = serve("outside.sock", "--state", str(state))
    client = hotset.Client(str(server.socket), main_pid=os.getpid(), timeout=WAIT)
    run = _begin(client, place, "scored")
    report = {"rank": 0, "upto": 2, "ids": [4, 5], "scores": [1.5, 2.5], "wait": WAIT}
    assert client.report("scored", 0, **report) == (2, 0)
    client.close()
    server.kill()

    server = serve("again.sock", "--state", str(state))
    client = hotset.Client(str(server.socket), main_pid=os.getpid(), timeout=WAIT)
    assert _begin(client, place, "scored", run) == run
    (stats,) = json.loads(client.stats("scored", wait=WAIT))["jobs"]
    assert [each["reported"] for each in stats["epochs"] if each["epoch"] == 0] == [2]
    client.close()


@pytest.fixture
def listed() -> Iterator[Callable[..., list[dict[str, Any]]]]:
    def run(state: Path) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "hotset", "state", "--directory", str(state)]
        said = subprocess.run([*command, "list", "--json"], capture_output=True, check=True, text=True)
        return list(json.loads(said.stdout))

    yield run


def test_a_damaged_state_is_set_aside_and_the_job_starts_anew(
    tmp_path: Path, serve: Callable[..., Server], listed: Callable[..., list[dict[str, Any]]]
) -> None:
    place = equal_files(tmp_path / "tree", 20, 100)
    state = tmp_path / "state"
    run = ""
    for attempt in range(2):
        server = serve(f"{attempt}.sock", "--state", str(state))
        client = hotset.Client(str(server.socket), main_pid=os.getpid(), timeout=WAIT)
        run = _begin(client, place, "named", run)
        (line,) = (each for each in listed(state) if not each["damage"])
        assert (line["job"], line["samples"], line["epoch"]) == ("named", 20, 0)
        client.close()
        server.kill()
        (file,) = state.glob("*.state")
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        assert all("damaged" in each["damage"] for each in listed(state))
    assert len(list(state.glob("*.aside"))) == 1, "what could not be used is kept for a look"
    subprocess.run(
        [sys.executable, "-m", "hotset", "state", "drop", "--all", "--directory", str(state)], check=True
    )
    assert listed(state) == []
