"""What a user may get wrong, and what is said about it."""

from __future__ import annotations

import copy
import ctypes
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
from torch.utils.data import DataLoader
from trees import content, equal_files, labelled_files

NOBODY = 65534


def obey_permissions() -> None:
    """Makes this process and its children ask for permissions even if they are root's."""
    if os.geteuid() == 0:
        drop_from_bounding_set, override, read_search = 24, 1, 2
        for capability in (override, read_search):
            assert ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0) == 0


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    for make in (hotset.Dataset, hotset.ImageFolder):
        with pytest.raises(hotset.InvalidError, match="no-such-place"):
            make(tmp_path / "no-such-place")


def test_a_place_without_permission_is_named(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    place.chmod(0)
    script = (
        "import sys, hotset\n"
        "try: hotset.Dataset(sys.argv[1])\n"
        "except hotset.InvalidError as error: print(error)\n"
        "hotset.stop_private()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(place)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=obey_permissions,
    )
    place.chmod(0o700)
    assert "permission" in ran.stdout
    assert str(place) in ran.stdout


@pytest.mark.parametrize("make", [hotset.Dataset, hotset.ImageFolder])
def test_an_empty_folder_is_refused(tmp_path: Path, make: type[hotset.Dataset]) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(hotset.InvalidError, match="empty"):
        make(tmp_path / "empty")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    with pytest.raises(hotset.InvalidError, match="tree"):
        hotset.ImageFolder(place)


def test_a_store_that_is_not_known_is_named() -> None:
    with pytest.raises(hotset.InvalidError, match="gopher"):
        hotset.Dataset("gopher://somewhere/data")


def test_an_unknown_storage_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(hotset.InvalidError, match=r"no\.such"):
        hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), storage_options={"no.such": "1"})


def test_an_id_out_of_range_is_an_index_error(tmp_path: Path) -> None:
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    for index in (3, -4, 1 << 39, (1 << 40) + 1, -(1 << 41), 1 << 64):
        with pytest.raises(IndexError, match="of 3"):
            dataset[index]
    with pytest.raises(IndexError):
        dataset.__getitems__([0, 1, 3])
    with pytest.raises(TypeError):
        dataset["0"]  # type: ignore[index]
    with pytest.raises(TypeError):
        dataset[0.0]  # type: ignore[index]


def test_integers_of_numpy_and_torch_are_ids(tmp_path: Path) -> None:
    import numpy

    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    assert dataset[numpy.int64(1)] == dataset[torch.tensor(1)] == dataset[1]


def test_the_same_id_twice_in_a_batch_is_served_twice(tmp_path: Path) -> None:
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    expected = [content(f"{number:06d}.bin", 10) for number in (1, 2, 1, 1)]
    assert dataset.__getitems__([1, 2, 1, 1]) == expected
    assert dataset.__getitems__([]) == []


def test_a_sample_of_no_bytes_is_a_sample(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    (place / "000" / "000001.bin").write_bytes(b"")
    train = hotset.Dataset(place, with_ids=True)
    assert train[1] == (b"", 1)
    sampler = hotset.Sampler(train)
    assert dict(map(reversed, DataLoader(train, batch_size=None, sampler=sampler)))[1] == b""


def test_a_cache_smaller_than_one_batch_works(tmp_path: Path) -> None:
    truth = labelled_files(tmp_path / "tree", 100)
    for cache in (0, "1000B", "1%"):
        train = hotset.ImageFolder(tmp_path / "tree", loader=len, cache=cache, with_ids=True)
        loader = DataLoader(train, batch_size=64, sampler=hotset.Sampler(train), collate_fn=list)
        served = [sample for batch in loader for sample in batch]
        assert {number: label for _, label, number in served} == {
            number: label for number, (_, label) in truth.items()
        }


@pytest.mark.filterwarnings("error::hotset.HotsetWarning")
def test_a_cache_larger_than_the_dataset_is_the_dataset(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), cache="4096TiB")
    hotset.Sampler(train)
    assert train.stats()["capacity"] == 30
    assert train.stats()["remarks"] == []


def test_a_cache_larger_than_memory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    size = 3 << 30
    for number in range(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // size + 2):
        with (tmp_path / "tree" / f"{number}.bin").open("wb") as file:
            file.truncate(size)
    train = hotset.Dataset(tmp_path / "tree", cache="100%")
    with pytest.raises(hotset.InvalidError, match="cache"):
        hotset.Sampler(train)


@pytest.mark.parametrize(
    "cache", ["", "lots", "20 elephants", "-1", "120%", "0.2", "20", 0.2, 20, 4096, None, True]
)
def test_a_cache_that_is_no_amount_is_refused_by_name(tmp_path: Path, cache: object) -> None:
    with pytest.raises(hotset.InvalidError, match=r"cache=.*20%.*8GiB"):
        hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), cache=cache)  # type: ignore[arg-type]


def test_an_unknown_strategy_or_policy_lists_the_known_ones(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    with pytest.raises(hotset.InvalidError, match=r"`unifrom`; known: .*`uniform`"):
        hotset.Sampler(train, "unifrom")
    with pytest.raises(hotset.InvalidError, match=r"`lrw`; known: .*`lru`.*`minio`"):
        hotset.Sampler(train, policy="lrw")


def test_other_wrong_arguments_are_named(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"wait": 0.0}, "wait="),
        ({"job": ""}, "job="),
        ({"extensions": ".txt"}, "extensions="),
    ]
    for arguments, says in wrong:
        with pytest.raises(hotset.InvalidError, match=says):
            hotset.Dataset(place, **arguments)
    train = hotset.Dataset(place)
    wrong = [({"seed": -1}, "seed="), ({"rank": 2, "num_replicas": 2}, "rank `2` of `2`")]
    for arguments, says in wrong:
        with pytest.raises(hotset.InvalidError, match=says):
            hotset.Sampler(train, **arguments)
    with pytest.raises(hotset.InvalidError, match="`list`"):
        hotset.Sampler([1, 2, 3])  # type: ignore[arg-type]


def test_a_closed_dataset_says_so(tmp_path: Path) -> None:
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    dataset.close()
    dataset.close()
    with pytest.raises(hotset.InvalidError, match="closed"):
        dataset[0]


def test_a_server_that_does_not_answer_is_an_error_when_it_is_named(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    monkeypatch.setenv("HOTSET_SERVER", str(runtime / "nobody.sock"))
    with pytest.raises(hotset.UnavailableError, match=r"nobody\.sock`, which HOTSET_SERVER names"):
        hotset.Dataset(place, wait=0.5)


def test_a_runtime_directory_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    file = tmp_path / "file"
    file.touch()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "tree", target_is_directory=True)
    directories = [(open_to_all, "chmod 700"), (file, "cannot be made"), (link, "not a directory")]
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir(mode=0o700)
        os.chown(foreign, NOBODY, NOBODY)
        directories.append((foreign, "another user"))
    for directory, says in directories:
        monkeypatch.setenv("HOTSET_RUNTIME_DIR", str(directory))
        with pytest.raises(hotset.InvalidError, match=f"{directory}` .*{says}.*HOTSET_RUNTIME_DIR"):
            hotset.Dataset(place)


def test_a_socket_with_too_long_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTSET_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    with pytest.raises(hotset.InvalidError, match="HOTSET_RUNTIME_DIR"):
        hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))


def test_storage_options_are_numbers_and_truth_values_too_and_others_are_named(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    options = {"throttle.requests": 4, "fault.rate": 0.0, "fault.seed": 7}
    assert hotset.Dataset(place, storage_options=options)[1] == content("000001.bin", 10)
    secret: dict[str, Any] = {"aws_secret_access_key": b"hunter2"}
    with pytest.raises(hotset.InvalidError, match="`3` in `storage_options` is no name of an option"):
        hotset.Dataset(place, storage_options={3: "x"})  # type: ignore[dict-item]
    with pytest.raises(hotset.InvalidError, match="`storage_options` is a `list`: a dict"):
        hotset.Dataset(place, storage_options=["a=b"])  # type: ignore[arg-type]
    with pytest.raises(hotset.InvalidError, match="`aws_secret_access_key` in `storage_options`") as caught:
        hotset.Dataset("s3://bucket", storage_options=secret)
    assert "hunter2" not in str(caught.value)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    makes: list[Any] = [hotset.Dataset, hotset.Shards, hotset.Manifest]
    for make in makes:
        with pytest.raises(hotset.InvalidError, match="`http_password`") as caught:
            make("http://me:hunter2@127.0.0.1:9/train.csv")
        assert "hunter2" not in str(caught.value)


def test_wrong_settings_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    for name, value in (("HOTSET", "maybe"), ("RANK", "first")):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            with pytest.raises(hotset.InvalidError, match=f"{name}=`{value}`"):
                hotset.Dataset(place)


def test_errors_can_be_copied_pickled_and_rebuilt_from_their_message() -> None:
    for kind in (
        hotset.Error,
        hotset.InvalidError,
        hotset.ChangedError,
        hotset.UnavailableError,
        hotset.LostError,
        hotset.InternalError,
    ):
        error = kind("what happened", 7, "a/b.png")
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(again), str(again), again.sample, again.key) == (kind, "what happened", 7, "a/b.png")
        assert (str(kind("only words")), kind("only words").sample) == ("only words", None)
        assert kind.__doc__


def test_an_error_of_a_worker_keeps_its_kind_and_words(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 6, 10)
    dataset = hotset.Dataset(place)
    (place / "000" / "000004.bin").unlink()
    with pytest.raises(hotset.ChangedError, match=r"000/000004\.bin"):
        list(DataLoader(dataset, batch_size=2, num_workers=1))


def test_a_socket_that_nobody_listens_on_is_passed_over(tmp_path: Path, runtime: Path) -> None:
    from hotset._client.job import short_hash

    stale = [runtime / "server.sock", runtime / f"{short_hash('mine')}.sock", runtime / f"{'0' * 16}.sock"]
    for path in stale:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), job="mine")
    assert dataset[0] == content("000000.bin", 10)
    # What other private servers left is cleared away; the user's own is not ours to remove.
    assert not stale[2].exists()
    stale[0].unlink()
