"""The same three lines from a real S3 server: image folders and tar shards in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hotset
import pytest
import torch
from bucket import Bucket
from processes import until
from relay import Relay
from torch.utils.data import DataLoader
from trees import content, digest, labelled_files, tar_shards

EPOCHS = 2
FAULTS = {"fault.seed": "3", "fault.rate": "0.03", "fault.stall": "0.02", "fault.stall_for": "20ms"}


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
def tree(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, tuple[str, int]]]:
    """A labelled tree that lies in the bucket below `train` too, and the digest and label of every id."""
    root = tmp_path_factory.mktemp("s3") / "tree"
    truth = labelled_files(root, 300)
    bucket.put_tree(root, "train")
    return root, truth


def test_an_image_folder_in_a_bucket_is_right_under_six_workers_eviction_and_faults(
    bucket: Bucket, tree: tuple[Path, dict[int, tuple[str, int]]]
) -> None:
    _, truth = tree
    train = hotset.ImageFolder(
        bucket.url("train"),
        loader=digest,
        cache="5%",
        with_ids=True,
        storage_options={**bucket.options, **FAULTS},
    )
    sampler = hotset.Sampler(train, policy="lru", seed=1)
    loader = DataLoader(train, batch_size=16, sampler=sampler, num_workers=6, collate_fn=list)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        served = [sample for batch in loader for sample in batch]
        assert {number: (found, label) for found, label, number in served} == truth
        assert len(served) == len(truth)
    stats = train.stats()
    epochs = stats["epochs"][:EPOCHS]
    assert [epoch["served"] for epoch in epochs] == [len(truth)] * EPOCHS
    assert sum(epoch["storage_requests"] for epoch in epochs) > sum(
        epoch["storage_reads"] for epoch in epochs
    )
    assert stats["server"]["reads_in_flight"] <= stats["server"]["concurrency"]


def test_tar_shards_in_a_bucket_are_right_under_six_workers_eviction_and_faults(
    bucket: Bucket, tmp_path: Path
) -> None:
    truth = tar_shards(tmp_path / "shards", shards=6, samples=40)
    bucket.put_tree(tmp_path / "shards", "shards")
    train = hotset.Shards(
        bucket.url("shards/train-{000..005}.tar"),
        parts=("json", "jpg"),
        decode=digests,
        cache="5%",
        with_ids=True,
        storage_options={**bucket.options, **FAULTS},
    )
    assert train.parts == ("json", "jpg")
    sampler = hotset.Sampler(train, policy="lru", seed=1)
    loader = DataLoader(train, batch_size=16, sampler=sampler, num_workers=6, collate_fn=list)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        served = [sample for batch in loader for sample in batch]
        assert {number: (*found, label) for found, label, number in served} == truth
        assert len(served) == len(truth)
    epochs = train.stats()["epochs"][:EPOCHS]
    assert [epoch["served"] for epoch in epochs] == [len(truth)] * EPOCHS
    again = hotset.Shards(bucket.url("shards"), parts=("jpg",), storage_options=bucket.options)
    assert {number: (digest(again[number][0]), again[number][1]) for number in (0, 77, 239)} == {
        number: truth[number][1:] for number in (0, 77, 239)
    }


@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["well", "faults"])
def test_runs_of_shards_in_a_bucket_are_packages_as_they_lie(
    bucket: Bucket, tmp_path: Path, faults: dict[str, str]
) -> None:
    truth = tar_shards(tmp_path / "shards", shards=4, samples=120)
    bucket.put_tree(tmp_path / "shards", "runs")
    train = hotset.Shards(
        bucket.url("runs/train-{000..003}.tar"),
        parts=("jpg",),
        decode=digest,
        cache="25%",
        with_ids=True,
        storage_options={**bucket.options, **faults},
    )
    sampler = hotset.Sampler(train, "iis", seed=1, package_size="128KiB")
    loader = DataLoader(train, batch_size=16, sampler=sampler, num_workers=6, collate_fn=list)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        served: list[int] = []
        for batch in loader:
            for found, label, number in batch:
                assert (found, label) == truth[number][1:]
                served.append(number)
            ids = torch.tensor([number for *_, number in batch])
            sampler.update(ids, (ids % 7).float())
        assert len(set(served)) == len(served)
        counted = train.stats()["epochs"][epoch]
        assert counted["packed"] > len(served) // 3
        assert counted["package_reads"] * 3 < counted["packed"]
        assert (counted["pack_reads"], counted["pack_bytes_written"], counted["packages_lost"]) == (0, 0, 0)
        assert faults or counted["storage_requests"] <= counted["package_reads"] + counted["single"]
    assert train.stats()["packages"]["samples"] == len(truth)
    off = hotset.Sampler(train, "iis", seed=1, package_size="128KiB", packages="off")
    assert len(off) == len(truth)
    assert not train.stats().get("packages")


def test_order_classes_and_labels_in_a_bucket_are_those_of_the_folder(bucket: Bucket, tmp_path: Path) -> None:
    root = tmp_path / "awkward"
    for name in (
        "b/10.png",
        "b/9.png",
        "b/a-b/c.png",
        "b/a/z.png",
        "b/a b.png",
        "B/1.jpg",
        "ä/ü 1.png",
        "b/x.txt",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    bucket.put_tree(root, "some where/awkward")
    here = hotset.ImageFolder(root, loader=bytes)
    there = hotset.ImageFolder(bucket.url("some where/awkward"), loader=bytes, storage_options=bucket.options)
    assert there.classes == here.classes
    assert there.targets == here.targets
    assert [there.key(number) for number in range(len(there))] == [
        here.key(number) for number in range(len(here))
    ]
    assert there.__getitems__(range(len(there))) == here.__getitems__(range(len(here)))
    assert there.samples[0][0].startswith(f"s3://{bucket.name}/some where/awkward/")
    files, listed = (
        hotset.Dataset(root),
        hotset.Dataset(bucket.url("some where/awkward/"), storage_options=bucket.options),
    )
    assert list(listed) == list(files)  # type: ignore[call-overload]


def test_samples_that_turn_short_or_into_another_version_are_told_and_never_served(
    bucket: Bucket, tree: tuple[Path, dict[int, tuple[str, int]]]
) -> None:
    _, truth = tree
    faults = {"fault.seed": "5", "fault.truncate": "0.2", "fault.swap": "0.2", "fault.rate": "0.1"}
    train = hotset.ImageFolder(
        bucket.url("train"),
        loader=digest,
        cache="5%",
        with_ids=True,
        storage_options={**bucket.options, **faults},
    )
    told, served = 0, {}
    for number in range(100):
        while number not in served:
            try:
                found, label, same = train[number]
            except hotset.ChangedError as error:
                told += 1
                assert error.sample == number
                continue
            served[same] = (found, label)
    assert served == {number: truth[number] for number in range(100)}
    assert told > 10


def test_an_object_written_or_deleted_since_is_told_and_a_new_listing_has_it(bucket: Bucket) -> None:
    for name in ("a", "b", "c", "d"):
        bucket.put(f"changing/{name}", name.encode() * 8)
    dataset = hotset.Dataset(bucket.url("changing"), cache=0, storage_options=bucket.options)
    bucket.put("changing/a", b"A" * 8)
    bucket.put("changing/b", b"longer than before")
    bucket.delete("changing/c")
    for number, says in ((0, "was written since"), (1, "`18` bytes long"), (2, "is gone")):
        with pytest.raises(hotset.ChangedError, match=says) as caught:
            dataset[number]
        assert (caught.value.sample, caught.value.key) == (number, "abc"[number])
    assert dataset[3] == b"d" * 8
    # The change has dropped the kept listing.
    again = hotset.Dataset(bucket.url("changing"), storage_options=bucket.options)
    assert list(again) == [b"A" * 8, b"longer than before", b"d" * 8]  # type: ignore[call-overload]


def test_a_kept_listing_is_used_for_as_long_as_the_user_says(bucket: Bucket) -> None:
    bucket.put("growing/a", b"a")
    options = bucket.options
    assert len(hotset.Dataset(bucket.url("growing"), storage_options=options)) == 1
    bucket.put("growing/b", b"b")
    assert len(hotset.Dataset(bucket.url("growing"), storage_options=options)) == 1
    anew = {**options, "listing.max_age": "0s"}
    assert len(hotset.Dataset(bucket.url("growing"), storage_options=anew)) == 2


def test_without_a_server_forked_workers_read_the_bucket_too(
    bucket: Bucket, tree: tuple[Path, dict[int, tuple[str, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, truth = tree
    monkeypatch.setenv("HOTSET", "off")
    train = hotset.ImageFolder(
        bucket.url("train"), loader=digest, with_ids=True, storage_options=bucket.options
    )
    assert train[0][0] == truth[0][0]
    loader = DataLoader(train, batch_size=32, num_workers=2, collate_fn=list, multiprocessing_context="fork")
    served = [sample for batch in loader for sample in batch]
    assert {number: (found, label) for found, label, number in served} == truth


def test_credentials_may_come_from_the_environment_of_a_private_server(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("environment/a", b"a")
    for name, value in bucket.options.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert hotset.Dataset(bucket.url("environment"))[0] == b"a"


def test_a_manifest_on_disk_names_objects_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    for name in ("a", "b"):
        bucket.put(f"named/deep/{name}", name.encode() * 10)
    (tmp_path / "train.csv").write_text(
        f"key,label,offset,length\ndeep/b,1,,\ndeep/a,0,2,3\n{bucket.url('named/deep/a')},0,,10\n"
    )
    train = hotset.Manifest(
        tmp_path / "train.csv", root=bucket.url("named"), cache=0, storage_options=bucket.options
    )
    assert list(train) == [(b"b" * 10, 1), (b"aaa", 0), (b"a" * 10, 0)]  # type: ignore[call-overload]
    bucket.put("named/table.jsonl", b'{"key": "deep/a"}')
    there = hotset.Manifest(bucket.url("named/table.jsonl"), storage_options=bucket.options)
    assert there[0] == b"a" * 10
    # What was looked at is compared by its version, what was not by its length.
    bucket.put("named/deep/b", b"B" * 10)
    bucket.put("named/deep/a", b"short")
    for number, says in ((0, "was written since"), (2, "`5` bytes long")):
        with pytest.raises(hotset.ChangedError, match=says):
            train[number]


def test_a_store_that_stalls_and_comes_back_costs_time_and_nothing_else(bucket: Bucket) -> None:
    for number in range(8):
        bucket.put(f"stalling/{number}", content(str(number), 2_000))
    relay = Relay(bucket.port)
    options = {**bucket.options, "aws_endpoint": f"http://127.0.0.1:{relay.port}", "timeout": "1s"}
    try:
        dataset = hotset.Dataset(bucket.url("stalling"), cache=0, storage_options=options)
        assert dataset[0] == content("0", 2_000)
        relay.stall()
        assert relay.stalled.wait(60)
        with ThreadPoolExecutor(1) as thread:
            reading = thread.submit(dataset.__getitems__, range(8))
            try:
                # Each was asked for, and some again.
                until("some are asked for again", lambda: relay.kept_waiting > 12)
                assert not reading.done()
            finally:
                relay.resume()
            assert reading.result() == [content(str(number), 2_000) for number in range(8)]
    finally:
        relay.stop()
    stats = dataset.stats()["unplanned"]
    assert stats["storage_reads"] == 9
    assert stats["storage_requests"] > 9 + 4


def test_wrong_credentials_buckets_and_options_are_named(bucket: Bucket) -> None:
    good = bucket.options
    with pytest.raises(hotset.InvalidError, match=r"does not let us list.*storage_options"):
        hotset.Dataset(bucket.url("train"), storage_options={**good, "aws_secret_access_key": "wrong"})
    with pytest.raises(hotset.InvalidError, match="no files below `s3://data/nothing`"):
        hotset.Dataset(bucket.url("nothing"), storage_options=good)
    with pytest.raises(hotset.InvalidError, match="there is no `s3://no-such-bucket/train`"):
        hotset.Dataset("s3://no-such-bucket/train", storage_options=good)
    with pytest.raises(hotset.InvalidError, match="unknown name `aws_regoin`"):
        hotset.Dataset(bucket.url("train"), storage_options={**good, "aws_regoin": "x"})
    with pytest.raises(hotset.InvalidError, match=r"`127\.0\.0\.1:9` for `aws_endpoint` is no address"):
        hotset.Dataset(bucket.url("train"), storage_options={**good, "aws_endpoint": "127.0.0.1:9"})
    with pytest.raises(hotset.InvalidError, match="`aws_access_key_id` holds a blank, a line break"):
        hotset.Dataset(bucket.url("train"), storage_options={**good, "aws_access_key_id": "key\n"})
    with pytest.raises(hotset.InvalidError, match="`buc ket` is no name of a bucket"):
        hotset.Dataset("s3://buc ket/train", storage_options=good)


def test_objects_whose_keys_no_path_can_name_are_left_out_and_said_once(
    bucket: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    # SeaweedFS makes `a/b` of `a//b` before it lists it; what it keeps is a key with a control character.
    good, bad = ["x/a.jpg", "x/c.jpg", "y/a.jpg"], ["x/b\x7f.jpg", "x/b\x7fb.jpg", "y/\x7f.jpg"]
    for key in good + bad:
        bucket.put(f"odd/{key}", key.encode())
    dataset = hotset.Dataset(bucket.url("odd"), storage_options=bucket.options)
    assert [bytes(dataset[number]).decode() for number in range(len(dataset))] == good
    said = [line for line in capfd.readouterr().err.splitlines() if "are left out" in line]
    assert len(said) == 1 and "places=3" in said[0] and "odd/x/b" in said[0], said
    images = hotset.ImageFolder(bucket.url("odd"), loader=bytes, storage_options=bucket.options)
    assert [label for _, label in images] == [0, 0, 1]
