"""Every sample is right, by its hash, while everything between a store and six workers goes wrong by seed.

Two kinds of faults at once: `storage_options` makes reads fail, take longer, find a shorter object or another
version, and a relay in front of a real S3 server cuts answers short in their middle. What passes is tried
again by the server; a changed object is told to the trainer, which here asks again.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import hotset
import pytest
from bucket import Bucket
from relay import Relay
from torch.utils.data import DataLoader, Dataset
from trees import content, digest, labelled_files, tar_shards

SEEDS = (1, 2, 3)
FAULTS = {
    "fault.rate": "0.04",
    "fault.stall": "0.03",
    "fault.stall_for": "20ms",
    "fault.truncate": "0.02",
    "fault.swap": "0.02",
}
CUT = 0.05


class Asking(Dataset[Any]):
    """A dataset that asks again when it is told of a change, and counts how often it was."""

    def __init__(self, dataset: hotset.Dataset) -> None:
        self.dataset = dataset
        self._told = multiprocessing.get_context("fork").Value("q", 0)

    @property
    def told(self) -> int:
        """Changes told so far, to all workers together."""
        return int(self._told.value)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        while True:
            try:
                return self.dataset.__getitems__(indices)
            except hotset.ChangedError as error:
                assert error.sample in indices
                assert error.key
                with self._told.get_lock():
                    self._told.value += 1


def digests(*parts: memoryview) -> tuple[str, ...]:
    """The digest of each part."""
    return tuple(digest(part) for part in parts)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """One server for all of these tests."""
    made = Bucket()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def tree(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, int]]:
    """The digest and label of every id of a labelled tree below `train`."""
    root = tmp_path_factory.mktemp("faults") / "tree"
    truth = labelled_files(root, 300)
    bucket.put_tree(root, "train")
    return truth


@pytest.fixture(scope="module")
def shards(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, str, int]]:
    """The digests and label of every id of the tar files below `shards`."""
    root = tmp_path_factory.mktemp("faults") / "shards"
    truth = tar_shards(root, shards=6, samples=40)
    bucket.put_tree(root, "shards")
    return truth


def through(relay: Relay, bucket: Bucket, seed: int) -> dict[str, str]:
    """The `storage_options` that reach the bucket through `relay`, with faults."""
    endpoint = f"http://127.0.0.1:{relay.port}"
    return {**bucket.options, "aws_endpoint": endpoint, "fault.seed": str(seed), **FAULTS}


def epochs(train: hotset.Dataset, epochs: int = 2) -> tuple[list[list[Any]], int]:
    """All samples of some epochs under six workers and eviction, and how many changes were told."""
    asking = Asking(train)
    sampler = hotset.Sampler(train, policy="lru", seed=1)
    loader = DataLoader(asking, batch_size=16, sampler=sampler, num_workers=6, collate_fn=list)
    served = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        served.append([sample for batch in loader for sample in batch])
    return served, asking.told


def counted(train: hotset.Dataset) -> tuple[int, int, int]:
    """Reads that found a change, reads that found none, and the requests for both, of all epochs."""
    epochs = train.stats()["epochs"]
    failed, reads, requests = (
        sum(int(epoch[name]) for epoch in epochs) for name in ("failed", "storage_reads", "storage_requests")
    )
    return failed, reads, requests


@pytest.mark.parametrize("seed", SEEDS)
def test_an_image_folder_is_right_whatever_fails_stalls_is_cut_or_swapped(
    bucket: Bucket, tree: dict[int, tuple[str, int]], seed: int
) -> None:
    relay = Relay(bucket.port, cut=CUT, seed=seed)
    try:
        options = through(relay, bucket, seed)
        train = hotset.ImageFolder(
            bucket.url("train"), loader=digest, cache="5%", with_ids=True, storage_options=options
        )
        served, told = epochs(train)
        for epoch in served:
            assert {number: (found, label) for found, label, number in epoch} == tree
            assert len(epoch) == len(tree)
        assert relay.cuts > 0
        failed, reads, requests = counted(train)
        assert failed >= max(told, 1)
        assert requests > reads + failed
    finally:
        relay.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_tar_shards_are_right_whatever_fails_stalls_is_cut_or_swapped(
    bucket: Bucket, shards: dict[int, tuple[str, str, int]], seed: int
) -> None:
    relay = Relay(bucket.port, cut=CUT, seed=seed)
    try:
        options = through(relay, bucket, seed)
        train = hotset.Shards(
            bucket.url("shards/train-{000..005}.tar"),
            parts=("json", "jpg"),
            decode=digests,
            cache="5%",
            with_ids=True,
            storage_options=options,
        )
        served, told = epochs(train)
        for epoch in served:
            assert {number: (*found, label) for found, label, number in epoch} == shards
            assert len(epoch) == len(shards)
        assert relay.cuts > 0
        failed, reads, _ = counted(train)
        assert failed >= max(told, 1)
        # Neighbours come in one request, and repetitions add some: requests and reads bound each other in no
        # way. What a cache of a twentieth did not hold was read, each time.
        single = sum(int(epoch["single"]) for epoch in train.stats()["epochs"])
        assert reads >= single > len(shards)
    finally:
        relay.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_objects_that_are_overwritten_and_put_back_meanwhile_are_told_and_never_served(
    bucket: Bucket, seed: int
) -> None:
    prefix, count = f"turning-{seed}", 60
    truth = {number: content(f"{number:03d}", 3_000) for number in range(count)}
    for number, data in truth.items():
        bucket.put(f"{prefix}/{number:03d}", data)
    train = hotset.Dataset(
        bucket.url(prefix), decode=bytes, cache=0, with_ids=True, storage_options=bucket.options
    )
    over = threading.Event()
    turned: list[int] = []

    def turn() -> None:
        draw = random.Random(seed)
        while not over.is_set():
            number = draw.randrange(count)
            # The same length, and once another: only a version tells the first.
            other = content(f"another {number}", 3_000 - draw.randrange(2))
            bucket.put(f"{prefix}/{number:03d}", other)
            bucket.put(f"{prefix}/{number:03d}", truth[number])
            turned.append(number)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        # Until something was caught in the act; each epoch is right by itself.
        for _ in range(40):
            served, _ = epochs(train, 1)
            assert {number: data for data, number in served[0]} == truth
            if counted(train)[0]:
                break
    finally:
        over.set()
        thread.join()
    assert turned and counted(train)[0] > 0
