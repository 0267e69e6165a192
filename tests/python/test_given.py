"""Orders of the user's own: planned, read ahead, cached and counted as a strategy's are."""

from __future__ import annotations

import copy
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotset
import numpy
import pytest
import torch
from given_orders import EPOCHS, Buckets, ClassesByK, Weighted, ids_of, order_of
from hotset._client import job
from processes import free_port, until
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader
from trees import digest, equal_files, labelled_files

SAMPLES, BATCH = 200, 8
SCRIPT = Path(__file__).with_name("given_orders.py")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The files of 200 samples."""
    return equal_files(tmp_path / "tree", SAMPLES, 50)


def opened(place: Path, **settings: Any) -> hotset.Dataset:
    """The dataset as a new process would open it."""
    return hotset.Dataset(place, with_ids=True, **settings)


def loader_of(train: hotset.Dataset, sampler: hotset.Sampler, workers: int = 0) -> DataLoader[Any]:
    """A loader of single ids."""
    return DataLoader(train, BATCH, sampler=sampler, num_workers=workers, collate_fn=ids_of)


def flat(batches: list[list[int]]) -> list[int]:
    """All ids of batches, in order."""
    return list(itertools.chain.from_iterable(batches))


@pytest.mark.parametrize("policy", [None, "lru", "lfu"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_weighted_order_is_served_as_it_is_and_counted(
    place: Path, workers: int, policy: str | None
) -> None:
    train = opened(place, cache="20%")
    own = Weighted(SAMPLES)
    sampler = hotset.Sampler(train, ids=own, policy=policy)
    loader = loader_of(train, sampler, workers)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        assert (len(sampler), len(loader)) == (SAMPLES, SAMPLES // BATCH)
        assert flat(list(loader)) == order_of(own, epoch)
    stats = train.stats()
    assert (stats["policy"], stats["unplanned"]["served"]) == (policy or "minio", 0)
    for epoch in range(EPOCHS):
        counted, drawn = stats["epochs"][epoch], order_of(own, epoch)
        assert counted["planned"] == counted["served"] == SAMPLES
        assert counted["distinct"] == len(set(drawn)) < SAMPLES
        assert counted["hit"] + counted["single"] == SAMPLES
        assert counted["storage_reads"] == counted["single"] < SAMPLES
        assert counted["recovery_reads"] == 0


def test_an_order_is_read_ahead(place: Path) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train, ids=range(SAMPLES))
    first = next(iter(sampler))
    assert first == 0
    # Nobody has asked for a sample yet.
    until("all are read", lambda: train.stats()["epochs"][0]["storage_reads"] == SAMPLES)


@pytest.mark.parametrize(
    "ids",
    [
        [5, 3, 3, 199],
        (5, 3, 3, 199),
        torch.tensor([5, 3, 3, 199]),
        numpy.array([5, 3, 3, 199], dtype=numpy.int32),
        [torch.tensor(5), numpy.int64(3), 3, 199],
    ],
)
def test_whatever_gives_ids_is_taken(place: Path, ids: Any) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train, ids=ids)
    for _ in range(2):
        assert list(loader_of(train, sampler)) == [[5, 3, 3, 199]]


def test_samplers_of_torch_are_asked_once_an_epoch(place: Path) -> None:
    train = opened(place)
    own = RandomSampler(range(SAMPLES), generator=torch.Generator().manual_seed(4))
    expected = RandomSampler(range(SAMPLES), generator=torch.Generator().manual_seed(4))
    sampler = hotset.Sampler(train, ids=own)
    loader = loader_of(train, sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert len(loader) == SAMPLES // BATCH
        order = list(expected)
        assert flat(list(loader)) == order
        sampler.set_epoch(epoch)
        assert flat(list(loader)) == order, "an epoch that is begun again has the order that it had"


@pytest.mark.parametrize("workers", [0, 2])
def test_length_buckets_come_as_the_batches_that_they_are(place: Path, workers: int) -> None:
    train = opened(place)
    own = Buckets([number * 7 % 50 for number in range(SAMPLES)], 16)
    sampler = hotset.Sampler(train, ids=own)
    loader = DataLoader(train, batch_sampler=sampler.batches(), num_workers=workers, collate_fn=ids_of)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        own.set_epoch(epoch)
        expected = list(own)
        assert {len(batch) for batch in expected} == {8, 16}
        assert len(loader) == len(expected)
        assert list(loader) == expected
    assert train.stats()["unplanned"]["served"] == 0
    assert sampler.total_steps(5, 1) == 5 * len(loader)


def test_batches_of_p_classes_by_k_hold_what_they_should(tmp_path: Path) -> None:
    labelled_files(tmp_path / "tree", 60, largest=500)
    train = hotset.ImageFolder(tmp_path / "tree", loader=digest, with_ids=True)
    own = ClassesByK(train.targets, classes=3, each=2, batches=12)
    sampler = hotset.Sampler(train, ids=own)
    loader = DataLoader(train, batch_sampler=sampler.batches(), collate_fn=list)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = [[label for _, label, _ in batch] for batch in loader]
        assert len(batches) == 12
        assert all(sorted(map(labels.count, set(labels))) == [2, 2, 2] for labels in batches)


def test_batches_of_torch_are_taken_and_their_sampler_hears_of_epochs(place: Path) -> None:
    train, own = opened(place), Weighted(SAMPLES)
    sampler = hotset.Sampler(train, ids=BatchSampler(own, 12, drop_last=False))
    loader = DataLoader(train, batch_sampler=sampler.batches(), collate_fn=ids_of)
    for epoch in (0, 1):
        loader.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]
        batches = list(loader)
        assert flat(batches) == order_of(own, epoch)
        assert [len(batch) for batch in batches] == [12] * 16 + [8]


@pytest.mark.parametrize("batched", [False, True])
def test_past_the_server_the_order_is_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch, batched: bool
) -> None:
    def served() -> list[list[list[int]]]:
        train = opened(place)
        own = Buckets([number % 40 for number in range(SAMPLES)], 6) if batched else Weighted(SAMPLES)
        sampler = hotset.Sampler(train, ids=own)
        loader: DataLoader[Any] = (
            DataLoader(train, batch_sampler=sampler.batches(), collate_fn=ids_of)
            if batched
            else loader_of(train, sampler)
        )
        epochs = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            epochs.append(list(loader))
        assert train.stats()["strategy"] == sampler.strategy
        return epochs

    expected = served()
    hotset.stop_private()
    monkeypatch.setenv("HOTSET", "off")
    assert served() == expected


@pytest.mark.parametrize("kind", ["weighted", "batches", "unequal", "hosts", "hosts-unequal", "hosts-alone"])
def test_ranks_of_a_launch_divide_one_order_and_find_out_if_they_have_two(
    tmp_path: Path, runtime: Path, kind: str
) -> None:
    place, out = equal_files(tmp_path / "tree", 120, 50), tmp_path / "out"
    out.mkdir()
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--no-python"),
        *(sys.executable, str(SCRIPT), str(out), str(place), kind),
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    ranks = [json.loads((out / f"{rank}.out").read_text()) for rank in range(2)]
    shutil.rmtree(f"{runtime}-0", ignore_errors=True)
    shutil.rmtree(f"{runtime}-1", ignore_errors=True)
    if kind == "hosts-alone":
        assert all("init_process_group" in rank["error"] for rank in ranks)
        return
    if "unequal" in kind:
        errors = [rank["error"] for rank in ranks if "error" in rank]
        assert errors and all("seed its generator equally on all ranks" in error for error in errors)
        return
    assert (ranks[0]["server"] == ranks[1]["server"]) == (kind != "hosts")
    own: Any = Weighted(120)
    for epoch in range(EPOCHS):
        parts = [flat(rank["epochs"][epoch]) for rank in ranks]
        if kind != "batches":
            assert list(itertools.chain.from_iterable(zip(*parts, strict=True))) == order_of(own, epoch)
        else:
            own = Buckets([number % 30 for number in range(120)], 4, drop_last=True)
            own.set_epoch(epoch)
            batches = list(own)
            steps = len(batches) // 2
            assert [rank["length"] for rank in ranks] == [steps, steps]
            for number, rank in enumerate(ranks):
                assert rank["epochs"][epoch] == batches[number : 2 * steps : 2]


def test_batches_of_a_step_must_be_equally_long(place: Path) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train, ids=[[1, 2], [3, 4], [5, 6], [7]], num_replicas=2, rank=0)
    with pytest.raises(hotset.InvalidError, match=r"batches of \[2, 1\] ids.*drop_last=True"):
        len(sampler)
    own = [[1, 2], [3, 4], [5, 6]]
    for pad, expected in ((False, [[1, 2]]), (True, [[1, 2], [5, 6]])):
        sampler = hotset.Sampler(train, ids=own, num_replicas=2, rank=0, pad=pad)
        assert [list(map(int, batch)) for batch in sampler.batches()] == expected
        assert len(sampler.batches()) == len(expected)


def runs(sampler: hotset.Sampler, loader: DataLoader[Any], first: int) -> Iterator[list[int]]:
    """The batches from epoch `first` on, each after it was trained."""
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        for ids in loader:
            sampler.update(ids, torch.rand(len(ids)))
            yield ids


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_a_run_resumes_in_the_middle_of_an_order(place: Path, batched: bool, fresh: bool) -> None:
    def made() -> tuple[hotset.Sampler, DataLoader[Any]]:
        train = opened(place)
        if not batched:
            sampler = hotset.Sampler(train, ids=Weighted(SAMPLES))
            return sampler, loader_of(train, sampler, workers=2)
        own = Buckets([number * 3 % 40 for number in range(SAMPLES)], 12)
        sampler = hotset.Sampler(train, ids=own)
        return sampler, DataLoader(train, batch_sampler=sampler.batches(), collate_fn=ids_of)

    whole = list(runs(*made(), 0))
    sampler, loader = made()
    steps = len(loader) + 4
    seen = list(itertools.islice(runs(sampler, loader, 0), steps))
    state = copy.deepcopy(sampler.state_dict())
    assert (state["epoch"], state["position"]) == (1, len(flat(seen)) - SAMPLES)
    assert json.loads(json.dumps(state)) == state
    if fresh:
        hotset.stop_private()
    sampler, loader = made()
    sampler.load_state_dict(state)
    assert sampler.state_dict() == state
    assert len(sampler) == SAMPLES
    seen += runs(sampler, loader, 1)
    assert seen == whole


def test_a_stateful_loader_of_batches_goes_on_where_it_was(place: Path) -> None:
    def made() -> tuple[hotset.Sampler, StatefulDataLoader[Any]]:
        train = opened(place)
        sampler = hotset.Sampler(train, ids=Buckets([number % 40 for number in range(SAMPLES)], 12))
        return sampler, StatefulDataLoader(train, batch_sampler=sampler.batches(), collate_fn=ids_of)

    whole = list(made()[1])
    _, loader = made()
    drawn = iter(loader)
    seen = [next(drawn) for _ in range(5)]
    state = copy.deepcopy(loader.state_dict())
    _, loader = made()
    loader.load_state_dict(state)
    assert seen + list(loader) == whole


def test_a_server_that_knows_the_run_has_the_order_that_nobody_can_draw_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> tuple[hotset.Dataset, hotset.Sampler]:
        # As a process of its own would make it.
        monkeypatch.setattr(job, "_numbers", Counter())
        train = opened(place, job="own")
        return train, hotset.Sampler(train, ids=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES))

    train, sampler = made()
    seen = list(itertools.islice(runs(sampler, loader_of(train, sampler), 0), 5))
    whole = [int(number) for number in sampler._running.plan.block(0, SAMPLES)]  # type: ignore[union-attr]
    state = copy.deepcopy(sampler.state_dict())
    train.close()
    hotset.stop_private()

    train, sampler = made()
    sampler.load_state_dict(state)
    sampler.set_epoch(0)
    assert flat(seen + list(loader_of(train, sampler))) == whole


def test_an_order_that_nobody_can_draw_again_is_found_in_a_checkpoint_or_refused(place: Path) -> None:
    def made(**settings: Any) -> tuple[hotset.Sampler, DataLoader[Any]]:
        train = opened(place, **settings)
        # Without a generator of its own it draws from torch's, which goes on.
        sampler = hotset.Sampler(train, ids=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES))
        return sampler, loader_of(train, sampler)

    sampler, loader = made()
    seen = list(itertools.islice(runs(sampler, loader, 0), 5))
    whole = [int(number) for number in sampler._running.plan.block(0, SAMPLES)]  # type: ignore[union-attr]
    state, learned = copy.deepcopy(sampler.state_dict()), sampler.importance_state()
    hotset.stop_private()

    sampler, loader = made()
    sampler.load_importance_state(learned)
    sampler.load_state_dict(state)
    sampler.set_epoch(0)
    assert flat(seen + list(loader)) == whole, "the order is part of what is learned"
    hotset.stop_private()

    sampler, loader = made()
    sampler.load_state_dict(state)
    with pytest.raises(hotset.InvalidError, match=r"another order for epoch 0.*seed its generator"):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_server_that_is_killed_goes_on_in_the_order(place: Path, workers: int) -> None:
    train, own = opened(place), Weighted(SAMPLES)
    sampler = hotset.Sampler(train, ids=own)
    loader = loader_of(train, sampler, workers)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(loader):
            seen += batch
            if number in (0, 7):
                os.kill(train.stats()["server"]["pid"], signal.SIGKILL)
    assert seen == order_of(own, 0) + order_of(own, 1)
    assert train.stats()["unplanned"]["served"] == 0


def test_a_part_of_a_dataset_has_an_order_in_its_own_numbers(place: Path) -> None:
    part = Subset(opened(place), list(range(100, 140)))
    sampler = hotset.Sampler(part, ids=[0, 39, 0])
    loader = DataLoader(part, 3, sampler=sampler, collate_fn=ids_of)
    assert list(loader) == [[100, 139, 100]]


class Endless:
    """Ids without an end."""

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(10))


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([3, 200], r"gives `200` at place 1 of epoch 0: whole numbers from 0 to 199"),
        ([0, -1], r"gives `-1` at place 1"),
        ([0.5, 1], r"gives `0\.5` at place 0"),
        ([0, "a"], r"gives `'a'` at place 1"),
        ([[0, 1], [200]], r"gives `200` at place 2"),
        ([[0, 1], []], r"gives `\[\]` as batch 1"),
        ([[0, 1], 3], r"gives `3` as batch 1"),
        ([], r"`ids=` gives 0 ids for epoch 0"),
        (Endless(), r"does not end.*`WeightedRandomSampler"),
    ],
)
def test_ids_that_cannot_be_are_refused_when_the_epoch_begins(
    place: Path, monkeypatch: pytest.MonkeyPatch, ids: Any, text: str
) -> None:
    monkeypatch.setattr("hotset._sampler.given._MOST", 100_000)
    sampler = hotset.Sampler(opened(place), ids=ids)
    with pytest.raises(hotset.InvalidError, match=text):
        next(iter(sampler))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ids": iter([1, 2])}, r"is an iterator.*one epoch only"),
        ({"ids": (number for number in range(3))}, r"is an iterator"),
        ({"ids": 7}, r"is a `int`: a sampler"),
        ({"ids": [1], "strategy": "iis"}, r"`strategy='iis'` draws one"),
        ({"strategy": "given"}, r"give it as `hotset\.Sampler\(train, ids="),
        ({"ids": [1], "epoch_length": "auto"}, r"`epoch_length='auto'` with `ids=`"),
        ({"ids": [1], "settings": {"full_last": 0.5}}, r"full_last"),
    ],
)
def test_arguments_that_contradict_an_order_are_refused(
    place: Path, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(hotset.InvalidError, match=text):
        hotset.Sampler(opened(place), **settings)


def test_samplers_that_divide_by_themselves_are_refused(place: Path) -> None:
    train = opened(place)
    own = DistributedSampler(range(SAMPLES), num_replicas=2, rank=0)  # type: ignore[arg-type]
    with pytest.raises(hotset.InvalidError, match=r"gives each rank its part"):
        hotset.Sampler(train, ids=own)
    planned = hotset.Sampler(train)
    numbers = list(planned)
    with pytest.raises(hotset.InvalidError, match=r"another `hotset.Sampler` has planned"):
        hotset.Sampler(train, ids=planned)
    with pytest.raises(hotset.InvalidError, match=r"another `hotset.Sampler` has planned"):
        list(hotset.Sampler(train, ids=numbers))
    both = ConcatDataset([train, opened(place)])
    with pytest.raises(hotset.InvalidError, match=r"`ids=` with a `ConcatDataset`"):
        hotset.Sampler(both, ids=range(10))
    with pytest.raises(hotset.InvalidError, match=r"`batches\(\)` needs a batch sampler"):
        len(hotset.Sampler(train, ids=SequentialSampler(range(10))).batches())
    with pytest.raises(hotset.InvalidError, match=r"`batches\(\)` needs a batch sampler"):
        len(planned.batches())


def test_an_order_as_long_as_imagenet_reaches_the_server(place: Path) -> None:
    own = torch.randint(SAMPLES, (5_000_000,), generator=torch.Generator().manual_seed(1))
    train = opened(place)
    sampler = hotset.Sampler(train, ids=own)
    assert list(itertools.islice(sampler, 1000)) == own[:1000].tolist()
    assert (len(sampler), sampler.total_steps(2, 256)) == (5_000_000, 2 * 19_532)
    assert sampler._running is not None
    assert sampler._running.plan.block(4_999_000, 5_000_000) == own[-1000:].tolist()
