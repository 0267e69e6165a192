"""Re-evaluation, accuracy and importance: what a strategy asks for, and that training does not notice."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import hotset
import numpy
import pytest
import torch
from hotset import _core
from hotset._client import job
from torch import distributed, nn
from trees import content

DRAWING = [each.name for each in _core.strategies() if not each.takes_order]
"""Strategies that draw their epochs by themselves."""


@pytest.fixture
def train(tmp_path: Path) -> hotset.ImageFolder:
    """Twenty samples of two classes; a sample is its first byte."""
    for number in range(20):
        folder = tmp_path / "tree" / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03d}.jpg").write_bytes(content(f"{number}", 30))
    return hotset.ImageFolder(tmp_path / "tree", loader=first_byte, transform=shaken, with_ids=True)


def first_byte(view: memoryview) -> torch.Tensor:
    """The least that a model can learn from."""
    return torch.tensor([float(view[0])])


def shaken(sample: torch.Tensor) -> torch.Tensor:
    """A transform that draws from every generator there is."""
    return sample + torch.rand(1) + random.random() + numpy.random.rand()


class Asking:
    """Stands in for a strategy that asks: only some do, and not in their first epochs."""

    def __init__(self, sampler: hotset.Sampler, ids: list[int]) -> None:
        self.told: list[tuple[Any, ...]] = []
        source: Any = sampler._source
        source.reevaluation = lambda epoch: ids
        source.reevaluated = lambda epoch, ids, losses, *_: self.told.append((epoch, ids, losses))
        source.end_epoch = lambda *given: self.told.append(given)


def squared(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss for each sample."""
    return (output.flatten() - labels.float()).square()


def test_the_samples_asked_for_are_evaluated_by_the_model_as_it_is(train: hotset.ImageFolder) -> None:
    sampler = hotset.Sampler(train)
    asking = Asking(sampler, [7, 3, 12])
    sampler.set_epoch(4)
    assert sampler.reevaluate(nn.Identity(), squared, transform=lambda sample: sample, batch_size=2) == 3
    plain = hotset.ImageFolder(train.root, loader=first_byte)
    expected = [(float(plain[number][0]) - plain[number][1]) ** 2 for number in (7, 3, 12)]
    assert asking.told == [(4, [7, 3, 12], expected)]
    assert train.with_ids and train.transform is shaken, "the dataset is as it was"


def test_irreducible_losses_are_subtracted_from_what_is_told(train: hotset.ImageFolder) -> None:
    irreducible = torch.arange(len(train)) / 4
    sampler = hotset.Sampler(train, "hybrid", irreducible=irreducible)
    asking = Asking(sampler, [7, 3, 12])
    sampler.set_epoch(4)
    sampler.reevaluate(nn.Identity(), squared, transform=lambda sample: sample)
    plain = hotset.ImageFolder(train.root, loader=first_byte)
    expected = [(float(plain[number][0]) - plain[number][1]) ** 2 - number / 4 for number in (7, 3, 12)]
    assert asking.told == [(4, [7, 3, 12], expected)]


@pytest.mark.parametrize("wrong", [[1.0, 2.0], [float("nan")], 3.0])
def test_irreducible_losses_that_cannot_be_are_refused_by_name(train: hotset.ImageFolder, wrong: Any) -> None:
    with pytest.raises(hotset.InvalidError, match=r"irreducible.*one finite loss for each"):
        hotset.Sampler(train, "hybrid", irreducible=wrong)
    with pytest.raises(hotset.InvalidError, match=r"irreducible.*`hybrid`, not for `iis`"):
        hotset.Sampler(train, "iis", irreducible=[0.0] * len(train))


def test_the_last_epoch_is_the_same_in_python_and_in_the_server(train: hotset.ImageFolder) -> None:
    sampler = hotset.Sampler(train)
    sampler.set_epoch(_core.LAST_EPOCH)
    assert len(list(sampler)) == len(train)
    with pytest.raises(hotset.InvalidError, match=f"0 to {_core.LAST_EPOCH} "):
        sampler.set_epoch(_core.LAST_EPOCH + 1)


def test_whoever_is_not_asked_evaluates_nothing(train: hotset.ImageFolder) -> None:
    sampler = hotset.Sampler(train)
    asking = Asking(sampler, [])

    def never(*_: object) -> torch.Tensor:
        raise AssertionError("nothing was asked for")

    assert sampler.reevaluate(nn.Identity(), never) == 0
    assert asking.told == []


def test_modes_and_random_states_are_left_as_they_were(train: hotset.ImageFolder) -> None:
    model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    model.train()
    model[1].eval()
    sampler = hotset.Sampler(train)
    Asking(sampler, [0, 1, 2, 3])
    modes = [module.training for module in model.modules()]
    running = model[1].running_mean.clone()

    def drawn() -> list[float]:
        return [float(torch.rand(1)), random.random(), numpy.random.rand()]

    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    expected = drawn()
    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    seen: list[bool] = []

    def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_inference_mode_enabled() and not any(m.training for m in model.modules()))
        return squared(output, labels)

    sampler.reevaluate(model, loss)
    assert seen == [True]
    assert drawn() == expected
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model[1].running_mean, running)


@pytest.mark.parametrize("compiled", [False, True])
def test_ranks_do_not_wait_for_each_other(
    train: hotset.ImageFolder, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(*_: object) -> torch.Tensor:
        raise AssertionError("a rank with one batch more would wait here for ever")

    sampler = hotset.Sampler(train, num_replicas=1, rank=0)
    Asking(sampler, [0, 1])
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model: nn.Module = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
        monkeypatch.setattr(nn.parallel.DistributedDataParallel, "forward", waits)
        model = torch.compile(model, backend="eager") if compiled else model
        assert sampler.reevaluate(model, squared) == 2
    finally:
        distributed.destroy_process_group()


def test_a_model_that_fails_is_put_back_too(train: hotset.ImageFolder) -> None:
    model = nn.Linear(2, 1)
    sampler = hotset.Sampler(train)
    asking = Asking(sampler, [0])
    with pytest.raises(RuntimeError, match="shape"):
        sampler.reevaluate(model, squared)
    assert model.training and asking.told == []


def test_a_loss_or_a_batch_that_cannot_be_used_is_refused_with_what_to_write(
    train: hotset.ImageFolder,
) -> None:
    sampler = hotset.Sampler(train)
    Asking(sampler, [0, 1])
    with pytest.raises(hotset.InvalidError, match='reduction="none"'):
        sampler.reevaluate(nn.Identity(), lambda output, _: output.mean())
    with pytest.raises(hotset.InvalidError, match="collate="):
        sampler.reevaluate(nn.Identity(), squared, collate=lambda samples: samples[0][0])
    with pytest.raises(hotset.InvalidError, match="batch_size=0"):
        sampler.reevaluate(nn.Identity(), squared, batch_size=0)
    made = sampler.reevaluate(
        nn.Identity(),
        squared,
        collate=lambda samples: (
            torch.stack([image for image, _ in samples]),
            torch.tensor([label for _, label in samples]),
        ),
    )
    assert made == 2


def test_the_accuracy_is_told_for_the_epoch_that_was_trained(train: hotset.ImageFolder) -> None:
    sampler = hotset.Sampler(train)
    asking = Asking(sampler, [])
    with pytest.raises(hotset.InvalidError, match="before the first epoch"):
        sampler.end_epoch(accuracy=0.5)
    list(sampler)
    sampler.end_epoch(accuracy=0.5)
    assert asking.told == [(0, 0.5)]
    with pytest.raises(hotset.InvalidError, match="accuracy=nan"):
        sampler.end_epoch(accuracy=float("nan"))


def test_importance_is_the_last_score_of_every_sample(train: hotset.ImageFolder) -> None:
    sampler = hotset.Sampler(train)
    ids = list(sampler)[:5]
    sampler.update(ids, torch.arange(5).float())
    scores = sampler.importance()
    assert scores.shape == (20,) and scores.dtype == torch.float32
    assert [float(scores[number]) for number in ids] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert int(scores.isnan().sum()) == 15


def _squares(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.stack([image for image, _ in samples]).flatten()
    return values, values


@pytest.mark.parametrize("strategy", DRAWING)
def test_whoever_asks_for_reevaluation_is_known_and_refuses_it_after_the_plan(
    train: hotset.ImageFolder, strategy: str
) -> None:
    settings: dict[str, object] = {"warmup_max": 1} if strategy == "hybrid" else {}
    sampler = hotset.Sampler(train, strategy, settings=settings)
    asked = 0

    def reevaluate() -> int:
        return sampler.reevaluate(nn.Identity(), lambda output, _: output, collate=_squares)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        asked += reevaluate()
        ids = list(sampler)
        sampler.update(ids, torch.rand(len(ids)))
    assert bool(asked) == (strategy in ("hybrid", "realtime"))
    # An epoch that is begun over has the plan it had.
    sampler.set_epoch(2)
    assert reevaluate() == 0
    assert list(sampler) == ids
    sampler.set_epoch(3)
    len(sampler)
    if asked:
        with pytest.raises(
            hotset.InvalidError, match=r"epoch 3 was planned.*reevaluate.*then `len\(loader\)`"
        ):
            reevaluate()
    else:
        assert reevaluate() == 0


def test_a_plan_made_for_its_length_knows_the_losses_on_their_way(train: hotset.ImageFolder) -> None:
    sampler = hotset.Sampler(train, "iis", settings={"fraction": 0.5})
    list(sampler)
    flushed: list[int] = []
    sampler._reports.flush = lambda: flushed.append(sampler.epoch)  # type: ignore[method-assign]
    sampler.set_epoch(1)
    len(sampler)
    assert flushed == [1]


@pytest.mark.parametrize("strategy", DRAWING)
@pytest.mark.parametrize("mode", ["on", "off"])
def test_the_first_epoch_has_the_length_that_was_told_before(
    train: hotset.ImageFolder, strategy: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSET", mode)
    place = hotset.ImageFolder(train.root, loader=first_byte)
    sampler = hotset.Sampler(place, strategy, num_replicas=3, rank=0)
    assert len(sampler) == len(list(sampler)) == len(sampler)


@pytest.mark.parametrize(
    "strategy, settings, world, pad",
    [
        *[(strategy, {}, 1, False) for strategy in DRAWING],
        ("iis", {"fraction": 0.35, "warmup": 3, "full_last": 0.2}, 1, False),
        ("realtime", {"fraction": 0.9, "warmup": 0}, 1, False),
        ("iis", {}, 3, False),
        ("iis", {}, 3, True),
    ],
)
def test_total_steps_are_never_fewer_than_there_are(
    train: hotset.ImageFolder,
    strategy: str,
    settings: dict[str, object],
    world: int,
    pad: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    epochs = 6
    how: dict[str, Any] = {"settings": settings, "epochs": epochs, "num_replicas": world, "pad": pad}

    def made(rank: int) -> hotset.Sampler:
        # As in processes of their own, all are the first dataset of the run.
        monkeypatch.setattr(job, "_numbers", Counter())
        place = hotset.ImageFolder(train.root, loader=first_byte, job="steps")
        return hotset.Sampler(place, strategy, rank=rank, **how)

    samplers = [made(rank) for rank in range(world)]
    lengths = []
    for epoch in range(epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        drawn = [list(sampler) for sampler in samplers]
        for sampler, ids in zip(samplers, drawn, strict=True):
            sampler.update(ids, torch.rand(len(ids)))
        lengths.append(len(drawn[0]))
    promised = [samplers[0].total_steps(upto, 1) for upto in range(epochs + 1)]
    each = [after - before for before, after in pairwise(promised)]
    assert all(most >= length for most, length in zip(each, lengths, strict=True))
    if strategy not in ("hybrid", "infobatch"):
        # A remainder of the ranks may come or not; the second epoch is planned before all losses are there.
        assert all(
            most - length <= (world > 1)
            for epoch, (most, length) in enumerate(zip(each, lengths, strict=True))
            if epoch != 1
        )
