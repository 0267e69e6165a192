"""What a user reads who writes a name, a size or an address that cannot be meant."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotset
import pytest
from processes import Server
from trees import equal_files, tar_shards


def hotset_says(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it writes to standard error."""
    done = subprocess.run([sys.executable, "-m", "hotset", *arguments], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_sizes_that_cannot_be_meant_are_refused_by_every_command() -> None:
    for command in (("serve", "--memory"), ("simulate", "--synthetic", "100", "--cache")):
        for size in ("0.2", "20"):
            code, text = hotset_says(*command, size)
            assert code != 0 and "20%" in text and "8GiB" in text, text
            assert command[-1].strip("-") in text, text


@pytest.mark.parametrize("size", ["20%", "0.5", 20, "lots"])
def test_a_package_size_that_cannot_be_meant_is_refused_by_name(tmp_path: Path, size: Any) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    with pytest.raises(hotset.InvalidError, match=r"`package_size=.*MiB|`package_size=.*8GiB"):
        hotset.Sampler(train, "iis", packages=tmp_path / "packages", package_size=size)


def test_a_list_of_places_is_refused_with_what_to_write(tmp_path: Path) -> None:
    for kind in (hotset.Dataset, hotset.ImageFolder, hotset.Shards):
        with pytest.raises(hotset.InvalidError, match=r"`list`.*\{000\.\.099\}\.tar.*hotset\.Manifest"):
            kind([str(tmp_path / "a.tar"), str(tmp_path / "b.tar")])  # type: ignore[arg-type]
    for table in ([str(tmp_path / "a.tar")], {"key": ["a"], "label": [1]}):
        with pytest.raises(hotset.InvalidError, match=r"the table is a `(list|dict)`.*to_csv"):
            hotset.Manifest(table)  # type: ignore[arg-type]


def test_what_a_thing_is_is_said_with_its_article(tmp_path: Path) -> None:
    with pytest.raises(hotset.InvalidError, match=r"is an `int`, and one name"):
        hotset.Dataset(3)  # type: ignore[arg-type]
    with pytest.raises(hotset.InvalidError, match=r"is an `int`: a dict"):
        hotset.Dataset(tmp_path, storage_options=3)  # type: ignore[arg-type]


def test_a_listing_that_takes_too_long_is_named_with_the_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {**NOWHERE, "aws_endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        said = r"the listing of `s3://bucket/train` within [0-9.]+ s: wait longer with `wait=`"
        with pytest.raises(hotset.UnavailableError, match=said):
            hotset.Dataset("s3://bucket/train", storage_options=options, wait=2)


@pytest.mark.parametrize("endpoint", ["http://me:hunter2@host:9", "me:hunter2@host:9", "http://hunter2@h?"])
def test_a_password_in_an_address_is_never_shown(endpoint: str) -> None:
    with pytest.raises(hotset.InvalidError) as said:
        hotset.Dataset("s3://bucket/train", storage_options={**NOWHERE, "aws_endpoint": endpoint})
    assert "`aws_endpoint`" in str(said.value) and "hunter2" not in str(said.value)


def test_a_recording_that_is_not_there_is_said(tmp_path: Path) -> None:
    code, text = hotset_says("record", str(tmp_path / "nosuch"))
    assert code != 0 and f"there is no recording `{tmp_path}/nosuch`" in text and "HOTSET_RECORD" in text


@pytest.mark.parametrize("name", ["labels", "class", "target", "y", "species"])
def test_a_column_that_may_hold_labels_is_asked_about(tmp_path: Path, name: str) -> None:
    equal_files(tmp_path, 2, 10)
    table = tmp_path / "train.csv"
    table.write_text(f"key,{name}\n000/000000.bin,1\n000/000001.bin,0\n")
    with pytest.raises(
        hotset.InvalidError, match=f'but `{name}`: say which.*`label="{name}"`.*`label="none"`'
    ):
        hotset.Manifest(table)
    assert [label for _, label in hotset.Manifest(table, label=name)] == [1, 0]
    assert len(hotset.Manifest(table, label="none")[0]) == 10


def test_compressed_and_joined_shards_are_refused_with_what_to_write(tmp_path: Path) -> None:
    tar_shards(tmp_path / "shards", shards=2, samples=4)
    shards = sorted((tmp_path / "shards").glob("*.tar"))
    (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(hotset.InvalidError, match=r"is compressed \(`\.tar\.gz`\).*unpack it"):
        hotset.Shards(tmp_path / "x.tar.gz")
    with pytest.raises(hotset.InvalidError, match=r"joins shards by `::`"):
        hotset.Shards("::".join(map(str, shards)))
    with pytest.raises(hotset.InvalidError, match=r"is not a directory; tar files .* `hotset\.Shards`"):
        hotset.ImageFolder(shards[0])


NOWHERE = {
    "aws_endpoint": "http://127.0.0.1:1",
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
}


def test_a_wrong_port_of_packages_is_said_and_training_goes_on_without(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 300, 1000), cache="50%")
    with pytest.warns(hotset.HotsetWarning, match=r"`packages` are off: .*`http://127\.0\.0\.1:1` does not"):
        hotset.Sampler(
            train, "iis", packages="s3://bucket/packages", package_options=NOWHERE, package_size="8KiB"
        )
    assert train.stats()["remarks"][0].startswith("`packages` are off: ")
    assert train[0]


@pytest.mark.parametrize("kind", ["shards", "files", "images", "manifest"])
def test_a_wrong_port_is_an_error_that_names_the_host(kind: str) -> None:
    options = NOWHERE
    opened: dict[str, Callable[[], object]] = {
        "shards": lambda: hotset.Shards("s3://bucket/train-{00..03}.tar", storage_options=options),
        "files": lambda: hotset.Dataset("s3://bucket/train", storage_options=options),
        "images": lambda: hotset.ImageFolder("s3://bucket/train", storage_options=options),
        "manifest": lambda: hotset.Manifest("s3://bucket/train.csv", storage_options=options),
    }
    with pytest.raises(hotset.UnavailableError, match=r"`http://127\.0\.0\.1:1` does not answer"):
        opened[kind]()


def test_stats_of_a_job_that_is_not_there_name_those_that_are(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSET_SERVER", str(serve().socket))
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), job="mine")
    assert dataset[0]
    code, text = hotset_says("stats", "--job", "nosuch")
    assert code == 1 and "there is no job `nosuch` (`--job`): the jobs are `mine" in text, text
    assert hotset_says("stats", "--job", dataset.stats()["job"]) == (0, "")
