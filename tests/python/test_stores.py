"""Every kind of store makes real requests, and serves what was put into it: S3, Google, Azure, web servers.

S3 and Azure are real servers (SeaweedFS, Azurite). No package has a server of Google's that can be listed as
its clients do; that one and the web server are the tests' own.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import hotset
import pytest
from azurite import MISSING, PROGRAM, Azurite
from bucket import Bucket
from processes import until
from torch.utils.data import DataLoader
from trees import content, digest, labelled_files, tar_shards
from web import Answer, Google, Web

AWKWARD = (
    "b/10.png",
    "b/9.png",
    "b/a-b/c.png",
    "b/a/z.png",
    "b/a b.png",
    "B/1.jpg",
    "ä/ü 1+%.png",
    "b/x.txt",
)


class Store(Protocol):
    """What all of these servers can do."""

    @property
    def options(self) -> dict[str, str]: ...
    def url(self, key: str) -> str: ...
    def put(self, key: str, data: bytes) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture(scope="module", params=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each kind of store that can be listed."""
    if request.param == "az" and not PROGRAM.exists():
        pytest.skip(MISSING)
    made: Store = {"s3": Bucket, "gs": Google, "az": Azurite}[request.param]()
    yield made
    made.stop()


@pytest.fixture
def web() -> Iterator[Web]:
    """A web server."""
    made = Web()
    yield made
    made.stop()


def put_tree(store: Store, root: Path, prefix: str) -> None:
    """Writes every file below `root`, by its path there."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            store.put(f"{prefix}/{path.relative_to(root)}", path.read_bytes())


def test_an_image_folder_is_served_as_it_was_put(store: Store, tmp_path: Path) -> None:
    truth = labelled_files(tmp_path / "tree", 60, largest=4_000)
    put_tree(store, tmp_path / "tree", "train")
    train = hotset.ImageFolder(
        store.url("train"), loader=digest, cache="20%", with_ids=True, storage_options=store.options
    )
    sampler = hotset.Sampler(train, policy="lru", seed=1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        loader = DataLoader(train, batch_size=8, sampler=sampler, num_workers=2, collate_fn=list)
        served = [sample for batch in loader for sample in batch]
        assert len(served) == len(truth)
        assert {number: (found, label) for found, label, number in served} == truth


def test_order_classes_and_labels_are_those_of_the_folder(store: Store, tmp_path: Path) -> None:
    for name in AWKWARD:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    put_tree(store, tmp_path, "some where/awkward")
    here = hotset.ImageFolder(tmp_path, loader=bytes)
    there = hotset.ImageFolder(store.url("some where/awkward"), loader=bytes, storage_options=store.options)
    assert (there.classes, there.targets) == (here.classes, here.targets)
    keys = [[one.key(number) for number in range(len(one))] for one in (here, there)]
    assert keys[0] == keys[1]
    assert there.__getitems__(range(len(there))) == here.__getitems__(range(len(here)))
    files = hotset.Dataset(tmp_path)
    listed = hotset.Dataset(store.url("some where/awkward/"), storage_options=store.options)
    assert list(listed) == list(files)  # type: ignore[call-overload]


def test_tar_shards_and_a_manifest_are_read_by_ranges(store: Store, tmp_path: Path) -> None:
    truth = tar_shards(tmp_path / "shards", shards=2, samples=10)
    put_tree(store, tmp_path / "shards", "shards")
    for pattern in ("shards", "shards/train-{000..001}.tar"):
        train = hotset.Shards(store.url(pattern), parts=("json", "jpg"), storage_options=store.options)
        found = [(digest(note), digest(image), label) for (note, image), label in train]  # type: ignore[call-overload]
        assert dict(enumerate(found)) == truth
    store.put("tables/pack", content("pack", 60))
    store.put("tables/train.csv", b"key,label,offset,length\npack,1,10,20\npack,0,,\npack,7,50,10\n")
    table = hotset.Manifest(store.url("tables/train.csv"), storage_options=store.options)
    pack = content("pack", 60)
    assert list(table) == [(pack[10:30], 1), (pack, 0), (pack[50:], 7)]  # type: ignore[call-overload]


def test_what_changed_since_it_was_listed_is_told(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.put(f"changing/{name}", name.encode() * 8)
    dataset = hotset.Dataset(store.url("changing"), cache=0, storage_options=store.options)
    store.put("changing/a", b"A" * 8)
    store.put("changing/b", b"longer than before")
    for number, says in ((0, "was written since"), (1, "`18` bytes long")):
        with pytest.raises(hotset.ChangedError, match=says) as caught:
            dataset[number]
        assert (caught.value.sample, caught.value.key) == (number, "ab"[number])
    assert dataset[2] == b"c" * 8


def test_wrong_credentials_and_missing_places_are_named(store: Store) -> None:
    store.put("there/a", b"a")
    kind = store.url("").split("://")[0]
    wrong = {
        "s3": {"aws_secret_access_key": "wrong"},
        "gs": {"google_bearer_token": "wrong"},
        "az": {"azure_storage_account_key": "d3Jvbmc="},
    }[kind]
    with pytest.raises(hotset.InvalidError, match=r"does not let us list.*storage_options"):
        hotset.Dataset(store.url("there"), storage_options={**store.options, **wrong})
    with pytest.raises(hotset.InvalidError, match=f"no files below `{kind}://data/nothing`"):
        hotset.Dataset(store.url("nothing"), storage_options=store.options)
    with pytest.raises(hotset.InvalidError, match=f"there is no `{kind}://no-such-place/train`"):
        hotset.Dataset(f"{kind}://no-such-place/train", storage_options=store.options)


class Slow(Google):
    """With pages of seven keys, and answers that take a while."""

    def answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        """What to say to a request, later."""
        time.sleep(0.05)
        return super().answer(method, path, headers)


@pytest.mark.parametrize("kind", ["Dataset", "ImageFolder", "Shards", "Manifest"])
def test_the_opening_of_a_dataset_ends_when_the_client_gives_up(kind: str) -> None:
    slow = Slow()
    for number in range(10_000):
        name = f"{number:06d}.tar" if kind == "Shards" else f"{number // 2_000}/{number:06d}.png"
        slow.put(f"train/{name}", b"x")
    keys = sorted(key.removeprefix("data/train/") for key in slow.objects)
    slow.put("train/table.csv", "\n".join(["key", *keys]).encode())
    named = {"Shards": "train/{000000..009999}.tar", "Manifest": "train/table.csv"}.get(kind, "train")
    try:
        with pytest.raises(hotset.UnavailableError, match="within"):
            getattr(hotset, kind)(slow.url(named), storage_options=slow.options, wait=1)

        def quiet() -> bool:
            before = slow.requests.total()
            time.sleep(1)
            return slow.requests.total() == before

        # To its end it would take twice as long at least.
        until("no more requests come", quiet, 6.0)
    finally:
        slow.stop()


def test_google_pages_are_followed_to_their_end() -> None:
    google = Google()
    try:
        for number in range(30):
            google.put(f"flat/{number:02d}", bytes([number]))
        dataset = hotset.Dataset(google.url("flat"), storage_options=google.options)
        assert [sample[0] for sample in dataset] == list(range(30))  # type: ignore[call-overload]
        assert google.requests["list"] == 5
        assert google.requests["GET"] == 30
    finally:
        google.stop()


def rows(*table: tuple[object, ...]) -> bytes:
    """A table as CSV."""
    text = io.StringIO()
    csv.writer(text).writerows(table)
    return text.getvalue().encode()


def test_a_manifest_over_http_is_read_by_ranges_and_looks_only_where_it_must(web: Web) -> None:
    pack = content("pack", 1_000)
    web.put("data/pack", pack)
    web.put("data/some where/ä.bin", b"whole")
    parts = [("pack", number % 3, 10 * number, 10) for number in range(100)]
    web.put("data/train.csv", rows(("key", "label", "offset", "length"), *parts))
    train = hotset.Manifest(web.url("data/train.csv"), cache=0, with_ids=True)
    loader = DataLoader(train, batch_size=10, num_workers=2, collate_fn=list)
    served = [sample for batch in loader for sample in batch]
    assert served == [(pack[10 * at : 10 * at + 10], at % 3, at) for at in range(100)]
    # One look at the table, one read of it, and at most one of each batch, whose parts lie side by side.
    assert web.requests["HEAD"] == 1
    assert web.requests["GET"] <= 1 + 10
    web.put("data/bare.csv", rows(("key",), ("pack",), ("some where/ä.bin",)))
    assert list(hotset.Manifest(web.url("data/bare.csv"))) == [pack, b"whole"]  # type: ignore[call-overload]
    assert web.requests["HEAD"] == 4
    assert web.requests["GET"] <= 1 + 10 + 3


def test_shards_over_http_are_named_by_a_pattern(web: Web, tmp_path: Path) -> None:
    truth = tar_shards(tmp_path / "shards", shards=2, samples=10)
    for path in (tmp_path / "shards").iterdir():
        web.put(f"shards/{path.name}", path.read_bytes())
    train = hotset.Shards(web.url("shards/") + "train-{000..001}.tar", parts=("json", "jpg"))
    found = [(digest(note), digest(image), label) for (note, image), label in train]  # type: ignore[call-overload]
    assert dict(enumerate(found)) == truth
    with pytest.raises(hotset.InvalidError, match=r"no shard `train-002\.tar`"):
        hotset.Shards(web.url("shards/") + "train-{000..002}.tar")


@pytest.mark.parametrize("tags", [True, False])
def test_a_file_of_a_web_server_that_was_written_since_is_told_by_its_tag_or_its_time(tags: bool) -> None:
    web = Web(tags=tags)
    try:
        web.put("a", b"a" * 8)
        web.put("train.csv", b"key\na\n")
        train = hotset.Manifest(web.url("train.csv"), cache=0)
        assert train[0] == b"a" * 8
        web.put("a", b"A" * 8, later=2)
        with pytest.raises(hotset.ChangedError, match="was written since"):
            train[0]
    finally:
        web.stop()


def test_a_web_server_that_cannot_list_or_has_no_ranges_is_told_to_be_so(web: Web) -> None:
    with pytest.raises(hotset.InvalidError, match=r"cannot be listed.*hotset\.Manifest"):
        hotset.Dataset(web.url("data"))
    whole = Web(ranges=False)
    try:
        whole.put("pack", b"0123456789")
        whole.put("train.csv", b"key,offset,length\npack,2,3\n")
        with pytest.raises(hotset.InvalidError, match=r"sample 0 \(`pack`\).*Range"):
            hotset.Manifest(whole.url("train.csv"))[0]
    finally:
        whole.stop()


def test_https_takes_a_known_certificate_only(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("`openssl` is missing, which makes the certificate")
    certificate, public = tmp_path / "certificate.pem", tmp_path / "public.pem"
    usual = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
    alternative = ("-addext", "subjectAltName=IP:127.0.0.1")
    command = [openssl, "req", *usual, *alternative, "-keyout", certificate, "-out", public]
    subprocess.run(command, check=True, capture_output=True)
    with certificate.open("ab") as both:
        both.write(public.read_bytes())
    web = Web(certificate=certificate)
    try:
        web.put("a", b"over TLS")
        web.put("train.csv", b"key\na\n")
        trusting = {"allow_invalid_certificates": "true"}
        assert hotset.Manifest(web.url("train.csv"), storage_options=trusting)[0] == b"over TLS"
        before = web.requests.total()
        with pytest.raises(hotset.InvalidError, match="certificate"):
            hotset.Manifest(web.url("train.csv"))
        assert web.requests.total() == before
    finally:
        web.stop()
