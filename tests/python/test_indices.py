"""Indices are the user's: a sampler yields the numbers of samples, and the plan is followed all the same."""

from __future__ import annotations

import bisect
import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotset
import numpy
import pytest
import torch
from hotset._dataset.numbers import Number, numbers_of
from torch.utils.data import DataLoader
from trees import content, equal_files, planned

SAMPLES = 120


@pytest.fixture
def train(tmp_path: Path) -> hotset.Dataset:
    """A dataset of 120 equal files with their ids, of which a policy that never evicts keeps a fifth."""
    return hotset.Dataset(equal_files(tmp_path / "tree", SAMPLES, 500), with_ids=True)


def as_planned(stats: dict[str, Any], samples: int = SAMPLES, *, epochs: int = 3) -> None:
    """Every epoch was served whole and along its plan, by `minio` with a fifth of the samples kept."""
    kept = samples // 5
    assert stats["unplanned"]["served"] == 0
    assert [epoch["served"] for epoch in stats["epochs"][:epochs]] == [samples] * epochs
    assert [epoch["hit"] for epoch in stats["epochs"][:epochs]] == [0] + [kept] * (epochs - 1)
    # The next epoch's first slots may have been decided already.
    assert [epoch["storage_reads"] for epoch in stats["epochs"][: epochs - 1]] == [samples] + [
        samples - kept
    ] * (epochs - 2)


def test_a_marked_number_is_an_int_that_keeps_its_mark_where_wrappers_need_it() -> None:
    number = numbers_of(7)(38)
    assert (number, hash(number), repr(number), f"{number:03d}", json.dumps(number)) == (
        *(38, hash(38), "38", "038", "38"),
    )
    assert list(range(100))[number] == 38 and {38: "here"}[number] == "here"
    assert numpy.arange(100)[number] == torch.arange(100)[number] == 38
    assert bisect.bisect_right([10, 38, 50], number) == 2
    assert torch.tensor([number]).tolist() == [38] and sorted([number, 5]) == [5, 38]
    kept = {
        30: number - 8,
        62: 100 - number,
        40: 2 + number,
        39: number + True,
        8: number % 10,
        19: number // 2,
        76: number * 2,
    }
    for value, result in kept.items():
        assert result == value and isinstance(result, Number) and result.epoch == 7
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(number, protocol))
        assert (again, again.epoch, type(again)) == (38, 7, type(number))
    assert copy.deepcopy([number])[0].epoch == copy.copy(number).epoch == 7
    assert type(int(number)) is int and type(number & 63) is int
    assert number * 1.5 == 57.0 and [0] * numbers_of(1)(3) == [0, 0, 0]


def test_indices_are_those_of_a_list(train: hotset.Dataset) -> None:
    plain = list(range(SAMPLES))
    asked: tuple[Any, ...] = (-1, -SAMPLES, True, numpy.int32(5), numpy.uint8(200 - 100), numbers_of(0)(3))
    for index in (*asked, torch.tensor(4)):
        assert train[index][1] == plain[index]
    for cut in (slice(2, 5), slice(None, None, -40), slice(-2, None), slice(7, 3)):
        assert [number for _, number in train[cut]] == plain[cut]
    for wrong in (SAMPLES, -SAMPLES - 1, 1 << 40, numbers_of(0)(SAMPLES)):
        with pytest.raises(IndexError, match=f"no sample {wrong} in a dataset of {SAMPLES}"):
            train[wrong]
    with pytest.raises(TypeError):
        train[1.0]  # type: ignore[index]


class Labels:
    """One's own dataset around ours: labels from a list, an array and a dict, by the index it is given."""

    def __init__(self, inner: hotset.Dataset) -> None:
        self.inner = inner
        self.labels = [number * 3 for number in range(len(inner))]
        self.array = numpy.array(self.labels)
        self.by_number = dict(enumerate(self.labels))

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> tuple[bytes, int, int]:
        data, number = self.inner[index % len(self)]
        assert number == index
        assert self.labels[index] == self.array[index] == self.by_number[index]
        return data, self.labels[index], index


@pytest.mark.parametrize(
    ("workers", "method", "persistent"), [(0, None, False), (2, "fork", True), (2, "spawn", True)]
)
def test_a_wrapper_indexes_with_the_number_and_the_plan_is_followed(
    train: hotset.Dataset, workers: int, method: str | None, persistent: bool
) -> None:
    sampler = hotset.Sampler(train, policy="minio", seed=4)
    loader: DataLoader[Any] = DataLoader(
        Labels(train),  # type: ignore[arg-type]
        batch_size=10,
        sampler=sampler,
        num_workers=workers,
        collate_fn=list,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )
    for epoch in range(3):
        sampler.set_epoch(epoch)
        served = [sample for batch in loader for sample in batch]
        assert [number for *_, number in served] == planned(SAMPLES, epoch, seed=4)
        assert all(
            (data, label) == (content(f"{number:06d}.bin", 500), number * 3) for data, label, number in served
        )
    del loader
    as_planned(train.stats())


def test_ids_of_ones_own_wrapper_are_reported(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train)
    for _, labels, ids in DataLoader(Labels(train), batch_size=10, sampler=sampler):  # type: ignore[arg-type]
        sampler.update(ids, labels.float())
    assert sampler.importance().tolist() == [number * 3 for number in range(SAMPLES)]


class Past:
    """A wrapper that makes numbers of its own."""

    def __init__(self, inner: hotset.Dataset) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.inner[int(index)]


def drawn(loader: DataLoader[Any]) -> Iterator[Any]:
    for batch in loader:
        yield from batch


@pytest.mark.parametrize("how", ["shuffle", "wrapper"])
def test_a_sampler_that_is_passed_by_is_said_once(train: hotset.Dataset, how: str) -> None:
    sampler = hotset.Sampler(train)
    loader: DataLoader[Any]
    if how == "shuffle":
        loader = DataLoader(train, batch_size=10, shuffle=True, collate_fn=list)
    else:
        loader = DataLoader(Past(train), batch_size=10, sampler=sampler, collate_fn=list)  # type: ignore[arg-type]
    samples = drawn(loader)
    for _ in range(SAMPLES // 2):
        next(samples)
    with pytest.warns(hotset.HotsetWarning, match="past the Sampler.*`sampler=sampler`, not `shuffle=True`"):
        assert len(list(samples)) == SAMPLES // 2
    assert len(list(drawn(loader))) == SAMPLES
    assert any("past the Sampler" in remark for remark in train.stats()["remarks"])


def test_a_worker_says_that_the_sampler_is_passed_by(
    train: hotset.Dataset, capfd: pytest.CaptureFixture[str]
) -> None:
    hotset.Sampler(train)
    loader: DataLoader[Any] = DataLoader(
        train,
        batch_size=10,
        shuffle=True,
        num_workers=2,
        collate_fn=list,
        # A forked one would say it to pytest.
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    assert len(list(drawn(loader))) == len(list(drawn(loader))) == SAMPLES
    assert capfd.readouterr().err.count("HotsetWarning: ") == 1


def test_evaluations_and_validation_sets_are_not_warned_of(train: hotset.Dataset, tmp_path: Path) -> None:
    held_out = hotset.Dataset(equal_files(tmp_path / "held-out", 40, 100))
    sampler = hotset.Sampler(train, policy="minio")
    for _ in range(3):
        assert len(list(drawn(DataLoader(train, batch_size=10, sampler=sampler, collate_fn=list)))) == SAMPLES
        assert len(list(drawn(DataLoader(train, batch_size=10, collate_fn=list)))) == SAMPLES
        for _ in range(3):
            assert len(list(drawn(DataLoader(held_out, batch_size=10, collate_fn=list)))) == 40
    for dataset in (train, held_out):
        assert all("past the Sampler" not in remark for remark in dataset.stats()["remarks"])
