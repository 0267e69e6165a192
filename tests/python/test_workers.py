"""Loader workers of every kind are served exactly the plan."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hotset
import pytest
from processes import until
from torch.utils.data import DataLoader
from trees import content, digest, equal_files, labelled_files, planned

KINDS = [(0, "fork", False)] + [
    (2, method, persistent) for method in ("fork", "spawn", "forkserver") for persistent in (False, True)
]


@pytest.mark.parametrize(("workers", "method", "persistent"), KINDS)
def test_each_epoch_serves_exactly_its_plan(
    tmp_path: Path, workers: int, method: str, persistent: bool
) -> None:
    truth = labelled_files(tmp_path / "tree", 150, largest=4000)
    train = hotset.ImageFolder(tmp_path / "tree", loader=digest, with_ids=True)
    sampler = hotset.Sampler(train, seed=5)
    loader = DataLoader(
        train,
        batch_size=16,
        sampler=sampler,
        num_workers=workers,
        collate_fn=list,
        multiprocessing_context=method if workers else None,
        persistent_workers=persistent,
    )
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        served = [sample for batch in loader for sample in batch]
        assert [number for *_, number in served] == planned(150, epoch, seed=5)
        assert {number: (found, label) for found, label, number in served} == truth
        orders.append([number for *_, number in served])
    assert orders[0] != orders[1]
    del loader
    assert [epoch["served"] for epoch in train.stats()["epochs"][:2]] == [150, 150]


def test_a_loop_that_breaks_early_goes_on_with_the_next_epoch(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 200, 500), with_ids=True)
    sampler = hotset.Sampler(train)
    loader = DataLoader(
        train, batch_size=8, sampler=sampler, num_workers=2, collate_fn=list, persistent_workers=True
    )
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            assert [number for _, number in batch] == planned(200, epoch)[step * 8 : step * 8 + 8]
            if step == 3:
                break
    sampler.set_epoch(3)
    served = [number for batch in loader for _, number in batch]
    assert served == planned(200, 3)


def test_two_loaders_over_one_dataset_and_one_over_another_run_at_once(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "train", 120, 300), with_ids=True)
    held_out = hotset.Dataset(equal_files(tmp_path / "held-out", 60, 300), with_ids=True)
    sampler = hotset.Sampler(train)
    training = DataLoader(train, batch_size=10, sampler=sampler, num_workers=2, collate_fn=list)
    evaluation = DataLoader(train, batch_size=10, num_workers=1, collate_fn=list)
    validation = DataLoader(held_out, batch_size=5, num_workers=1, collate_fn=list)
    served: list[int] = []
    for number, (batch, plain, other) in enumerate(zip(training, evaluation, validation, strict=True)):
        served += [sample for _, sample in batch]
        assert [sample for _, sample in plain] == list(range(number * 10, number * 10 + 10))
        for data, sample in (*plain, *other):
            assert data == content(f"{sample:06d}.bin", 300)
    assert served == planned(120, 0)
    assert train.source is not held_out.source


def test_threads_share_one_connection(tmp_path: Path) -> None:
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 300, 2000), cache="10%")
    with ThreadPoolExecutor(8) as threads:
        for number, data in zip(range(300), threads.map(dataset.__getitem__, range(300)), strict=True):
            assert data == content(f"{number:06d}.bin", 2000)
    assert dataset.stats()["server"]["readers"] == 1


def test_a_dataset_that_was_garbage_gives_its_job_back(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 10, 100)
    first = hotset.Dataset(place)
    assert first[0]
    del first
    second = hotset.Dataset(place)
    assert second[0]
    client = hotset.connect()
    until("one job is left", lambda: len(json.loads(client.stats(wait=60.0))["jobs"]) == 1)
    client.close()
