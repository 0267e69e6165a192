"""Four trainings of a sweep on one server: one cache, and what one of them reads serves all."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotset
import pytest
from processes import Server
from torch.utils.data import DataLoader
from trees import digest, equal_files

SAMPLES, SIZE, BATCH, EPOCHS = 1200, 2000, 24, 3
FORK = multiprocessing.get_context("fork")
WAIT = 120.0


def _train(place: Path, strategy: str, job: str, seed: int, pace: Any, done: Any) -> None:
    """Trains at the pace of the others, and says which samples it saw and what was counted."""
    train = hotset.Dataset(place, cache="20%", decode=digest, with_ids=True, job=job, wait=WAIT)
    sampler = hotset.Sampler(train, strategy, seed=seed, epochs=EPOCHS)
    loader = DataLoader(train, batch_size=BATCH, sampler=sampler, collate_fn=list)
    pace.wait(WAIT)
    seen = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        epoch_seen = {}
        for batch in loader:
            epoch_seen.update({number: found for found, number in batch})
            pace.wait(WAIT)
        seen.append(epoch_seen)
    # All have read before one of them leaves.
    stats = train.stats()
    pace.wait(WAIT)
    done.put((job, seen, stats))


def _sweep(
    place: Path, seeds: list[int], strategy: str = "uniform", meanwhile: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """What is counted of trainings that keep pace; `meanwhile` is done after each batch of all."""
    truth = {number: digest(path.read_bytes()) for number, path in enumerate(sorted(place.glob("*/*")))}
    pace, done = FORK.Barrier(len(seeds) + 1), FORK.Queue()
    jobs = [
        FORK.Process(target=_train, args=(place, strategy, f"job-{number}", seed, pace, done))
        for number, seed in enumerate(seeds)
    ]
    for job in jobs:
        job.start()
    for _ in range(EPOCHS * len(truth) // BATCH + 2):
        pace.wait(WAIT)
        meanwhile()
    told = [done.get(timeout=WAIT) for _ in jobs]
    for job in jobs:
        job.join(WAIT)
        assert job.exitcode == 0
    for job, seen, _ in told:
        assert all(epoch == truth for epoch in seen), f"{job} has not seen every sample of every epoch"
    return {job: stats for job, _, stats in told}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The dataset."""
    return equal_files(tmp_path / "tree", SAMPLES, SIZE)


def _memory() -> str:
    """A fifth of the dataset, for all trainings together."""
    return str(SAMPLES * SIZE // 5)


def _reads(stats: dict[str, Any]) -> int:
    return sum(job["total"]["storage_reads"] for job in stats.values())


def test_trainings_of_one_seed_that_keep_pace_read_what_one_reads(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    server = serve("sweep.sock", "--memory", _memory())
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    one = _sweep(place, [7])
    alone, kept = _reads(one), one["job-0"]["capacity"] // SIZE
    assert kept > SAMPLES // 6 and alone == SAMPLES + (EPOCHS - 1) * (SAMPLES - kept)
    stats = _sweep(place, [7, 7, 7, 7])
    assert _reads(stats) <= 1.05 * alone, {job: one["total"]["storage_reads"] for job, one in stats.items()}
    assert all(job["cache_members"] == 4 for job in stats.values())


def test_trainings_with_quiver_read_what_one_reads_whatever_their_seeds(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Small samples, so that a chunk holds some batches.
    place = equal_files(tmp_path / "many", 4 * SAMPLES, SIZE // 4)
    server = serve("sweep.sock", "--memory", _memory())
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    alone = _reads(_sweep(place, [7], "quiver"))
    stats = _sweep(place, [1, 2, 3, 4], "quiver")
    assert _reads(stats) <= 1.05 * alone, {job: one["total"]["storage_reads"] for job, one in stats.items()}
    assert all(job["cache_members"] == 4 for job in stats.values())


def test_trainings_of_other_seeds_share_what_is_kept_and_are_told_of_seeds(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    server = serve("sweep.sock", "--memory", _memory())
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    stats = _sweep(place, [1, 2, 3])
    for job in stats.values():
        assert job["cache_members"] == 3 and job["capacity"] > SAMPLES * SIZE // 6
        assert any("`seed=`" in remark and "quiver" in remark for remark in job["remarks"]), job["remarks"]
    assert sum(job["total"]["shared_hits"] for job in stats.values()) > SAMPLES // 10


def test_a_server_killed_with_four_trainings_open_leaves_all_of_them_going_on(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    server = serve("sweep.sock", "--memory", _memory())
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    kills = iter((20, 75))
    batches, next_kill = 0, next(kills)

    def kill() -> None:
        nonlocal batches, next_kill
        batches += 1
        if batches == next_kill:
            server.kill()
            server.socket.unlink(missing_ok=True)
            server.start()
            next_kill = next(kills, 0)

    stats = _sweep(place, [1, 2, 3, 4], meanwhile=kill)
    assert next_kill == 0, "both kills were made"
    assert sum(job["total"]["recovery_reads"] for job in stats.values()) > 0
