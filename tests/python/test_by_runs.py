"""Plans by runs of shards: every sample once, one request for each run that is not kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hotset
import pytest
from torch.utils.data import DataLoader
from trees import digest, tar_shards

SHARDS, EACH = 8, 250
SAMPLES = SHARDS * EACH


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, tuple[str, str, int]]]:
    """Eight shards, and the digests of every sample's parts and its label."""
    place = tmp_path_factory.mktemp("shards") / "shards"
    return place, tar_shards(place, shards=SHARDS, samples=EACH)


def samples(batch: Sequence[Any]) -> list[Any]:
    """A batch as it is, without tensors."""
    return list(batch)


def epoch_of(loader: DataLoader[Any], sampler: hotset.Sampler, epoch: int) -> dict[int, tuple[str, int]]:
    """Trains an epoch; what came, by id."""
    sampler.set_epoch(epoch)
    served = [(number, digest(image), label) for batch in loader for image, label, number in batch]
    assert len(served) == SAMPLES
    return {number: (image, label) for number, image, label in served}


@pytest.mark.parametrize("workers", [0, 2])
def test_requests_of_an_epoch_are_the_runs_that_are_not_kept(
    shards: tuple[Path, dict[int, tuple[str, str, int]]], workers: int
) -> None:
    place, truth = shards
    train = hotset.Shards(place, parts=("jpg",), cache="60%", with_ids=True)
    sampler = hotset.Sampler(train, settings={"order": "runs"})
    loader = DataLoader(train, batch_size=32, sampler=sampler, num_workers=workers, collate_fn=samples)
    expected = {number: truth[number][1:] for number in range(SAMPLES)}
    orders = []
    for epoch in range(3):
        found = epoch_of(loader, sampler, epoch)
        assert found == expected
        orders.append(list(found))
    assert orders[0] != orders[1] != orders[2]
    first, second, third = train.stats()["epochs"][:3]
    assert (first["packed"], first["single"], first["hit"]) == (SAMPLES, 0, 0)
    assert first["package_reads"] == first["storage_requests"] > 30
    kept = first["package_reads"] - second["package_reads"]
    # A run of which all is still there when its epoch comes is not read.
    assert kept > 5 and abs(third["package_reads"] - second["package_reads"]) <= kept // 4
    assert second["hit"] + second["packed"] == SAMPLES and second["single"] == 0
    # Half of the cache of 60 % keeps runs.
    assert 0.2 * SAMPLES < second["hit"] < 0.31 * SAMPLES
    assert second["storage_bytes"] < 0.8 * first["storage_bytes"]


def test_auto_says_why_it_draws_each_sample_by_itself(
    shards: tuple[Path, dict[int, tuple[str, str, int]]],
) -> None:
    place, _ = shards
    train = hotset.Shards(place, parts=("jpg",), cache="1%", with_ids=True)
    with pytest.warns(
        hotset.HotsetWarning, match="`order=auto` draws each sample by itself: .*raise `cache`"
    ):
        sampler = hotset.Sampler(train, settings={"order": "auto"})
        loader = DataLoader(train, batch_size=32, sampler=sampler, collate_fn=samples)
        epoch_of(loader, sampler, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"settings": {"order": "runs"}, "policy": "lru"}, "leave `policy` out"),
        ({"settings": {"order": "runs"}, "packages": "/tmp/somewhere"}, "read the dataset's own shards"),
        ({"settings": {"order": "sorted"}}, "takes `exact` or `runs` or `auto`"),
        ({"settings": {"order": "runs"}, "package_size": "1MiB"}, "lower `package_size`"),
    ],
)
def test_what_cannot_be_is_refused_with_the_setting_to_change(
    shards: tuple[Path, dict[int, tuple[str, str, int]]], arguments: dict[str, Any], says: str
) -> None:
    train = hotset.Shards(shards[0], parts=("jpg",), cache="60%")
    with pytest.raises(hotset.InvalidError, match=says):
        iter(hotset.Sampler(train, **arguments))


def test_files_have_no_runs(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / "tree" / "a" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * number)
    train = hotset.Dataset(tmp_path / "tree", cache="60%")
    with pytest.raises(hotset.InvalidError, match="objects of their own; write them as tar shards"):
        iter(hotset.Sampler(train, settings={"order": "runs"}))
