"""Samplers of torch's `Subset`, `random_split` and `ConcatDataset` plan in that dataset's numbering."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
from hotset._client.notes import forget
from hotset._sampler.losses import places_on
from test_indices import as_planned
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, random_split
from torch.utils.data import Dataset as Data
from trees import content, equal_files, planned

WHOLE = 150
IDS = [number * 7 % WHOLE for number in range(120)]


@pytest.fixture
def whole(tmp_path: Path) -> hotset.Dataset:
    """A dataset of 150 equal files with their ids."""
    return hotset.Dataset(equal_files(tmp_path / "tree", WHOLE, 500), with_ids=True)


def loaded(loader: DataLoader[Any]) -> list[int]:
    """The ids of all samples of a loader, whose bytes are looked at."""
    samples = [sample for batch in loader for sample in batch]
    assert all(data == content(f"{number:06d}.bin", 500) for data, number in samples)
    return [number for _, number in samples]


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_a_subset_is_planned_and_its_plan_is_followed(
    whole: hotset.Dataset, workers: int, method: str | None
) -> None:
    part = Subset(whole, IDS)
    sampler = hotset.Sampler(part, policy="minio", seed=2)
    assert len(sampler) == len(part) and sampler.dataset is part
    loader: DataLoader[Any] = DataLoader(
        part,
        batch_size=10,
        sampler=sampler,
        num_workers=workers,
        collate_fn=list,
        multiprocessing_context=method,
        persistent_workers=workers > 0,
    )
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert loaded(loader) == [IDS[place] for place in planned(120, epoch, seed=2)]
    del loader
    as_planned(sampler.stats(), 120)
    assert whole.stats()["job"] == sampler.stats()["job"]


def test_losses_of_a_random_split_are_credited_to_its_samples_and_the_rest_is_kept(
    whole: hotset.Dataset,
) -> None:
    train, held_out = random_split(whole, [0.8, 0.2], torch.Generator().manual_seed(1))
    sampler = hotset.Sampler(train, strategy="iis", policy="minio")
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for data, ids in DataLoader(train, batch_size=10, sampler=sampler):
            assert len(data) == len(ids)
            sampler.update(ids, ids.float())
        loader = DataLoader(held_out, batch_size=10, collate_fn=list)
        assert loaded(loader) == list(held_out.indices)
    assert sampler.importance().tolist() == list(train.indices)
    epochs = sampler.stats()["epochs"]
    assert [epoch["reported"] for epoch in epochs[:3]] == [epoch["served"] for epoch in epochs[:3]]
    assert epochs[0]["served"] == 120 > epochs[2]["served"] and sampler.stats()["unplanned"]["served"] == 0
    with pytest.raises(hotset.InvalidError, match="is not in the `Subset`"):
        sampler.update([held_out.indices[0]], torch.ones(1))
    with pytest.raises(hotset.InvalidError, match="sample 150 is not in the `Subset`"):
        sampler.update([150], torch.ones(1))


def test_a_subset_of_a_subset_and_requests_across_parts(whole: hotset.Dataset) -> None:
    outer = Subset(Subset(whole, IDS), range(0, 120, 2))
    sampler = hotset.Sampler(outer)
    loader: DataLoader[Any] = DataLoader(outer, batch_size=7, sampler=sampler, collate_fn=list)
    assert loaded(loader) == [IDS[place * 2] for place in planned(60, 0)]
    assert sampler.stats()["unplanned"]["served"] == 0
    # In one request: samples of the part, whose epoch has no slot for them any more, and others.
    mixed = [IDS[0], IDS[1], IDS[2], -1]
    assert [number for _, number in whole.__getitems__(mixed)] == [IDS[0], IDS[1], IDS[2], WHOLE - 1]
    assert sampler.stats()["unplanned"]["served"] == 2


def test_a_subset_goes_on_from_its_state(whole: hotset.Dataset) -> None:
    part = Subset(whole, IDS)
    first = hotset.Sampler(part, seed=3)
    first.set_epoch(1)
    slots = iter(first)
    before = [next(slots) for _ in range(40)]
    resumed = hotset.Sampler(part, seed=3)
    resumed.load_state_dict(first.state_dict())
    loader: DataLoader[Any] = DataLoader(part, batch_size=10, sampler=resumed, collate_fn=list)
    after = loaded(loader)
    assert [IDS[place] for place in before] + after == [IDS[place] for place in planned(120, 1, seed=3)]
    assert resumed.stats()["unplanned"]["served"] == 0
    other = hotset.Sampler(Subset(whole, IDS[1:]), seed=3)
    with pytest.raises(hotset.InvalidError, match="of the dataset"):
        other.load_state_dict(resumed.state_dict())


def test_the_numbers_of_a_part_are_refused_by_the_whole(whole: hotset.Dataset) -> None:
    sampler = hotset.Sampler(Subset(whole, IDS))
    loader: DataLoader[Any] = DataLoader(Doubled(whole), batch_size=10, sampler=sampler, collate_fn=list)
    with pytest.raises(hotset.InvalidError, match=r"Dataset` of 150 samples.*Subset` of 120 samples"):
        next(iter(loader))


def test_places_in_a_part_are_looked_up_where_the_ids_are(whole: hotset.Dataset) -> None:
    _, part = whole.part([7, 149, 0])
    assert places_on(torch.tensor([0, 149, 7, 1, 150, -1]), part).tolist() == [2, 1, 0, -1, -1, -1]


def test_the_folds_of_a_cross_validation_follow_each_other(whole: hotset.Dataset) -> None:
    for fold in range(3):
        train = Subset(whole, [number for number in range(WHOLE) if number % 3 != fold])
        rest: Subset[Any] = Subset(whole, range(fold, WHOLE, 3))
        sampler = hotset.Sampler(train, seed=fold)
        loader: DataLoader[Any] = DataLoader(train, batch_size=10, sampler=sampler, collate_fn=list)
        assert loaded(loader) == [train.indices[place] for place in planned(100, 0, seed=fold)]
        assert loaded(DataLoader(rest, batch_size=10, collate_fn=list)) == list(rest.indices)
        stats = sampler.stats()
        assert (stats["epochs"][0]["served"], stats["unplanned"]["served"]) == (100, 0)


def test_a_subset_goes_on_after_its_server_was_killed(whole: hotset.Dataset) -> None:
    part = Subset(whole, IDS)
    sampler = hotset.Sampler(part)
    loader: DataLoader[Any] = DataLoader(part, batch_size=10, sampler=sampler, collate_fn=list)
    batches = iter(loader)
    served = [number for _ in range(4) for _, number in next(batches)]
    os.kill(sampler.stats()["server"]["pid"], signal.SIGKILL)
    served += [number for batch in batches for _, number in batch]
    assert served == [IDS[place] for place in planned(120, 0)]
    assert sampler.stats()["unplanned"]["served"] == 0
    assert sampler.stats()["epochs"][0]["served"] == 80


def test_a_part_of_a_dataset_past_the_server(whole: hotset.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTSET", "off")
    place = whole.source._listing.place  # type: ignore[attr-defined]
    part = Subset(hotset.Dataset(place, with_ids=True), IDS)
    sampler = hotset.Sampler(part)
    loader: DataLoader[Any] = DataLoader(part, batch_size=10, sampler=sampler, collate_fn=list)
    assert loaded(loader) == [IDS[place] for place in planned(120, 0)]


def test_what_cannot_be_planned_is_named(whole: hotset.Dataset) -> None:
    class ImageFolder(TensorDataset):
        """Somebody else's."""

    other = ImageFolder(torch.arange(3))
    with pytest.raises(hotset.InvalidError, match=r"`test_wrapped\..*ImageFolder`") as said:
        hotset.Sampler(other)
    assert all(text in str(said.value) for text in ("`hotset.ImageFolder(...)`", "`Subset`", "select"))
    with pytest.raises(hotset.InvalidError, match=r"`torch\.utils\..*Subset` of a `test_wrapped"):
        hotset.Sampler(Subset(other, [1]))
    with pytest.raises(hotset.InvalidError, match="sample 3 twice"):
        hotset.Sampler(Subset(whole, [3, 4, 3]))
    with pytest.raises(hotset.InvalidError, match="is empty"):
        hotset.Sampler(Subset(whole, []))
    with pytest.raises(IndexError, match="no sample 150"):
        hotset.Sampler(Subset(whole, [150]))


def data_of(number: int) -> bytes:
    """The bytes of a sample of both, one after the other."""
    return content(f"{number if number < 50 else number - 50:06d}.bin", 500)


@pytest.fixture
def two(tmp_path: Path) -> list[hotset.Dataset]:
    """Datasets of 50 and 100 equal files with their ids."""
    return [
        hotset.Dataset(equal_files(tmp_path / f"tree-{count}", count, 500), with_ids=True)
        for count in (50, 100)
    ]


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_a_concatenation_is_planned_and_its_plans_are_followed(
    two: list[hotset.Dataset], workers: int, method: str | None
) -> None:
    together: ConcatDataset[Any] = ConcatDataset(two)
    sampler = hotset.Sampler(together, policy="minio", seed=2)
    assert len(sampler) == 150
    loader: DataLoader[Any] = DataLoader(
        together,
        batch_size=10,
        sampler=sampler,
        num_workers=workers,
        collate_fn=list,
        multiprocessing_context=method,
        persistent_workers=workers > 0,
    )
    orders = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        samples = [sample for batch in loader for sample in batch]
        assert all(data == data_of(number) for data, number in samples)
        order = [number for _, number in samples]
        assert [number for number in order if number < 50] == planned(50, epoch, seed=2)
        assert [number - 50 for number in order if number >= 50] == planned(100, epoch, seed=2)
        # Shuffled together: no half has all of one dataset.
        assert 5 < sum(number < 50 for number in order[:75]) < 45
        orders.append(order)
    assert orders[0] != orders[1] != orders[2]
    del loader
    for dataset, samples in zip(two, (50, 100), strict=True):
        as_planned(dataset.stats(), samples)
    assert [two[1][3][1], two[1][-1][1]] == [3, 99], "by hand the dataset's own numbers"


def test_losses_of_a_concatenation_are_credited_and_a_run_goes_on(two: list[hotset.Dataset]) -> None:
    together: ConcatDataset[Any] = ConcatDataset(two)
    sampler = hotset.Sampler(together, strategy="iis", policy="minio")
    order: list[int] = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        order = []
        loader = DataLoader(together, batch_size=10, sampler=sampler)
        assert len(loader) == -(-len(sampler) // 10)
        for _, ids in loader:
            sampler.update(ids, ids.float())
            order += ids.tolist()
    assert sampler.importance().tolist() == list(range(150))
    assert 0 < len(order) < 150
    for dataset in two:
        epochs = dataset.stats()["epochs"][:3]
        assert [epoch["reported"] for epoch in epochs] == [epoch["served"] for epoch in epochs]
        assert dataset.stats()["unplanned"]["served"] == 0
    state, importance = sampler.state_dict(trained=40), sampler.importance_state()
    again = hotset.Sampler(together, strategy="iis", policy="minio")
    again.load_importance_state(importance)
    again.load_state_dict(state)
    assert list(again) == order[40:]
    assert again.importance().tolist() == list(range(150))


def test_what_a_concatenation_cannot_have_is_named(two: list[hotset.Dataset], tmp_path: Path) -> None:
    with pytest.raises(hotset.InvalidError, match=r"has a `torch\..*Subset`.*`train\.select\(ids\)`"):
        hotset.Sampler(ConcatDataset([two[0], Subset(two[1], [1])]))
    with pytest.raises(hotset.InvalidError, match="a dataset twice"):
        hotset.Sampler(ConcatDataset([two[0], two[0]]))
    with pytest.raises(hotset.InvalidError, match="`packages=` is one dataset's"):
        hotset.Sampler(ConcatDataset(two), packages=tmp_path / "packages")
    parts: ConcatDataset[Any] = ConcatDataset([two[0].select(range(9)), two[1]])
    assert len(hotset.Sampler(parts)) == 109


class Doubled(Data[Any]):
    """One's own wrapper, of a dataset each sample of which it has twice."""

    def __init__(self, inner: Data[Any]) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return 2 * len(self.inner)  # type: ignore[arg-type]

    def __getitem__(self, number: int) -> Any:
        return self.inner[number % len(self.inner)]  # type: ignore[arg-type]


class Plain(Doubled):
    """One that has each once."""

    def __len__(self) -> int:
        return len(self.inner)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_refuses_the_numbers_of_another_with_what_to_write(
    whole: hotset.Dataset, two: list[hotset.Dataset], workers: int
) -> None:
    part, together = Subset(whole, IDS), ConcatDataset(two)
    wrong: list[tuple[Any, Any, str]] = [
        (
            part,
            whole,
            r"a `hotset\S+Dataset` of 150 samples.*`torch\S+Subset` of 120.*sampler=hotset.Sampler\(part\)",
        ),
        (part, Doubled(whole), "Subset` of 120 samples.*what your dataset wraps"),
        (whole.select(IDS), whole, "Dataset` of 150 samples.*Dataset` of 120"),
        (whole, whole.select(IDS), "Dataset` of 120 samples.*Dataset` of 150"),
        (two[0], two[1], "Dataset` of 100 samples.*Dataset` of 50"),
        (together, whole, "Dataset` of 150 samples.*ConcatDataset` of 150"),
    ]
    for planned_dataset, loaded_dataset, message in wrong:
        sampler = hotset.Sampler(planned_dataset)
        with pytest.raises(hotset.InvalidError, match=message):
            next(iter(DataLoader(loaded_dataset, 10, sampler=sampler, num_workers=workers, collate_fn=list)))
    right: list[tuple[Any, Any]] = [
        (part, Subset(whole, list(IDS))),
        (whole, Plain(whole)),
        (whole, Doubled(whole)),
        (whole, pickle.loads(pickle.dumps(whole))),
        (part, Plain(part)),
    ]
    for planned_dataset, loaded_dataset in right:
        sampler = hotset.Sampler(planned_dataset)
        loader: DataLoader[Any] = DataLoader(loaded_dataset, 10, sampler=sampler, collate_fn=list)
        assert len(loaded(loader)) == len(planned_dataset)


def test_a_sampler_of_the_whole_that_draws_for_a_part_is_said_to_be_passed_by(whole: hotset.Dataset) -> None:
    sampler = hotset.Sampler(whole)
    for loaded_dataset in (Plain(Subset(whole, IDS)), Subset(whole, list(range(WHOLE))[::-1])):
        forget()
        sampler = hotset.Sampler(whole)
        loader: DataLoader[Any] = DataLoader(loaded_dataset, 10, sampler=sampler, collate_fn=list)
        with pytest.warns(hotset.HotsetWarning, match="make the Sampler of the `Subset`"):
            loaded(loader)
    smaller: DataLoader[Any] = DataLoader(Subset(whole, IDS), 10, sampler=sampler, collate_fn=list)
    with pytest.raises(IndexError):
        loaded(smaller)


@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("part", [False, True])
def test_an_epoch_that_was_drawn_for_another_dataset_is_said_when_the_next_begins(
    whole: hotset.Dataset, off: bool, part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if off:
        monkeypatch.setenv("HOTSET", "off")
        whole = hotset.Dataset(whole.source._listing.place, with_ids=True)  # type: ignore[attr-defined]
    forget()
    planned_dataset = Subset(whole, range(50)) if part else whole
    other: Data[Any] = Subset(whole, range(60, WHOLE)) if part else TensorDataset(torch.arange(WHOLE))
    sampler = hotset.Sampler(planned_dataset)
    loader: DataLoader[Any] = DataLoader(other, 10, sampler=sampler, collate_fn=list)
    assert sum(map(len, loader)) == len(sampler)
    sampler.set_epoch(1)
    made_of = "Subset` of 50" if part else "Dataset` of 150"
    with pytest.warns(hotset.HotsetWarning, match=f"0 of its .* were asked for: the loader.*{made_of}"):
        next(iter(loader))


@pytest.mark.filterwarnings("error::hotset.HotsetWarning")
def test_epochs_that_are_asked_for_are_not_warned_of(whole: hotset.Dataset) -> None:
    forget()
    for dataset in (Subset(whole, IDS), whole):
        sampler = hotset.Sampler(dataset)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            loader: DataLoader[Any] = DataLoader(
                dataset, 64, sampler=sampler, collate_fn=list, drop_last=True
            )
            assert len(loaded(loader)) == len(sampler) // 64 * 64
