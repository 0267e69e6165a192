"""A run that goes on is the run that was never stopped, sample for sample, whoever keeps its place."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from trees import equal_files, planned

SAMPLES, BATCH = 101, 8


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The files of 101 samples."""
    return equal_files(tmp_path / "tree", SAMPLES, 50)


def opened(place: Path) -> hotset.Dataset:
    """The dataset as a new process would open it."""
    return hotset.Dataset(place, with_ids=True)


def ids_of(batch: list[tuple[bytes, int]]) -> list[int]:
    """The ids of a batch, in order."""
    return [number for _, number in batch]


def trained(
    sampler: hotset.Sampler, loader: DataLoader[Any], epochs: range, *, report: bool = True
) -> Iterator[tuple[int, list[int]]]:
    """The batches of `epochs`, each after it was trained."""
    for epoch in epochs:
        sampler.set_epoch(epoch)
        for batch in loader:
            ids = ids_of(batch)
            if report:
                sampler.update(ids, torch.rand(len(ids)))
            yield epoch, ids


def uninterrupted(epochs: int, seed: int) -> list[tuple[int, list[int]]]:
    """The batches of a run that nobody stops."""
    whole = []
    for epoch in range(epochs):
        ids = planned(SAMPLES, epoch, seed=seed)
        whole += [(epoch, ids[first : first + BATCH]) for first in range(0, SAMPLES, BATCH)]
    return whole


@pytest.mark.parametrize("before, after", [(0, 0), (2, 2), (2, 0), (0, 3)])
def test_the_samplers_state_is_what_was_trained_and_not_what_was_read_ahead(
    place: Path, before: int, after: int
) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train, seed=5)
    loader = DataLoader(train, BATCH, sampler=sampler, num_workers=before, collate_fn=list)
    run = trained(sampler, loader, range(3))
    seen = [next(run) for _ in range(13 + 4)]
    state = copy.deepcopy(sampler.state_dict())
    assert (state["epoch"], state["position"]) == (1, 4 * BATCH)
    del run, loader

    again = opened(place)
    resumed = hotset.Sampler(again, seed=5)
    resumed.load_state_dict(state)
    loader = DataLoader(again, BATCH, sampler=resumed, num_workers=after, collate_fn=list)
    seen += trained(resumed, loader, range(1, 3))
    assert seen == uninterrupted(3, seed=5)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("report", [True, False])
@pytest.mark.parametrize("stop", [0, 1, 13, 17, 26], ids=lambda stop: f"after-{stop}")
def test_a_stateful_loader_goes_on_where_it_was(place: Path, workers: int, report: bool, stop: int) -> None:
    def made() -> tuple[hotset.Sampler, StatefulDataLoader[Any]]:
        train = opened(place)
        sampler = hotset.Sampler(train, seed=2)
        loader = StatefulDataLoader(train, BATCH, sampler=sampler, num_workers=workers, collate_fn=list)
        return sampler, loader

    sampler, loader = made()
    run = trained(sampler, loader, range(3), report=report)
    seen = [next(run) for _ in range(stop)]
    state = copy.deepcopy(loader.state_dict())
    del run, loader

    sampler, loader = made()
    loader.load_state_dict(state)
    seen += trained(
        sampler, loader, range(stop // 13 if stop % 13 else max(stop // 13 - 1, 0), 3), report=report
    )
    assert seen == uninterrupted(3, seed=2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [True, False])
def test_a_stateful_loader_that_ended_an_epoch_begins_the_next(
    place: Path, workers: int, drop_last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def made() -> tuple[hotset.Sampler, StatefulDataLoader[Any]]:
        train = opened(place)
        sampler = hotset.Sampler(train)
        return sampler, StatefulDataLoader(
            train, BATCH, sampler=sampler, num_workers=workers, collate_fn=ids_of, drop_last=drop_last
        )

    sampler, loader = made()
    list(loader)
    state = copy.deepcopy(loader.state_dict())
    sampler, loader = made()
    loader.load_state_dict(state)
    with caplog.at_level(logging.WARNING):
        sampler.set_epoch(1)
        ids = [number for batch in loader for number in batch]
    assert ids == planned(SAMPLES, 1)[: 96 if drop_last else SAMPLES]
    assert "set_epoch" not in caplog.text


def test_a_state_asked_for_before_the_first_batch_changes_nothing(place: Path) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train)
    loader = StatefulDataLoader(train, BATCH, sampler=sampler, collate_fn=ids_of)
    state = loader.state_dict()
    assert [number for batch in loader for number in batch] == planned(SAMPLES, 0)
    loader.load_state_dict(state)
    assert [number for batch in loader for number in batch] == planned(SAMPLES, 0)


def test_iterators_that_nobody_draws_from_begin_no_epoch(place: Path) -> None:
    sampler = hotset.Sampler(opened(place))
    for _ in range(3):
        iter(sampler)
    assert [index.epoch for index in sampler] == [0] * SAMPLES
    assert sampler.dataset.stats()["epochs"][0]["planned"] == SAMPLES


@pytest.mark.parametrize("before, after", [(4, 2), (2, 4), (1, 3), (3, 1)])
def test_another_number_of_ranks_trains_the_rest(place: Path, before: int, after: int) -> None:
    # 96 samples divide by all of these numbers: nobody's remainder moves into the next epoch.
    part = opened(place).select(range(96))

    def ranks(world: int, state: dict[str, Any] | None, take: int) -> tuple[set[int], dict[str, Any]]:
        seen: set[int] = set()
        for rank in range(world):
            sampler = hotset.Sampler(part, num_replicas=world, rank=rank)
            if state is not None:
                sampler.load_state_dict(state)
            sampler.set_epoch(1)
            slots = iter(sampler)
            ids = [index for _, index in zip(range(take), slots, strict=False)]
            assert not seen & set(ids)
            seen |= set(ids)
            if ids:
                sampler.update(ids, torch.ones(len(ids)))
            kept = sampler.state_dict()
        return seen, kept

    first, state = ranks(before, None, 12 * 4 // before)
    rest, _ = ranks(after, state, SAMPLES)
    assert len(first) == 48 and first | rest == set(range(96)) and not first & rest


def test_a_loop_without_losses_says_how_far_it_is(place: Path) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train)
    loader = DataLoader(train, BATCH, sampler=sampler, num_workers=2, collate_fn=ids_of)
    batches = iter(loader)
    seen = [number for _ in range(3) for number in next(batches)]
    assert sampler.state_dict()["position"] > len(seen), "the workers are ahead"
    state = sampler.state_dict(trained=len(seen))
    resumed = hotset.Sampler(train)
    resumed.load_state_dict(state)
    assert seen + list(resumed) == planned(SAMPLES, 0)
    with pytest.raises(hotset.InvalidError, match="trained=-1"):
        sampler.state_dict(trained=-1)


def test_the_state_is_small_and_costs_no_question(place: Path) -> None:
    sampler = hotset.Sampler(opened(place))
    slots = iter(sampler)
    for _ in range(50):
        next(slots)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the server was asked")

    sampler._source._on_job = refused  # type: ignore[attr-defined]
    state = sampler.state_dict()
    assert len(repr(state)) < 300 and state["position"] == 50


@pytest.mark.parametrize("mode", ["served", "off"])
def test_the_state_of_another_dataset_is_refused_with_both_names(
    place: Path, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "off":
        monkeypatch.setenv("HOTSET", "off")
    other = hotset.Sampler(hotset.Dataset(equal_files(tmp_path / "other", 30, 50)))
    sampler = hotset.Sampler(opened(place))
    names = [each.dataset.source.catalog.dataset for each in (other, sampler)]
    assert names[0] != names[1]
    with pytest.raises(hotset.InvalidError, match=rf"`{names[0]}` of 30 samples.*`{names[1]}` of 101"):
        sampler.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    "changed, says",
    [
        ({"seed": 9}, "seed=9"),
        ({"pad": True}, "pad=True"),
        ({"position": -1}, "damaged"),
        ({"world": 0}, "damaged"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(place: Path, changed: dict[str, Any], says: str) -> None:
    sampler = hotset.Sampler(opened(place))
    with pytest.raises(hotset.InvalidError, match=says):
        sampler.load_state_dict({**sampler.state_dict(), **changed})


@pytest.mark.parametrize("wrap", [BatchSampler, lambda *given: [*BatchSampler(*given)]])
def test_a_batch_sampler_around_it_works(place: Path, wrap: Callable[..., Any]) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train)
    loader = DataLoader(train, batch_sampler=wrap(sampler, BATCH, False), collate_fn=ids_of)
    assert [number for batch in loader for number in batch] == planned(SAMPLES, 0)


def test_past_the_server_a_run_goes_on_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTSET", "off")
    train = opened(place)
    sampler = hotset.Sampler(train, seed=1)
    loader = DataLoader(train, BATCH, sampler=sampler, collate_fn=list)
    run = trained(sampler, loader, range(2))
    seen = [next(run) for _ in range(5)]
    resumed = hotset.Sampler(opened(place), seed=1)
    resumed.load_state_dict(sampler.state_dict())
    loader = DataLoader(resumed.dataset, BATCH, sampler=resumed, collate_fn=list)
    seen += trained(resumed, loader, range(2))
    assert seen == uninterrupted(2, seed=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_progress_bar_starts_where_training_does(place: Path, workers: int) -> None:
    train = opened(place)
    sampler = hotset.Sampler(train, seed=2)
    loader = DataLoader(train, BATCH, sampler=sampler, num_workers=workers, collate_fn=ids_of)
    sampler.set_epoch(1)
    assert sampler.position == 0
    for step, ids in enumerate(loader, 1):
        sampler.update(ids, torch.rand(len(ids)))
        assert sampler.position == min(step * BATCH, SAMPLES)
        if step == 5:
            break
    state = sampler.state_dict()
    train = opened(place)
    sampler = hotset.Sampler(train, seed=2)
    loader = DataLoader(train, BATCH, sampler=sampler, num_workers=workers, collate_fn=ids_of)
    sampler.load_state_dict(state)
    sampler.set_epoch(1)
    assert (sampler.position, len(loader)) == (5 * BATCH, 13)
    # As `tqdm(loader, initial=...)` counts.
    assert sampler.position // BATCH + sum(1 for _ in loader) == len(loader)
    sampler.set_epoch(2)
    assert (sampler.position, len(loader)) == (0, 13)
