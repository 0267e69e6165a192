"""The sampler beside the plan: lengths, ranks, losses, and going on where a run stopped."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from pathlib import Path

import hotset
import numpy
import pytest
import torch
from processes import Trainer
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler
from trees import equal_files, labelled_files, planned, tar_shards


@pytest.fixture
def train(tmp_path: Path) -> hotset.Dataset:
    """A dataset of 101 samples with their ids."""
    return hotset.Dataset(equal_files(tmp_path / "tree", 101, 50), with_ids=True)


def test_it_is_a_distributed_sampler_with_all_its_attributes(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train, num_replicas=4, rank=1)
    assert isinstance(sampler, DistributedSampler)
    assert set(vars(DistributedSampler(train, 4, 1))) <= {
        *vars(sampler),
        *("epoch", "num_samples", "total_size"),
    }
    assert (sampler.num_samples, sampler.total_size) == (25, 100)


@pytest.mark.parametrize("mode", ["on", "off"])
def test_without_shuffling_every_epoch_is_in_the_order_of_the_dataset(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSET", mode)
    train = hotset.Dataset(equal_files(tmp_path / "tree", 100, 50))
    sampler = hotset.Sampler(train)
    assert sampler.shuffle
    sampler = hotset.Sampler(train, shuffle=False, seed=3)
    assert not sampler.shuffle
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert list(sampler) == list(range(100))
    assert train.stats()["strategy"] == sampler.strategy == "sequential"
    assert sampler.total_steps(3, 8) == 39
    parts = [
        list(hotset.Sampler(train, shuffle=False, num_replicas=3, rank=rank, pad=True)) for rank in range(3)
    ]
    assert parts == [[*range(0, 100, 3)], [*range(1, 100, 3), 0], [*range(2, 100, 3), 1]]


def test_datasets_that_are_not_shuffled_are_trained_one_after_the_other(tmp_path: Path) -> None:
    places = [equal_files(tmp_path / name, count, 50) for name, count in (("one", 5), ("two", 7))]
    both = ConcatDataset([hotset.Dataset(place) for place in places])
    sampler = hotset.Sampler(both, shuffle=False)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert list(sampler) == list(range(12))


def test_neighbours_that_are_read_in_order_are_read_together(tmp_path: Path) -> None:
    tar_shards(tmp_path / "shards", shards=2, samples=40)
    requests = []
    for shuffle in (True, False):
        # On a server of its own: what another job has read would be shared.
        hotset.stop_private()
        train = hotset.Shards(tmp_path / "shards", cache="10%")
        loader = DataLoader(train, 8, sampler=hotset.Sampler(train, shuffle=shuffle), collate_fn=len)
        assert sum(loader) == 80
        counted = train.stats()["epochs"][0]
        assert counted["storage_reads"] == 80
        requests.append(counted["storage_requests"])
    assert requests[1] <= 20 < requests[0]


@pytest.mark.parametrize("other", [{"ids": [1, 2]}, {"strategy": "iis"}])
def test_two_orders_at_once_are_refused(train: hotset.Dataset, other: dict[str, object]) -> None:
    with pytest.raises(hotset.InvalidError, match=r"`shuffle=False` is the order of the dataset, and `"):
        hotset.Sampler(train, shuffle=False, **other)  # type: ignore[arg-type]


def test_ranks_get_disjoint_parts_of_equal_length(train: hotset.Dataset) -> None:
    for pad, length in ((False, 25), (True, 26)):
        parts = []
        for rank in range(4):
            sampler = hotset.Sampler(train, num_replicas=4, rank=rank, pad=pad)
            assert len(sampler) == length
            parts.append(list(sampler))
            assert len(parts[-1]) == len(sampler) == length
        together = [number for part in parts for number in part]
        assert len(set(together)) == (101 if pad else 100)
    assert hotset.Sampler(train, num_replicas=4, rank=0).total_steps(3, 10) == 9
    assert hotset.Sampler(train, num_replicas=4, rank=0).total_steps(3, 10, drop_last=True) == 6
    assert math.ceil(101 / 10) * 2 == hotset.Sampler(train).total_steps(2, 10)


def test_ranks_of_one_launch_share_a_server_and_a_plan(tmp_path: Path) -> None:
    truth = labelled_files(tmp_path / "tree", 80, largest=500)
    launch = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    ranks = [
        Trainer(tmp_path / "tree", "--workers", "1", environment={**launch, "RANK": str(rank)})
        for rank in range(2)
    ]
    said = [rank.ended() for rank in ranks]
    assert said[0][0]["server"] == said[1][0]["server"]
    for epoch in range(2):
        parts = [
            {
                number: (found, label)
                for line in lines[1:-1]
                if line["epoch"] == epoch
                for found, label, number in line["batch"]
            }
            for lines in said
        ]
        assert len(parts[0]) == len(parts[1]) == 40
        assert parts[0] | parts[1] == truth


def test_an_epoch_that_was_not_set_is_counted_and_said_once(
    train: hotset.Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = hotset.Sampler(train)
    with caplog.at_level(logging.WARNING):
        epochs = [[index.epoch for index in iter(sampler)] for _ in range(3)]
    assert epochs == [[epoch] * 101 for epoch in (0, 1, 2)]
    assert sampler.epoch == 2
    assert sum("set_epoch" in record.message for record in caplog.records) == 1


def test_a_run_goes_on_from_its_state(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train, seed=3)
    sampler.set_epoch(2)
    slots = iter(sampler)
    before = [next(slots) for _ in range(40)]
    state = sampler.state_dict()
    assert (state["epoch"], state["position"], state["seed"], state["strategy"]) == (2, 40, 3, "uniform")
    after = list(slots)

    resumed = hotset.Sampler(train, seed=3)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    resumed.set_epoch(2)
    assert list(resumed) == after
    assert len(resumed) == len(before) + len(after) == 101
    resumed.set_epoch(3)
    assert len(list(resumed)) == 101
    with pytest.raises(hotset.InvalidError, match="seed=3"):
        hotset.Sampler(train, seed=4).load_state_dict(state)


def test_losses_are_reported_and_handed_back(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train)
    with pytest.raises(hotset.InvalidError, match="before the first epoch"):
        sampler.update([1], torch.ones(1))
    reported = 0
    for batch in DataLoader(train, batch_size=25, sampler=sampler, collate_fn=list):
        ids = torch.tensor([number for _, number in batch])
        loss = torch.rand(len(ids), requires_grad=True) * 2
        assert sampler.update(ids, loss) is loss
        reported += len(ids)
    epoch = train.stats()["epochs"][0]
    assert (epoch["reported"], epoch["rejected_scores"]) == (reported, 0)
    sampler.update([0, 1, 2], torch.tensor([math.nan, -1.0, math.inf]))
    assert train.stats()["epochs"][0]["rejected_scores"] == 3


def test_losses_of_another_shape_are_refused_with_what_to_write(train: hotset.Dataset) -> None:
    sampler = hotset.Sampler(train)
    for loss, says in (
        (torch.tensor(1.0), r'reduction="none".*need no losses: `uniform`'),
        (torch.ones(3, 2), r"loss\.flatten\(1\)\.mean\(1\)"),
        (torch.ones(2), "2 values for 3 ids"),
        ([1.0, 2.0, 3.0], "`list`"),
    ):
        with pytest.raises(hotset.InvalidError, match=says):
            sampler.update([0, 1, 2], loss)  # type: ignore[arg-type]


def test_a_second_sampler_replaces_the_first(train: hotset.Dataset) -> None:
    first = list(hotset.Sampler(train, seed=0))
    second = hotset.Sampler(train, seed=1)
    assert [number for _, number in DataLoader(train, batch_size=None, sampler=second)] == [
        *planned(101, 0, seed=1)
    ]
    assert first == planned(101, 0, seed=0)


def test_a_recorded_run_becomes_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTSET_RECORD", str(tmp_path / "runs"))
    dataset = hotset.Dataset(str(equal_files(tmp_path / "tree", 10, 50)))
    sampler = hotset.Sampler(dataset)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        ids = torch.tensor(list(sampler)[:8])
        sampler.update(ids, ids.float() + epoch)
    dataset.close()
    (recording,) = (tmp_path / "runs").glob("*.reports")
    trace = tmp_path / "trace.npy"
    command = [sys.executable, "-m", "hotset", "record", str(recording), "--out", str(trace)]
    assert (
        "2 epochs of 10 samples" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    losses = numpy.load(trace)
    assert losses.shape == (2, 10) and numpy.isnan(losses).sum() == 4
    for epoch in range(2):
        trained = [id_ for id_ in range(10) if not numpy.isnan(losses[epoch, id_])]
        assert [losses[epoch, id_] for id_ in trained] == [id_ + epoch for id_ in trained]


def test_ranks_on_several_hosts_are_refused_where_one_server_must_know_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 40, 100))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    hotset.Sampler(train, num_replicas=4, rank=0)
    hotset.Sampler(train, "carousel", settings={"fresh": 0.25}, num_replicas=4, rank=0)
    for strategy in ("iis", "quiver", "carousel"):
        with pytest.raises(hotset.InvalidError, match="--cluster"):
            hotset.Sampler(train, strategy, num_replicas=4, rank=0)
    hotset.Sampler(train, "iis", num_replicas=2, rank=0)
