"""The training benchmark at the size of a test: it trains, counts, skips what is there, and shows."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from trees import content

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images of five classes to train with, ten to test with."""
    place = tmp_path_factory.mktemp("images")
    for split, count in (("train", 8), ("test", 2)):
        for label in range(5):
            folder = place / split / f"class-{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                name = f"{split}-{label}-{number}"
                Image.frombytes("RGB", (32, 32), content(name, 3072)).save(folder / f"{number:03d}.jpg")
    return place


def benchmark(name: str, *arguments: str | Path) -> str:
    """Runs a program of the benchmark; what it wrote to standard output."""
    command = [sys.executable, "-m", f"benchmarks.train.{name}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_sweep_trains_what_is_not_there_and_becomes_tables(images: Path, tmp_path: Path) -> None:
    out, size = tmp_path / "results.jsonl", ("--model", "shufflenet", "--batch", "8", "--epochs", "2")
    wanted = ("accuracy", "--data", images, "--out", out, "--only", "uniform", "--seeds", "2", *size)
    assert benchmark("sweep", *wanted, "--list").splitlines() == [
        f"shufflenet uniform+lru seed {seed}" for seed in range(2)
    ]
    benchmark("sweep", *wanted, "--at-once", "2")
    assert benchmark("sweep", *wanted, "--list") == ""

    lines: list[dict[str, Any]] = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["run"]["seed"] for line in lines) == [0, 1]
    for line in lines:
        assert [epoch["steps"] for epoch in line["epochs"]] == [5, 5]
        assert [epoch["counts"]["served"] for epoch in line["epochs"]] == [40, 40]
        assert line["epochs"][0]["counts"]["storage_reads"] == 40
        assert 0.0 <= line["top1"] <= line["top5"] <= 100.0

    benchmark("tables", out, "--out", tmp_path / "out")
    tables = (tmp_path / "out" / "tables.md").read_text()
    (row,) = [line for line in tables.splitlines() if line.startswith("| shufflenet | `uniform+lru` |")]
    assert row.split(" | ")[2] == "2" and "±" in row
    assert "paper: iCache" in tables and "87.76" in tables


def test_intervals_are_students() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.train.results import Mean
    finally:
        sys.path.remove(str(ROOT))
    mean = Mean.of([91.31, 91.67, 91.75, 91.05, 91.52])
    # By hand: squares add up to 0.3224, so the sd is 0.28390; times 2.776 / sqrt(5).
    assert mean.value == pytest.approx(91.46)
    assert mean.half == pytest.approx(0.35245, abs=1e-4)
    assert Mean.of([90.0]).text() == "90.00"


def test_differences_have_welchs_interval_where_both_sides_have_one() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.train.results import Mean
    finally:
        sys.path.remove(str(ROOT))
    lost = Mean.of([3.0, 4.0, 5.0]).minus(Mean.of([1.0, 2.0, 3.0]))
    # By hand: both variances are 1, so the error is sqrt(2 / 3), of 4 degrees of freedom; times 2.776.
    assert lost.value == pytest.approx(2.0)
    assert lost.half == pytest.approx(2.26660, abs=1e-4)
    assert Mean.of([3.0, 4.0]).minus(Mean.of([1.0])).half is None


def test_a_run_that_was_looked_at_does_not_stand_for_one_that_was_not(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.train.results import for_accuracy, read
        from benchmarks.train.run import Run
    finally:
        sys.path.remove(str(ROOT))
    lines = [
        {"run": asdict(Run("iis", "icache")), "top1": 90.0},
        {"run": asdict(Run("iis", "icache", identify=True)), "top1": 80.0},
        {"run": asdict(Run("realtime", "icache", identify=True)), "top1": 70.0},
    ]
    out = tmp_path / "results.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    groups = read([out])
    assert [group.top1.value for group in groups] == [90.0, 80.0, 70.0]
    assert [group.top1.value for group in for_accuracy(groups)] == [90.0, 70.0]
