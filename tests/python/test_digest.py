"""`hotset digest`: every sample hashed once, by whatever way its place is read."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotset
import pytest
from processes import Server
from trees import equal_files


def digest(*arguments: str, code: int = 0) -> dict[str, Any]:
    """What `hotset digest --json` says."""
    ran = subprocess.run(
        [sys.executable, "-m", "hotset", "digest", "--json", *arguments], capture_output=True, text=True
    )
    assert ran.returncode == code, ran.stderr
    return dict(json.loads(ran.stdout))


def test_a_dataset_is_hashed_once_and_what_is_new_afterwards(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 30, 100)
    first = digest(str(place))
    assert (first["samples"], first["hashed"], first["known"], first["bytes"]) == (30, 30, 0, 3000)
    kept = Path(first["file"])
    assert kept.stat().st_mode & 0o777 == 0o600
    (place / "000" / "000003.bin").write_bytes(b"written anew" * 10)
    second = digest(str(place))
    assert (second["hashed"], second["known"]) == (1, 29)
    assert second["file"] == first["file"]
    text = subprocess.run(
        [sys.executable, "-m", "hotset", "digest", str(place)], capture_output=True, text=True, check=True
    ).stdout
    assert f"{place}: 0 samples hashed (0 B), 30 known before; kept in {kept}" in text


def test_shards_and_manifests_are_hashed_too(tmp_path: Path) -> None:
    files = equal_files(tmp_path / "tree", 20, 100)
    shard = tmp_path / "train-0.tar"
    with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(files.rglob("*.bin")):
            tar.add(file, file.name)
    assert digest(str(shard))["hashed"] == 20
    table = tmp_path / "table.csv"
    names = [str(file.relative_to(files)) for file in sorted(files.rglob("*.bin"))]
    table.write_text("\n".join(["key", *names]) + "\n")
    assert digest(str(table), "--root", str(files))["hashed"] == 20


def test_a_wrong_place_is_an_error_that_names_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "hotset", "digest", str(tmp_path / "nowhere")], capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "nowhere" in ran.stderr


def test_two_copies_are_in_memory_once_and_the_second_is_not_read(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [equal_files(tmp_path / name, 40, 3000) for name in ("one", "two")]
    # Written since it was hashed: it has no hash, and is read where it lies.
    changed = places[1] / "000" / "000007.bin"
    for place in places:
        assert digest(str(place))["hashed"] == 40
    changed.write_bytes(b"written anew".ljust(3000))
    server = serve()
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    datasets = [hotset.Dataset(str(place), cache="100%") for place in places]
    for dataset, place in zip(datasets, places, strict=True):
        files = sorted(place.rglob("*.bin"))
        assert [dataset[number] for number in range(40)] == [file.read_bytes() for file in files]
    first, second = (dataset.stats()["total"] for dataset in datasets)
    assert (first["storage_reads"], first["joined"]) == (40, 0)
    assert (second["storage_reads"], second["joined"], second["storage_bytes"]) == (1, 39, 3000)
    told = subprocess.run(
        [sys.executable, "-m", "hotset", "stats", "--json"], capture_output=True, text=True, check=True
    ).stdout
    memory = json.loads(told)[0]["server"]
    room = -(-3000 // 16) * 16
    assert (memory["occupied"], memory["spared"]) == (41 * room, 39 * room)
    # What the first lets go of stays for the second.
    datasets[0].close()
    assert [datasets[1][number] for number in range(40)] == [
        file.read_bytes() for file in sorted(places[1].rglob("*.bin"))
    ]
    assert datasets[1].stats()["total"]["storage_reads"] == 1
