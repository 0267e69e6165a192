"""`hotset doctor`: its verdict behind throttles with margins of three, and on datasets that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endless import Endless
from PIL import Image
from trees import content, equal_files
from users import ALICE, need_root

DOCTOR = [sys.executable, "-m", "hotset", "doctor"]


def ran(*arguments: str | Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, which must end with `code`."""
    done = subprocess.run(
        [*DOCTOR, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == code, done.stderr
    return done


def judged(*arguments: str | Path) -> dict[str, Any]:
    """What it says as JSON."""
    return dict(json.loads(ran(*arguments, "--json").stdout))


def options(**values: str) -> list[str]:
    """Options of a throttled store."""
    return [
        part for name, value in values.items() for part in ("--storage-option", f"throttle.{name}={value}")
    ]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More files than three requests at a time of 60 ms read in a minute."""
    return equal_files(tmp_path_factory.mktemp("small"), 3_500, 1_000)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are more together than what is called tiny."""
    return equal_files(tmp_path_factory.mktemp("large"), 200, 400_000)


REQUESTS = options(latency="60ms", requests="3")
"""Fifty requests a second."""


def test_storage_bound_by_requests_is_named_with_what_removes_it(small: Path) -> None:
    # Training takes 640 a second, twelve times as many as storage gives.
    found = judged(small, *REQUESTS, "--seconds", "8", "--batch", "32", "--step", "50ms", "--workers", "4")
    assert found["bottleneck"] == "requests", found["rates"]
    assert found["verdict"].startswith("Storage costs you 9")
    assert "from the second epoch" in found["verdict"]
    assert 40 < found["measured"]["storage"]["requests"] < 60
    best = found["candidates"][found["best"]]
    assert best["lossless"] and best["pair"] == "uniform+minio"
    assert f'hotset.Dataset("{small}"' in found["paste"] and f'cache="{best["cache"]}"' in found["paste"]
    assert all(bool(one["costs"]) != one["lossless"] for one in found["candidates"])


def test_storage_bound_by_bytes_is_told_from_that(large: Path) -> None:
    slow = options(latency="2ms", bandwidth="10MB/s")
    found = judged(large, *slow, "--seconds", "8", "--batch", "16", "--step", "50ms", "--workers", "8")
    assert found["bottleneck"] == "bytes", (found["measured"]["storage"], found["rates"])
    assert 7e6 < found["measured"]["storage"]["bandwidth"] < 13e6


def test_a_loader_that_asks_for_little_is_told_to_ask_for_more(large: Path) -> None:
    slow = options(latency="60ms")
    found = judged(large, *slow, "--seconds", "8", "--batch", "16", "--step", "50ms", "--workers", "2")
    assert found["bottleneck"] == "waiting", found["rates"]
    ahead = next(one for one in found["candidates"] if one["name"] == "reading ahead alone")
    assert ahead["saves"] > 0.5


def test_training_that_is_slower_than_slow_storage_is_the_bottleneck(small: Path) -> None:
    # Storage gives fifty a second, training takes sixteen.
    found = judged(small, *REQUESTS, "--seconds", "8", "--batch", "32", "--step", "2s", "--workers", "4")
    assert found["bottleneck"] == "computing", found["rates"]
    assert "Hotset will not help" in found["verdict"] and found["paste"] is None


def test_a_fast_disk_is_no_bottleneck(small: Path) -> None:
    found = judged(small, "--seconds", "6", "--batch", "32", "--step", "100ms")
    assert found["bottleneck"] == "computing", found["rates"]
    assert "Storage is not your bottleneck" in found["verdict"]


def test_decoding_is_measured_and_named(tmp_path: Path) -> None:
    for number in range(24):
        folder = tmp_path / f"class-{number % 3}"
        folder.mkdir(exist_ok=True)
        image = Image.frombytes("RGB", (700, 700), content(str(number), 3 * 700 * 700))
        image.save(folder / f"{number}.jpg", quality=95)
    found = judged(tmp_path, "--seconds", "6", "--batch", "8", "--step", "2ms", "--workers", "1")
    assert found["bottleneck"] == "preparing", found["rates"]
    assert "ecoding is" in found["verdict"]
    assert found["survey"]["decoding"]["by"].endswith("JPEG like 700 x 700")
    assert found["measured"]["opening"].startswith("hotset.ImageFolder(")


def test_text_is_within_forty_columns_without_colour_and_says_the_verdict_first(large: Path) -> None:
    slow = options(latency="2ms", bandwidth="10MB/s")
    done = ran(large, *slow, "--seconds", "6", "--step", "50ms", "--batch", "16", COLUMNS="40")
    assert done.stdout.startswith("Storage costs you")
    assert "\x1b" not in done.stdout + done.stderr
    shown, paste = done.stdout.split("To paste")
    words = [line for line in shown.splitlines() if " " in line.strip()]
    assert max(map(len, words)) <= 40
    assert "hotset.Sampler(train, seed=0)" in paste
    assert "for up to 6 s, reading up to 256 MiB of it (--seconds, --bytes)" in done.stderr


def test_a_page_needs_nothing_else(small: Path, tmp_path: Path) -> None:
    page = tmp_path / "doctor.html"
    ran(small, "--seconds", "3", "--html", page)
    text = page.read_text()
    assert text.startswith("<!doctype html>") and "Samples a second" in text
    assert "<script" not in text and 'src="' not in text and "https://" not in text
    refused = ran(small, "--seconds", "3", "--html", tmp_path / "no" / "where.html", code=1)
    assert "give `html` another path" in refused.stderr


def test_no_more_is_read_than_is_allowed(large: Path) -> None:
    found = judged(large, "--seconds", "6", "--bytes", "2MB", *options(latency="5ms"))
    assert found["survey"]["read_bytes"] < 2_000_000 + 8 * 400_000


# --- what is not as it should be ---------------------------------------------------------------------------


def test_an_empty_dataset_and_one_that_is_not_there_are_errors_that_name_them(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert f"no files below `{tmp_path}/empty`" in ran(tmp_path / "empty", code=1).stderr
    assert f"there is no directory `{tmp_path}/none`" in ran(tmp_path / "none", code=1).stderr
    hollow = equal_files(tmp_path / "hollow", 3, 0)
    assert "there is nothing to read" in ran(hollow, code=1).stderr


def test_a_dataset_that_may_not_be_read_is_an_error_that_says_so(runtime: Path) -> None:
    need_root()
    runtime.parent.chmod(0o755)
    place = equal_files(runtime.parent / "closed", 5, 100)
    kept = runtime.parent / "kept"
    kept.mkdir()
    os.chown(kept, ALICE, ALICE)
    for file in place.rglob("*.bin"):
        file.chmod(0o600)
    become = f"import os, sys, hotset.__main__, hotset._core; os.setgid({ALICE}); os.setuid({ALICE})"
    program = f"{become}; sys.exit(hotset._core.main(['hotset', 'doctor', {str(place)!r}, '--seconds', '3']))"
    environment = {**os.environ, "HOME": "/", "HOTSET_CACHE_DIR": str(kept)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "no permission to read it" in done.stderr, done.stderr


@pytest.fixture
def endless() -> Iterator[list[Endless]]:
    """Servers that are stopped after the test."""
    made: list[Endless] = []
    yield made
    for server in made:
        server.stop()


def test_ten_million_keys_are_not_listed_to_their_end(endless: list[Endless]) -> None:
    endless.append(Endless(10_000_000, 2_000))
    began = time.monotonic()
    found = judged("s3://bucket/train", *endless[0].arguments, "--seconds", "9")
    assert time.monotonic() - began < 30
    assert not found["measured"]["complete"] and 1_000 <= found["measured"]["samples"] < 10_000_000
    assert any("The listing did not end" in reason for reason in found["reasons"])
    assert found["measured"]["storage"]["latency"] > 0.005


def test_a_store_that_takes_two_seconds_for_an_answer_is_measured(endless: list[Endless]) -> None:
    endless.append(Endless(500, 2_000, latency=2.0))
    began = time.monotonic()
    found = judged("s3://bucket/train", *endless[0].arguments, "--seconds", "16", "--workers", "2")
    assert time.monotonic() - began < 40
    assert 1.9 < found["survey"]["latency"][0] < 2.6
    assert found["bottleneck"] in ("waiting", "tiny")


def test_a_store_that_limits_requests_is_asked_for_fewer_and_that_is_said(endless: list[Endless]) -> None:
    endless.append(Endless(2_000, 2_000, latency=0.03, at_a_time=3))
    found = judged("s3://bucket/train", *endless[0].arguments, "--seconds", "8")
    assert found["survey"]["refused"] > 0 and endless[0].refused > 0
    assert found["measured"]["storage"]["at_a_time"] <= 4
    assert any("The store limits its requests" in reason for reason in found["reasons"])


def test_wrong_arguments_are_refused_by_name(small: Path) -> None:
    for name, value in [("--seconds", "0"), ("--bytes", "20%"), ("--memory", "20%"), ("--batch", "0")]:
        refused = ran(small, name, value, code=1)
        assert f"`{name.removeprefix('--')}`" in refused.stderr, refused.stderr
    assert "no length of time" in ran(small, "--step", "5", code=2).stderr
