"""Losses on their way to the server: in order, without waiting, weighted where the plan says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import hotset
import pytest
import torch
from hotset._sampler import reports
from hotset._sampler.epoch import Epoch
from hotset._sampler.reports import Departed, Reports
from hotset._sampler.weights import Weights
from torch.utils.data import DataLoader
from trees import equal_files


@pytest.fixture
def train(tmp_path: Path) -> hotset.Dataset:
    """A dataset of 101 samples with their ids."""
    return hotset.Dataset(equal_files(tmp_path / "tree", 101, 50), with_ids=True)


class Copying:
    """Stands in for the event of a copy on a GPU, which this machine may not have."""

    def __init__(self) -> None:
        self.done = False
        self.waits = 0

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waits += 1
        self.done = True


class Slow(Reports):
    """Reports from a GPU that is as slow as the test likes."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Copying] = []

    def leave(self, value: float, into: list[float]) -> None:
        """Lets the loss `value` of one sample leave for `into`."""

        def deliver(_: list[int] | None, scores: list[float]) -> None:
            into.extend(scores)

        self.poll()
        self.copies.append(Copying())
        self._departed.append(Departed(self.copies[-1], torch.tensor([value]), None, [], deliver))


class Weighted:
    """A plan of ids with weights, as strategies with weights have them."""

    def __init__(self, ids: list[int], weights: list[float]) -> None:
        self.ids, self.all_weights = ids, weights

    def __len__(self) -> int:
        return len(self.ids)

    def block(self, start: int, stop: int) -> list[int]:
        return self.ids[start:stop]

    def weights(self, first: int, last: int) -> list[float]:
        return self.all_weights[first:last]


def drawn(plan: Any, samples: int) -> Epoch:
    """An epoch of which everything was handed out."""
    epoch = Epoch(0, plan, 0, samples)
    for _ in range(0, len(plan), 4096):
        epoch.handed += len(epoch.block(epoch.handed))
    return epoch


def test_losses_arrive_in_order_as_the_gpu_gets_to_them() -> None:
    slow, arrived = Slow(), list[float]()
    for value in (1.0, 2.0, 3.0):
        slow.leave(value, arrived)
    assert arrived == [] and len(slow) == 3
    slow.copies[1].done = True
    slow.poll()
    assert arrived == [], "the second must not overtake the first"
    slow.copies[0].done = True
    slow.poll()
    assert arrived == [1.0, 2.0]
    assert [copy.waits for copy in slow.copies] == [0, 0, 0]
    slow.send(torch.tensor([4.0]), None, lambda _, scores: arrived.extend(scores))
    assert arrived == [1.0, 2.0, 3.0, 4.0], "a loss from the CPU follows those from the GPU"
    assert slow.copies[2].waits == 1


def test_at_most_so_many_losses_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(reports.Reports, "_depart", _departing)
    slow, arrived = Slow(), list[float]()
    loss = torch.ones(1, device="cuda") if torch.cuda.is_available() else _OnGpu()
    for _ in range(100):
        slow.send(loss, None, lambda _, scores: arrived.extend(scores))  # type: ignore[arg-type]
        assert len(slow) <= 32
    slow.flush()
    assert len(arrived) == 100 and len(slow) == 0
    assert slow.waited == 68 or torch.cuda.is_available()


class _OnGpu:
    """A loss that says it is on a GPU."""

    device = torch.device("cuda", 0)


def _departing(self: Reports, device: torch.device, loss: Any, ids: Any, deliver: Any) -> Departed:
    return Departed(Copying(), torch.ones(1), None, [], deliver)


def test_a_batch_advances_the_position_whatever_its_order_or_gaps() -> None:
    epoch = drawn(Weighted(list(range(100)), [1.0] * 100), 100)
    epoch.train([0, 1, 2, 3])
    assert epoch.trained == 4
    epoch.train([7, 5, 6, 4])
    assert epoch.trained == 8
    epoch.train([4, 5, 6, 7])
    assert epoch.trained == 8, "the second loss of a batch trains nothing more"
    epoch.train([9, 11])
    assert epoch.trained == 12, "what was left out is behind us"
    epoch.count(20)
    assert epoch.trained == 32
    epoch.count(1000)
    assert epoch.trained == 100


def test_weights_belong_to_samples_and_not_to_places_in_the_batch() -> None:
    epoch = drawn(Weighted([4, 2, 0, 3], [2.0, 1.0, 0.0, 0.5]), 5)
    loss = torch.tensor([1.0, 10.0, 100.0], requires_grad=True)
    weighted = epoch.weighted(loss, [3, 4, 0])
    assert weighted.tolist() == [0.5, 20.0, 0.0]
    weighted.sum().backward()  # type: ignore[no-untyped-call]
    assert loss.grad is not None and loss.grad.tolist() == [0.5, 2.0, 0.0]
    assert epoch.weighted(torch.ones(1), [3]).tolist() == [0.5], "reported again, it keeps its weight"
    assert epoch.weighted(torch.ones(1, dtype=torch.bfloat16), [2]).dtype == torch.bfloat16


def test_slots_of_one_sample_have_their_weights_in_turn() -> None:
    weights = Weights(3)
    weights.add([0, 1, 0], [1.0, 2.0, 0.0])
    assert weights.of([0]).tolist() == [1.0]
    weights.add([0], [3.0])
    assert weights.of([0, 0, 1]).tolist() == [0.0, 3.0, 2.0]
    assert weights.on_device(torch.tensor([1])).tolist() == [2.0]
    plain = Weights(3)
    plain.add([2, 0], [4.0, 5.0])
    assert plain.on_device(torch.tensor([0, 2])).tolist() == [5.0, 4.0]
    plain.add([1], [6.0])
    assert plain.on_device(torch.tensor([1, 0])).tolist() == [6.0, 5.0]


def test_two_weights_in_one_block_are_told_apart() -> None:
    weights = Weights(2)
    weights.add([0, 0, 1], [2.0, 1.0, 1.0])
    assert weights.on_device(torch.tensor([0])).tolist() == [2.0]
    assert weights.to_come([0, 0]).tolist() == [1.0, 1.0]
    assert weights.of([0, 0, 1]).tolist() == [1.0, 1.0, 1.0], "reported again, it keeps the last"


def test_only_samples_with_several_weights_have_a_queue() -> None:
    weights, samples = Weights(10_000), list(range(10_000))
    for first in range(0, 10_000, 4096):
        ids = samples[first : first + 4096]
        weights.add(ids, [2.0 if number % 3 else 1.0 for number in ids])
        assert weights.on_device(torch.tensor(ids[:2])).tolist() == [2.0 if n % 3 else 1.0 for n in ids[:2]]
    weights.add([5, 6], [2.0, 1.0])
    assert not weights._waiting and not weights._differ, "the same weight again"
    assert [len(since) for _, since in weights._on_device.values()] == [1], "only what came since"
    weights.of([7])
    weights.add([5, 7, 8], [0.0, 0.0, 0.0])
    assert sorted(weights._waiting) == [5, 7, 8] and not weights._on_device
    assert weights.of([5, 5, 5, 7, 8, 8]).tolist() == [2.0, 2.0, 0.0, 0.0, 2.0, 0.0]
    assert not weights._waiting


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loss_that_is_changed_in_place_leaves_as_it_was(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available():
        # Streams and events that do nothing: a copy to pinned memory is not made before it is waited for.
        for name in ("Stream", "Event", "stream", "current_stream"):
            monkeypatch.setattr(torch.cuda, name, lambda *_, **__: MagicMock(device=torch.device("cuda")))
    device = torch.device("cuda", 0)
    ids = torch.arange(3, device=device if torch.cuda.is_available() else None)
    arrived: list[list[float]] = []
    for place in {torch.device("cpu"), ids.device}:
        departing = Reports()
        loss = torch.tensor([1.0, 2.0, 3.0], dtype=dtype, device=place)
        left = departing._depart(device, loss, ids, lambda _, scores: arrived.append(scores))
        loss /= 4
        left.event.synchronize()
        departing._deliver(left)
        assert arrived.pop() == [1.0, 2.0, 3.0]


def test_ids_that_were_not_served_are_refused_by_name(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train, num_replicas=2, rank=0)
    mine = list(sampler)
    others = sorted(set(range(101)) - set(mine))
    with pytest.raises(
        hotset.InvalidError, match=rf"1 of 2 ids were not served.*epoch 0: {others[3]};"
    ) as told:
        sampler.update([mine[0], others[3]], torch.ones(2))
    assert told.value.sample == others[3]
    with pytest.raises(hotset.InvalidError, match="2 of 2 ids"):
        sampler.update([101, 10_000], torch.ones(2))
    assert train.stats()["epochs"][0]["reported"] == 0


@pytest.mark.parametrize(
    "ids", [torch.ones(2), torch.ones(2, 1, dtype=torch.int64), torch.tensor([True, True])]
)
def test_ids_that_are_no_ids_are_refused(train: hotset.Dataset, ids: torch.Tensor) -> None:
    sampler = hotset.Sampler(train)
    list(sampler)
    with pytest.raises(hotset.InvalidError, match="with_ids=True"):
        sampler.update(ids, torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_losses_of_any_type_are_taken(train: hotset.Dataset, dtype: torch.dtype) -> None:
    sampler = hotset.Sampler(train)
    ids = list(sampler)[:4]
    loss = torch.tensor([1, 2, 3, 4], dtype=dtype)
    assert sampler.update(torch.tensor(ids), loss) is loss
    assert train.stats()["epochs"][0]["reported"] == 4


def test_a_compiled_step_reports_what_it_trains(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train)
    told: list[tuple[list[int], Sequence[float]]] = []
    report = sampler._source.report

    def overheard(epoch: int, upto: int, ids: Sequence[int], scores: Sequence[float]) -> None:
        told.append((list(ids), list(scores)))
        report(epoch, upto, ids, scores)

    sampler._source.report = overheard  # type: ignore[method-assign]

    def step(ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        loss = ids.float() * scale
        return sampler.update(ids, loss).mean()

    compiled = torch.compile(step, backend="eager")
    scale = torch.tensor(2.0, requires_grad=True)
    for batch in DataLoader(train, batch_size=50, sampler=sampler, collate_fn=list):
        ids = torch.tensor([number for _, number in batch])
        compiled(ids, scale).backward()
    assert [len(ids) for ids, _ in told] == [50, 50, 1]
    assert all(scores == [2.0 * number for number in ids] for ids, scores in told)
    assert scale.grad is not None and float(scale.grad) > 0.0


def test_accumulated_gradients_report_every_part(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train)
    weight = torch.ones(1, requires_grad=True)
    for step, batch in enumerate(DataLoader(train, batch_size=10, sampler=sampler, collate_fn=list)):
        ids = torch.tensor([number for _, number in batch])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = weight * ids.float()
            (sampler.update(ids, loss).mean() / 4).backward()
        if step % 4 == 3:
            weight.grad = None
    assert train.stats()["epochs"][0]["reported"] == 101
    assert sampler.state_dict()["position"] == 101


@pytest.mark.parametrize("strategy, allowed", [("infobatch", {1.0, 2.0}), ("cis", {0.0, 1.0})])
def test_a_strategy_with_weights_weights_the_loss(
    train: hotset.Dataset, strategy: str, allowed: set[float]
) -> None:
    sampler = hotset.Sampler(train, strategy)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        seen: list[float] = []
        for batch in DataLoader(train, batch_size=10, sampler=sampler, collate_fn=list):
            ids = torch.tensor([number for _, number in batch])
            foretold = sampler.weights(ids)
            loss = 1.0 + ids.float()
            weights = (sampler.update(ids, loss) / loss).tolist()
            assert foretold is None or foretold.tolist() == weights
            seen += weights
        if epoch == 0:
            assert set(seen) == {1.0}, "nothing is known in the first epoch"
        else:
            assert set(seen) == allowed
    if strategy == "infobatch":
        assert abs(sum(seen) - 101) <= 1.0, "the weights make up for what was left out"
    else:
        assert len(seen) == 101, "everything is served"
