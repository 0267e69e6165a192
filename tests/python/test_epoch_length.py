"""`epoch_length`: every epoch is as long as the user says, and draws go on over its edge."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import hotset
import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import ConcatDataset, DataLoader
from trees import equal_files

SAMPLES, BATCH = 60, 8


def _pair(view: memoryview) -> tuple[int, int]:
    return view[0], view[1]


def _ids(batch: list[tuple[tuple[int, int], int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


def _output(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output


class Model(torch.nn.Module):
    """Says of a sample what its first byte is."""

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers.float()


class Training:
    """A training as a new process would begin it."""

    def __init__(self, place: Path, strategy: str = "iis", workers: int = 0, **more: object) -> None:
        self.train = hotset.Dataset(place, with_ids=True, decode=_pair)
        self.sampler = hotset.Sampler(self.train, strategy, **{"epoch_length": "auto", "seed": 4, **more})  # type: ignore[arg-type]
        self.loader = DataLoader(
            self.train, BATCH, sampler=self.sampler, num_workers=workers, collate_fn=_ids
        )

    def epoch(self, number: int, most: int | None = None) -> list[int]:
        """Trains an epoch, or `most` batches of it, with a loss that depends on the sample alone."""
        self.sampler.set_epoch(number)
        self.sampler.reevaluate(Model(), _output)
        trained: list[int] = []
        for step, ids in enumerate(self.loader):
            if step == most:
                break
            self.sampler.update(ids, ids.float())
            trained += ids.tolist()
        return trained


SETTINGS: dict[str, dict[str, object]] = {
    "hybrid": {"settings": {"warmup_max": 1, "fraction": 0.5}},
    "iis": {"settings": {"fraction": 0.5}},
}


@pytest.mark.parametrize("strategy", ["uniform", "iis", "hybrid", "infobatch", "pads", "carousel"])
@pytest.mark.parametrize("length", ["auto", 25, 130])
def test_every_epoch_is_as_long_as_it_says(tmp_path: Path, strategy: str, length: int | str) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    training = Training(place, strategy, epoch_length=length, **SETTINGS.get(strategy, {}))
    expected = SAMPLES if length == "auto" else length
    steps = 0
    for epoch in range(5):
        training.sampler.set_epoch(epoch)
        assert len(training.sampler) == expected
        assert len(training.loader) == -(-int(expected) // BATCH)
        assert len(training.epoch(epoch)) == expected
        assert len(training.sampler) == expected
        steps += len(training.loader)
    assert training.sampler.total_steps(5, BATCH) == steps
    assert training.sampler.total_steps(5, BATCH, drop_last=True) == 5 * (int(expected) // BATCH)


def test_a_selection_goes_on_over_the_edge_of_an_epoch(tmp_path: Path) -> None:
    training = Training(equal_files(tmp_path / "tree", SAMPLES, 50), **SETTINGS["iis"])
    stream = [number for epoch in range(6) for number in training.epoch(epoch)]
    assert sorted(stream[:SAMPLES]) == list(range(SAMPLES))
    # The plan of the second epoch does not know the first one's last losses: 3 samples are certain.
    first = stream[SAMPLES : SAMPLES + 31]
    assert len(set(first)) == 31
    epochs = [Counter(stream[first : first + SAMPLES]) for first in range(SAMPLES, 6 * SAMPLES, SAMPLES)]
    assert all(max(epoch.values()) > 1 for epoch in epochs), "selections meet in every epoch"
    hard, easy = sum(epoch[59] for epoch in epochs), sum(epoch[0] for epoch in epochs)
    assert hard > easy, "it selects by loss"


@pytest.mark.parametrize("strategy", ["iis", "hybrid", "infobatch"])
def test_the_number_of_workers_changes_no_plan(tmp_path: Path, strategy: str) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    runs = [Training(place, strategy, workers, **SETTINGS.get(strategy, {})) for workers in (0, 3)]
    plans = [[training.epoch(epoch) for epoch in range(4)] for training in runs]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("strategy", ["uniform", "iis", "hybrid"])
def test_a_state_in_mid_epoch_goes_on_in_a_new_process(
    tmp_path: Path, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    place, settings = equal_files(tmp_path / "tree", SAMPLES, 50), SETTINGS.get(strategy, {})
    whole = Training(place, strategy, epoch_length=47, **settings)
    expected = [whole.epoch(epoch) for epoch in range(5)]
    first = Training(place, strategy, 2, epoch_length=47, **settings)
    for epoch in range(2):
        first.epoch(epoch)
    begun = first.epoch(2, most=3)
    state, learned = first.sampler.state_dict(), first.sampler.importance_state()
    second = Training(place, strategy, epoch_length=47, **settings)
    if strategy != "uniform":
        second.sampler.load_importance_state(learned)
    second.sampler.load_state_dict(state)
    with caplog.at_level(logging.WARNING):
        rest = second.epoch(2)
    assert begun + rest == expected[2]
    assert [second.epoch(epoch) for epoch in (3, 4)] == expected[3:]
    assert not [record for record in caplog.records if "another plan here" in record.getMessage()]


def test_a_place_in_another_plan_of_the_same_length_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    first = Training(place, **SETTINGS["iis"])
    for epoch in range(3):
        first.epoch(epoch)
    first.epoch(3, most=3)
    second = Training(place, **SETTINGS["iis"])
    second.sampler.load_state_dict(first.sampler.state_dict())
    with caplog.at_level(logging.WARNING):
        second.epoch(3)
    said = [record.getMessage() for record in caplog.records]
    assert any("epoch 3 has another plan here, of 60" in message for message in said), said


def test_a_state_of_epochs_of_another_length_is_refused(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    first = Training(place, epoch_length=30)
    first.epoch(0, most=1)
    for other in (None, "auto", 31):
        with pytest.raises(hotset.InvalidError, match=r"saved with `epoch_length=30` in 1 ranks"):
            Training(place, epoch_length=other).sampler.load_state_dict(first.sampler.state_dict())


@pytest.mark.parametrize("length", [0, -3, 2.5, True, "all"])
def test_a_length_that_cannot_be_is_refused(tmp_path: Path, length: object) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 4, 50))
    with pytest.raises(hotset.InvalidError, match="a number of samples for each rank is needed"):
        hotset.Sampler(train, epoch_length=length)  # type: ignore[arg-type]


def test_it_can_be_set_until_an_epoch_is_planned(tmp_path: Path) -> None:
    training = Training(equal_files(tmp_path / "tree", SAMPLES, 50), epoch_length=None)
    training.sampler.set_epoch_length(40)
    assert [len(training.epoch(epoch)) for epoch in range(3)] == [40, 40, 40]
    training.sampler.set_epoch_length(40)
    with pytest.raises(hotset.InvalidError, match="after an epoch was planned"):
        training.sampler.set_epoch_length("auto")


@pytest.mark.parametrize("length", ["auto", 25, 130])
def test_past_the_server_epochs_are_as_long_too(
    tmp_path: Path, length: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSET", "off")
    training = Training(equal_files(tmp_path / "tree", SAMPLES, 50), "uniform", epoch_length=length)
    expected = SAMPLES if length == "auto" else int(length)
    stream = []
    for epoch in range(5):
        drawn = training.epoch(epoch)
        assert len(drawn) == len(training.sampler) == expected
        stream += drawn
    for first in range(0, len(stream) - SAMPLES + 1, SAMPLES):
        assert sorted(stream[first : first + SAMPLES]) == list(range(SAMPLES))


@pytest.mark.parametrize("strategy", ["iis", "hybrid"])
def test_a_schedule_in_ones_own_loop_ends_with_the_training(tmp_path: Path, strategy: str) -> None:
    epochs, accumulated = 10, 2
    training = Training(equal_files(tmp_path / "tree", SAMPLES, 50), strategy, **SETTINGS[strategy])
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    per_epoch = -(-len(training.loader) // accumulated)
    steps = training.sampler.total_steps(epochs, BATCH * accumulated)
    assert steps == epochs * per_epoch
    schedule = OneCycleLR(optimizer, max_lr=1.0, total_steps=steps)
    lowest = 1.0 / 25 / 1e4
    trained = 0
    for epoch in range(epochs):
        training.sampler.set_epoch(epoch)
        training.sampler.reevaluate(Model(), _output)
        for step, ids in enumerate(training.loader, 1):
            training.sampler.update(ids, ids.float() + 0 * weight).mean().backward()
            if step % accumulated == 0 or step == len(training.loader):
                optimizer.step()
                optimizer.zero_grad()
                trained += 1
                if trained < steps:
                    schedule.step()
    assert trained == steps
    assert schedule.get_last_lr()[0] == pytest.approx(lowest)


def test_a_sum_of_datasets_takes_auto_alone(tmp_path: Path) -> None:
    places = [equal_files(tmp_path / name, count, 50) for name, count in (("a", 20), ("b", 31))]
    both = ConcatDataset([hotset.Dataset(place, with_ids=True, decode=_pair) for place in places])
    with pytest.raises(hotset.InvalidError, match='takes "auto" alone'):
        hotset.Sampler(both, "iis", epoch_length=40)
    sampler = hotset.Sampler(both, "iis", epoch_length="auto")
    loader = DataLoader(both, BATCH, sampler=sampler, collate_fn=_ids)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        trained = 0
        for ids in loader:
            sampler.update(ids, ids.float())
            trained += len(ids)
        assert trained == len(sampler) == 51


def test_a_state_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    first = Training(place, epoch_length=48, **SETTINGS["iis"])
    for epoch in range(2):
        first.epoch(epoch)
    begun = first.epoch(2, most=3)
    state, learned = first.sampler.state_dict(), first.sampler.importance_state()
    whole = [*begun, *first.epoch(2)[len(begun) :]]
    # Half as long an epoch for each of two ranks is the same epoch.
    second = Training(place, epoch_length=24, rank=1, num_replicas=2, **SETTINGS["iis"])
    second.sampler.load_importance_state(learned)
    second.sampler.load_state_dict(state)
    assert (second.sampler.position, len(second.sampler)) == (12, 24)
    assert second.epoch(2) == whole[25::2]


def test_a_length_among_the_settings_is_refused_and_says_where_it_belongs(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 10, 10))
    with pytest.raises(hotset.InvalidError, match=r"argument of its own, `Sampler\(..., epoch_length=5\)`"):
        hotset.Sampler(train, "iis", settings={"epoch_length": 5})
