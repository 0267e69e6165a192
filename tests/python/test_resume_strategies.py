"""Strategies that learn from losses go on too: on another server, with what the first one had learned."""

from __future__ import annotations

import copy
import logging
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
from given_orders import Weighted
from hotset import _core
from processes import Server
from torch.utils.data import DataLoader
from trees import equal_files

SAMPLES, BATCH, EPOCHS = 300, 16, 4
STRATEGIES = [each.name for each in _core.strategies()]


def made(place: Path, strategy: str) -> tuple[hotset.Sampler, DataLoader[Any]]:
    """A training as a new process would begin it."""
    train = hotset.Dataset(place, cache="20%", with_ids=True)
    # What `carousel` chooses by itself follows from measured times, which nobody can repeat.
    settings = {"fresh": 0.25} if strategy == "carousel" else {}
    ids = Weighted(SAMPLES) if _core.Strategy(strategy).takes_order else None
    sampler = hotset.Sampler(train, strategy, ids=ids, seed=7, settings=settings, epochs=EPOCHS)
    return sampler, DataLoader(train, BATCH, sampler=sampler, collate_fn=_ids)


def trained(sampler: hotset.Sampler, loader: DataLoader[Any], first: int) -> Iterator[tuple[int, list[int]]]:
    """The batches from epoch `first` on, each after it was trained; losses follow from sample and epoch."""
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        sampler.reevaluate(torch.nn.Identity(), partial(_reevaluated, epoch=epoch), collate=_numbers)
        for ids in loader:
            sampler.update(ids, _loss(ids, epoch))
            yield epoch, ids.tolist()
        sampler.end_epoch(accuracy=0.1 * epoch)


def _reevaluated(numbers: torch.Tensor, _: torch.Tensor, epoch: int) -> torch.Tensor:
    return _loss(numbers, epoch)


def _loss(ids: torch.Tensor, epoch: int) -> torch.Tensor:
    return ((ids * 7919 + epoch * 104_729) % 1009).float() / 1009


def _ids(batch: list[tuple[bytes, int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


def _numbers(samples: list[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.tensor([sample[0] * 256 + sample[1] for sample in samples])
    return numbers, numbers


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_on_another_server_a_run_goes_on_sample_for_sample(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    monkeypatch.setenv("HOTSET_SERVER", str(serve("whole.sock").socket))
    whole = list(trained(*made(place, strategy), 0))
    steps = sum(epoch < 2 for epoch, _ in whole) + 3

    monkeypatch.setenv("HOTSET_SERVER", str(serve("first.sock").socket))
    sampler, loader = made(place, strategy)
    seen = list(islice(trained(sampler, loader, 0), steps))
    kept = copy.deepcopy({"place": sampler.state_dict(), "learned": sampler.importance_state()})
    assert kept["place"]["epoch"] == 2
    assert len(kept["learned"]["importance"]) <= 24 * SAMPLES + 4096

    monkeypatch.setenv("HOTSET_SERVER", str(serve("second.sock").socket))
    sampler, loader = made(place, strategy)
    sampler.load_importance_state(kept["learned"])
    sampler.load_state_dict(kept["place"])
    seen += trained(sampler, loader, 2)
    assert seen == whole


@pytest.mark.parametrize("learned", [True, False])
def test_a_place_in_another_plan_is_warned_of_and_the_length_is_that_of_the_plan(
    tmp_path: Path, learned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    sampler, loader = made(place, "iis")
    steps = sum(1 for _ in islice(trained(sampler, loader, 0), 2 * SAMPLES // BATCH + 3))
    length, kept, importance = len(sampler), sampler.state_dict(), sampler.importance_state()
    assert steps and kept["epoch"] == 2 and 0 < length < SAMPLES

    resumed, _ = made(place, "iis")
    if learned:
        resumed.load_importance_state(importance)
    resumed.load_state_dict(kept)
    assert resumed.state_dict() == kept
    assert len(resumed) == (length if learned else SAMPLES), "of the plan, before the first draw"
    with caplog.at_level(logging.WARNING):
        list(resumed)
    assert ("load_importance_state" in caplog.text) is not learned


def test_what_was_learned_of_another_dataset_is_refused_with_both_names(tmp_path: Path) -> None:
    one, _ = made(equal_files(tmp_path / "one", 30, 50), "iis")
    other, _ = made(equal_files(tmp_path / "other", 31, 50), "iis")
    list(one)
    state = one.importance_state()
    with pytest.raises(hotset.InvalidError, match=r"of 30 samples.*of 31"):
        other.load_importance_state(state)


def _train(dataset: hotset.Dataset, sampler: hotset.Sampler, epoch: int, loss: float) -> list[int]:
    """Trains an epoch in one batch; its ids."""
    sampler.set_epoch(epoch)
    ids = [number for _, number in dataset.__getitems__(list(sampler))]
    sampler.update(ids, torch.full((len(ids),), loss))
    return ids


def test_a_checkpoint_is_put_in_once_and_not_again_into_a_server_that_was_restarted(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 60, 50)
    dataset = hotset.Dataset(place, with_ids=True)
    sampler = hotset.Sampler(dataset, "iis")
    _train(dataset, sampler, 0, 1.0)
    checkpoint = sampler.importance_state()
    dataset.close()

    dataset = hotset.Dataset(place, with_ids=True)
    sampler = hotset.Sampler(dataset, "iis")
    sampler.load_importance_state(checkpoint)
    assert set(sampler.importance().tolist()) == {1.0}
    newer = _train(dataset, sampler, 1, 7.0)
    os.kill(dataset.stats()["server"]["pid"], signal.SIGKILL)
    assert set(sampler.importance()[newer].tolist()) == {7.0}, "what was reported since is not forgotten"
    dataset.close()
