"""Seconds to an accuracy at the size of a test: what is timed is counted right, and the shortest is found."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from training import ROOT, benchmark, few_images


@pytest.fixture
def schedules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, as its programs import it from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.train.schedules")


def test_every_arm_is_timed_with_the_reads_that_it_makes(tmp_path: Path) -> None:
    images, out = few_images(tmp_path / "images"), tmp_path / "seconds.jsonl"
    size = ("--model", "shufflenet", "--batch", "8", "--epochs", "2", "--workers", "2")
    for arm in ("plain PyTorch", "uniform+minio"):
        benchmark("seconds", "--arm", arm, "--data", images, "--out", out, *size)
    plain, cached = (json.loads(line) for line in out.read_text().splitlines())
    length = sum(path.stat().st_size for path in (images / "train").glob("*/*"))
    for line in (plain, cached):
        assert [epoch["steps"] for epoch in line["epochs"]] == [5, 5]
        assert [epoch["counts"]["served"] for epoch in line["epochs"]] == [40, 40]
        assert line["epochs"][0]["counts"]["storage_bytes"] == length
        assert line["storage"] == {"latency": "5ms", "requests": 16} and line["workers"] == 2
        assert line["seconds"] >= sum(epoch["seconds"] for epoch in line["epochs"]) - 0.01
        assert all(0.0 <= epoch["waiting"] <= epoch["seconds"] for epoch in line["epochs"])
    assert [epoch["counts"]["storage_requests"] for epoch in plain["epochs"]] == [40, 40]
    first, second = (epoch["counts"]["storage_requests"] for epoch in cached["epochs"])
    assert first == 40 and second == 40 - cached["epochs"][1]["counts"]["hit"] < 40


def _line(run: Any, epochs: int, seed: int, top1: float) -> dict[str, Any]:
    made = replace(run, epochs=epochs, warm=epochs / 30, seed=seed)
    counts = {"storage_reads": 40, "storage_requests": 40, "served": 50}
    each = {"steps": 1, "counts": counts}
    return {"run": asdict(made), "top1": top1, "epochs": [each] * epochs}


def _timed(arm: str, run: Any, seconds: list[float]) -> dict[str, Any]:
    counts = {"storage_reads": 40_000, "storage_requests": 2_000, "storage_bytes": 1_000_000}
    epochs = [{"seconds": each, "waiting": each / 2, "counts": counts} for each in seconds]
    made = replace(run, epochs=len(seconds), warm=len(seconds) / 30)
    return {"arm": arm, "run": asdict(made), "top1": 70.0, "seconds": sum(seconds), "epochs": epochs}


def _written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_shortest_schedule_is_the_first_whose_three_seeds_reach_the_goal(
    schedules: Any, tmp_path: Path
) -> None:
    uniform, iis, _ = schedules.SCHEDULED
    # A fourth seed counts for no schedule, and these three are the goal to the digit.
    top1 = {8: (66.0, 66.5, 67.0, 99.0), 20: (71.34, 71.77, 71.84, 60.0), 30: (72.0, 72.9, 73.05, 72.65)}
    lines = [
        _line(uniform, epochs, seed, value)
        for epochs, values in top1.items()
        for seed, value in enumerate(values)
    ]
    lines += [_line(iis, 30, seed, 70.0) for seed in range(3)]
    groups = schedules.read([_written(tmp_path / "results.jsonl", lines)])
    by_length = schedules.lengths(groups, uniform)
    assert [(epochs, group.top1.seeds) for epochs, group in by_length.items()] == [(8, 3), (20, 3), (30, 3)]
    assert [schedules.shortest(by_length, goal) for goal in (66.5, 69.65, 71.65, 71.66, 80.0)] == [
        *(8, 20, 20, 30, None)
    ]
    assert schedules.missing(groups, [71.65, 69.65], []) == [
        *(("iis+icache", 30), ("uniform+minio", 20), ("plain PyTorch", 20))
    ]
    timed = [_timed("iis+icache", iis, [2.0] * 30)]
    assert schedules.missing(groups, [69.65], timed) == [("uniform+minio", 20), ("plain PyTorch", 20)]
    shown = schedules.reached(groups, 71.65, timed)
    assert (
        "| `iis+icache` |  | not reached: 70.00 |" in shown and "| 20 | 71.65 ± 0.67 | not timed |" in shown
    )


def test_seconds_of_a_schedule_that_was_not_timed_say_where_they_come_from(schedules: Any) -> None:
    plain, uniform, iis = (schedules.ARMS[arm] for arm in ("plain PyTorch", "uniform+minio", "iis+icache"))
    lines = [
        _timed("plain PyTorch", plain, [9.0, 5.0, 6.0, 7.0]),
        _timed("uniform+minio", uniform, [9.0, 4.0, 2.0, 3.0]),
        _timed("iis+icache", iis, [9.0, 1.0, 1.0, 1.0]),
    ]

    def seconds(arm: str, epochs: int) -> tuple[float | None, str]:
        found, remark = schedules.timed(lines, arm, epochs)
        return None if found is None else sum(epoch["seconds"] for epoch in found), remark

    assert seconds("plain PyTorch", 4) == (27.0, "")
    assert seconds("plain PyTorch", 2) == (14.0, " (of 4 epochs)")
    assert seconds("uniform+minio", 6) == (24.0, " (worked out from 4 epochs)")
    assert seconds("iis+icache", 3) == (None, ""), "its plans know how long the run is"
    shown = schedules.trained(lines)
    assert "| `iis+icache` | 0 | 4 | 12.0 | 9.00 | 1.00 (1.00 to 1.00) | 50 | 70.00 | 160 | 8 |" in shown
