"""The arena moves samples to make room, under workers that lease, are killed, and views that are kept."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import hotset
from processes import until
from torch.utils.data import DataLoader
from trees import content, digest, planned

SAMPLES = 600
MIB = 1 << 20
WAIT = 120.0


def _tree(place: Path) -> list[str]:
    """Small files and, one in twelve, large ones, all of different sizes: the digest of each."""
    draw = random.Random(7)
    place.mkdir()
    digests = []
    for number in range(SAMPLES):
        size = draw.randint(2 * MIB, 3 * MIB) if number % 12 == 5 else draw.randint(30_000, 90_000)
        data = content(f"{number:06d}", size)
        (place / f"{number:06d}.bin").write_bytes(data)
        digests.append(digest(data))
    return digests


def test_samples_move_under_workers_kept_views_and_kills_and_every_byte_is_right(tmp_path: Path) -> None:
    truth = _tree(tmp_path / "tree")
    train = hotset.Dataset(tmp_path / "tree", cache="40MiB", decode=digest, with_ids=True, wait=WAIT)
    sampler = hotset.Sampler(train, policy="lru", seed=5)

    # Views that are kept all along, scattered over the arena, and most of the reserve: by a job of their own.
    keeper = hotset.connect()
    opened = keeper.open_dataset(str(tmp_path / "tree"), layout="files", wait=WAIT)
    asked = {"dataset": opened["dataset"], "cache": "1KiB", "strategy": "uniform", "policy": "lru", "seed": 9}
    keeper.open_job("kept", asked, wait=WAIT)
    kept: list[tuple[int, memoryview]] = []

    for epoch in range(25):
        if epoch >= 5 and train.stats()["server"]["moved_bytes"] > 0:
            break
        loader: DataLoader[Any] = DataLoader(
            train, batch_size=8, sampler=sampler, num_workers=3, collate_fn=list
        )
        sampler.set_epoch(epoch)
        served = []
        batches = iter(loader)
        if epoch == 2:
            # A worker dies in the middle of it, with what it leases; the next epoch is whole.
            for _ in range(20):
                next(batches)
            try:
                # Inside: torch's handler of SIGCHLD raises wherever it finds this process, also right here.
                os.kill(batches._workers[1].pid, signal.SIGKILL)  # type: ignore[attr-defined]
                list(batches)
            except RuntimeError as error:
                assert "worker" in str(error)
            del batches
            continue
        for step, batch in enumerate(batches):
            served += batch
            if epoch == 0 and step % 2 == 0 and step < 38:
                # One large sample and some small ones at a time.
                ids = [step * 6 + 5, step * 6, step * 6 + 1]
                kept += zip(ids, keeper.get_batch("kept", ids, rank=0, wait=WAIT).views(), strict=True)
        assert [int(number) for _, number in served] == planned(SAMPLES, epoch, seed=5)
        assert all(truth[number] == found for found, number in served)
        assert all(truth[number] == digest(view) for number, view in kept)
    # In which epochs depends on who leases what when; in none of so many it cannot be.
    stats = train.stats()["server"]
    assert stats["moved_bytes"] > 0, f"nothing moved: {json.dumps(stats)}"
    kept.clear()
    keeper.close()
    until("all leases are back", lambda: train.stats()["server"]["leases"] == 0)
