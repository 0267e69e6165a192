"""Two trainings compete for one cache: the one that computes longer than it reads is found not to gain."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotset
import pytest
from processes import Server
from torch.utils.data import DataLoader
from trees import digest, equal_files

SAMPLES, SIZE, BATCH, EPOCHS = 2000, 4000, 8, 40
FORK = multiprocessing.get_context("fork")
WAIT = 120.0
SLOW = {"throttle.latency": "60ms"}
"""With eight reads at a time 16 batches a second: far more than a hit takes on a busy machine."""


def _train(place: Path, job: str, compute: float, meet: Any, done: Any) -> None:
    """Trains until what it gains was measured, and again beside the other until both were."""
    train = hotset.Dataset(place, cache="20%", decode=digest, job=job, wait=WAIT, storage_options=SLOW)
    sampler = hotset.Sampler(train, "uniform", seed=3, epochs=EPOCHS)
    loader = DataLoader(train, batch_size=BATCH, sampler=sampler)
    meet.wait(WAIT)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for number, _ in enumerate(loader):
            time.sleep(compute)
            if number % 10 == 0 and train.stats().get("benefit"):
                break
        if train.stats().get("benefit"):
            break
    meet.wait(WAIT)
    done.put((job, train.stats()))
    meet.wait(WAIT)


def test_a_training_that_computes_longer_than_it_reads_is_not_eligible(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, SIZE)
    server = serve("two.sock", "--memory", str(SAMPLES * SIZE // 5), "--concurrency", "8")
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    meet, done = FORK.Barrier(3), FORK.Queue()
    jobs = [
        FORK.Process(target=_train, args=(place, job, compute, meet, done))
        for job, compute in (("waits", 0.0), ("computes", 0.3))
    ]
    for job in jobs:
        job.start()
    meet.wait(WAIT)
    meet.wait(WAIT)
    stats = dict(done.get(timeout=WAIT) for _ in jobs)
    command = [sys.executable, "-m", "hotset", "stats", "--server", str(server.socket)]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    printed = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout
    meet.wait(WAIT)
    for job in jobs:
        job.join(WAIT)
        assert job.exitcode == 0
    waits, computes = stats["waits"], stats["computes"]
    assert waits["benefit"] > 1.5 and waits["eligible"], waits["eligibility"]
    assert computes["benefit"] <= 1.5 and not computes["eligible"], computes["eligibility"]
    assert waits["eligibility"].startswith("eligible: read from storage its batches take")
    assert computes["eligibility"].startswith("not eligible: ")
    assert waits["cache_members"] == computes["cache_members"] == 2
    assert "not eligible: read from storage" in " ".join(table.split())
    told = {job["job"]: job for job in json.loads(printed)[0]["jobs"]}
    assert {job["eligible"] for job in told.values()} == {True, False}
    assert all(job["benefit_epoch"] is not None for job in told.values())
