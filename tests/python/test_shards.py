"""Tar shards on a local disk: parts, labels, patterns, and what is refused."""

from __future__ import annotations

import gzip
import io
import random
import subprocess
import tarfile
from pathlib import Path

import hotset
import pytest
import torch
from torch.utils.data import DataLoader
from trees import content, digest, tar_shards


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, dict[int, tuple[str, str, int]]]:
    """Three shards, and the digests of every sample's parts and its label."""
    place = tmp_path / "shards"
    return place, tar_shards(place, shards=3, samples=20)


def test_samples_come_with_their_label_and_in_the_order_of_the_shards(
    shards: tuple[Path, dict[int, tuple[str, str, int]]],
) -> None:
    place, truth = shards
    train = hotset.Shards(place / "train-{000..002}.tar", parts=("jpg",))
    assert len(train) == 60
    found = {number: (digest(image), label) for number, (image, label) in enumerate(train)}  # type: ignore[call-overload]
    assert found == {number: (image, label) for number, (_, image, label) in truth.items()}
    assert train.key(21) == "train-001.tar/some/000021"
    assert hotset.Shards(place, parts=("jpg",)).key(59) == "train-002.tar/some/000059"


def test_what_lies_side_by_side_comes_in_few_requests_and_is_right(
    shards: tuple[Path, dict[int, tuple[str, str, int]]],
) -> None:
    place, truth = shards
    # A slow store, so that all of a batch waits to be read while the first of it is.
    slow = {"throttle.latency": "50ms", "throttle.requests": "1"}
    train = hotset.Shards(place / "train-{000..002}.tar", parts=("jpg",), cache=0, storage_options=slow)
    order = [*range(40, 60), 7, 30, *range(20)]
    for number, (image, label) in zip(order, train.__getitems__(order), strict=True):
        assert (digest(image), label) == truth[number][1:]
    counted = train.stats()["unplanned"]
    assert counted["storage_reads"] == len(set(order))
    assert counted["storage_requests"] <= len(order) // 2, "neighbours are read together"


def test_several_parts_come_together_in_the_order_asked_for(
    shards: tuple[Path, dict[int, tuple[str, str, int]]],
) -> None:
    place, truth = shards
    whole = hotset.Shards(place / "train-001.tar", with_ids=True)
    assert whole.parts == ("jpg", "json")
    (image, note), label, number = whole[3]
    assert (digest(note), digest(image), label, number) == (*truth[23], 3)
    turned = hotset.Shards(
        place / "train-001.tar", parts=("json", "jpg"), decode=lambda a, b: (digest(a), digest(b))
    )
    assert turned[3] == (truth[23][:2], truth[23][2])


def marked(image: memoryview, mask: memoryview | None) -> tuple[bytes, bytes | None]:
    """A sample as a training would make it."""
    return bytes(image), None if mask is None else bytes(mask)


def test_a_part_with_a_question_mark_is_none_in_samples_that_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth: list[tuple[bytes, bytes | None]] = []
    with tarfile.open(tmp_path / "masks.tar", "w") as tar:
        for number in range(30):
            image, mask = content(f"{number}.jpg", 50 * number), content(f"{number}.png", 10 * (number % 4))
            # The first has none, and one that is there may be empty.
            members = {"jpg": image, "mask.png": mask} if number % 3 else {"jpg": image}
            for extension, data in members.items():
                header = tarfile.TarInfo(f"{number:03d}.{extension}")
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))
            truth.append((image, members.get("mask.png")))
    with pytest.raises(hotset.InvalidError, match=r"`000` of the shard .* no `mask\.png`.*`mask\.png\?`"):
        hotset.Shards(tmp_path / "masks.tar", parts=("jpg", "mask.png"))
    for off in (False, True):
        if off:
            monkeypatch.setenv("HOTSET", "off")
        train = hotset.Shards(tmp_path / "masks.tar", parts=("jpg", "mask.png?"))
        assert train.parts == ("jpg", "mask.png?")
        assert list(train) == truth  # type: ignore[call-overload]
        assert train.select([3, 4])[1] == truth[4]
        made = hotset.Shards(tmp_path / "masks.tar", parts=("jpg", "mask.png?"), decode=marked, cache="20%")
        loader = DataLoader(made, batch_size=4, num_workers=2, collate_fn=list)
        assert [sample for batch in loader for sample in batch] == truth
    with pytest.raises(hotset.InvalidError, match="`jpg\\?` alone"):
        hotset.Shards(tmp_path / "masks.tar", parts=("jpg?",))


def test_labels_may_come_from_json_or_not_at_all(
    shards: tuple[Path, dict[int, tuple[str, str, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, truth = shards
    named = hotset.Shards(place, parts=("jpg",), label="json:number")
    assert [named[number][1] for number in (0, 59)] == [0, 59]
    bare = hotset.Shards(place, parts=("jpg",), label="none")
    assert digest(bare[7]) == truth[7][1]
    monkeypatch.setenv("HOTSET", "off")
    past = hotset.Shards(place, parts=("json", "jpg"))
    (note, image), label = past[31]
    assert (digest(note), digest(image), label) == truth[31]


def test_what_cannot_be_read_is_refused_with_the_reason(
    shards: tuple[Path, dict[int, tuple[str, str, int]]],
) -> None:
    place, _ = shards
    (place / "packed.tar").write_bytes(gzip.compress((place / "train-000.tar").read_bytes()))
    with pytest.raises(hotset.InvalidError, match=r"`packed\.tar` is gzip"):
        hotset.Shards(place / "packed.tar")
    with pytest.raises(hotset.InvalidError, match=r"no shard `train-003\.tar`"):
        hotset.Shards(place / "train-{000..003}.tar")
    with pytest.raises(hotset.InvalidError, match="has no `png`"):
        hotset.Shards(place / "train-000.tar", parts=("png",))
    with pytest.raises(hotset.InvalidError, match="`parts='jpg'`: a sequence"):
        hotset.Shards(place / "train-000.tar", parts="jpg")
    with pytest.raises(hotset.InvalidError, match="does not close"):
        hotset.Shards(place / "train-{000.tar")


def test_members_without_their_own_bytes_are_refused_by_name(tmp_path: Path) -> None:
    image = tmp_path / "a.jpg"
    with image.open("wb") as file:
        file.write(b"first")
        file.truncate(510_000)
    for version in ("0.0", "0.1", "1.0"):
        command = ["tar", "--format=posix", "--sparse", f"--sparse-version={version}", "-C", str(tmp_path)]
        subprocess.run([*command, "-cf", str(tmp_path / "sparse.tar"), "a.jpg"], check=True)
        with pytest.raises(hotset.InvalidError, match=r"`a\.jpg` in the shard `sparse\.tar` is a sparse"):
            hotset.Shards(tmp_path / "sparse.tar", parts=("jpg",))
    (tmp_path / "b.jpg").hardlink_to(image)
    with tarfile.open(tmp_path / "linked.tar", "w") as shard:
        shard.add(image, "a.jpg")
        shard.add(tmp_path / "b.jpg", "b.jpg")
    with pytest.raises(hotset.InvalidError, match=r"`b\.jpg` in the shard .* is a link to `a\.jpg`"):
        hotset.Shards(tmp_path / "linked.tar", parts=("jpg",))


def test_a_shard_that_was_written_since_is_told(shards: tuple[Path, dict[int, tuple[str, str, int]]]) -> None:
    place, truth = shards
    train = hotset.Shards(place / "train-{000..002}.tar", parts=("jpg",), cache=0)
    data = (place / "train-001.tar").read_bytes()
    (place / "train-001.tar").write_bytes(data[:-1])
    with pytest.raises(hotset.ChangedError, match=r"train-001\.tar/some/000025"):
        train[25]
    assert digest(train[3][0]) == truth[3][1]


def _written(place: Path, labels: list[int]) -> Path:
    """Shards of a hundred samples of 3,000 bytes each, with these labels in this order."""
    place.mkdir()
    for first in range(0, len(labels), 100):
        with tarfile.open(place / f"train-{first:06d}.tar", "w") as tar:
            for number in range(first, first + 100):
                for extension, data in (
                    ("jpg", content(f"{number}", 3_000)),
                    ("cls", str(labels[number]).encode()),
                ):
                    header = tarfile.TarInfo(f"{number:06d}.{extension}")
                    header.size = len(data)
                    tar.addfile(header, io.BytesIO(data))
    return place


def _trained(place: Path, **more: object) -> tuple[hotset.Dataset, list[int]]:
    """An epoch of `iis` over shards: the dataset and its ids in the order they were served."""
    train = hotset.Shards(place, parts=("jpg",), cache="60%", with_ids=True, **more)  # type: ignore[arg-type]
    sampler = hotset.Sampler(train, "iis", package_size="64KiB")
    ids = []
    for batch in DataLoader(train, 64, sampler=sampler, collate_fn=_ids):
        sampler.update(batch, torch.ones(len(batch)))
        ids += batch
    return train, ids


def _ids(batch: list[tuple[bytes, int, int]]) -> list[int]:
    return [number for *_, number in batch]


def test_sorted_shards_are_read_one_by_one_and_it_is_said(tmp_path: Path) -> None:
    labels = [number // 20 for number in range(2_000)]
    with pytest.warns(hotset.HotsetWarning, match="shards are sorted by label"):
        train, ids = _trained(_written(tmp_path / "sorted", labels))
    stats = train.stats()
    assert (stats["epochs"][0]["packed"], stats["epochs"][0]["single"]) == (0, 2_000)
    said = [remark for remark in stats["remarks"] if "sorted by label" in remark]
    assert len(said) == 1 and "`package_size=`" in said[0] and '`packages="off"`' in said[0], stats["remarks"]
    batch = {labels[number] for number in ids[:256]}
    assert len(batch) > 80, "a batch of a shuffle holds most labels"


def test_shards_in_random_order_are_read_in_runs(tmp_path: Path) -> None:
    draw = random.Random(1)
    labels = [draw.randrange(100) for _ in range(2_000)]
    train, _ = _trained(_written(tmp_path / "mixed", labels))
    stats = train.stats()
    assert stats["epochs"][0]["packed"] > 0
    assert not [remark for remark in stats["remarks"] if "sorted by label" in remark]
