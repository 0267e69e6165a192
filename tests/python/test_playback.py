"""A live run of two jobs over one cache, recorded, and played back from the log of that cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hotset
import pytest
import torch
from processes import Server
from trees import equal_files

SAMPLES, BATCH = 120, 10


def says(log: Path) -> subprocess.CompletedProcess[str]:
    """What playing a log back says."""
    command = [sys.executable, "-m", "hotset", "simulate", "--log", str(log)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})


def test_a_recorded_run_of_two_jobs_plays_back_to_its_counts(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    server = serve("outside.sock", "--record", str(runs))
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    place = equal_files(tmp_path / "tree", SAMPLES, 500)
    trains = [hotset.Dataset(place, cache="20%", job=job, decode=len) for job in ("one", "two")]
    samplers = [hotset.Sampler(train, "iis", policy="app", seed=seed) for seed, train in enumerate(trains)]
    for epoch in range(3):
        plans = []
        for sampler in samplers:
            sampler.set_epoch(epoch)
            plans.append(list(sampler))
        # The second job leaves its second epoch early.
        ends = [len(plans[0]), len(plans[1]) if epoch != 1 else 3 * BATCH]
        for start in range(0, max(ends), BATCH):
            for train, sampler, plan, end in zip(trains, samplers, plans, ends, strict=True):
                if ids := plan[start : min(start + BATCH, end)]:
                    train.__getitems__(ids)
                    sampler.update(ids, 1 / (1 + torch.tensor(ids)))
    counted = {
        job: {epoch["epoch"]: epoch for epoch in train.stats()["epochs"]}
        for job, train in zip(("one", "two"), trains, strict=True)
    }
    for train in trains:
        train.close()
    server.stop()
    (log,) = runs.glob("*.log")
    told = says(log)
    assert told.returncode == 0, told
    assert "job one/tree/plan-1, iis+app, seed 0: the same counts as in the live run" in told.stdout
    played = json.loads(
        subprocess.run(
            [sys.executable, "-m", "hotset", "simulate", "--log", str(log), "--json", "-"],
            capture_output=True,
            check=True,
        ).stdout
    )
    assert played["same"] and played["whole"] and [job["seed"] for job in played["jobs"]] == [0, 1]
    for job in played["jobs"]:
        for epoch in job["epochs"][:3]:
            live = counted[job["job"].split("/")[0]][epoch["epoch"]]
            for name in ("planned", "hit", "single", "distinct"):
                assert epoch["played"][name] == live[name], (job["job"], epoch["epoch"], name)
    # A log that was cut short says so, and one that is none is refused.
    log.write_bytes(log.read_bytes()[:-20])
    told = says(log)
    assert told.returncode == 0 and "cut short or damaged at byte" in told.stdout
    log.write_bytes(b"something else")
    told = says(log)
    assert told.returncode == 1 and "is no log of a cache" in told.stderr
