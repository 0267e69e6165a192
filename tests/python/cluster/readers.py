"""Ranks that speak to their servers themselves, each in a thread of the test: cheap, and without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hotset
from hotset._dataset.numbers import numbers_of
from trees import digest

BATCH = 256
WAIT = 120.0


class Reader:
    """A rank of a job at one server. Losses that it reports follow from sample and epoch."""

    def __init__(
        self,
        socket: Path,
        place: Path | str,
        job: str,
        asked: Mapping[str, Any],
        rank: int = 0,
        world: int = 1,
        layout: str = "files",
        parts: Sequence[str] = (),
    ) -> None:
        self._client = hotset.Client(str(socket), main_pid=os.getpid(), timeout=WAIT)
        self.job, self.rank, self.world = job, rank, world
        opened = self._client.open_dataset(str(place), layout=layout, extensions=parts, wait=WAIT)
        self.samples = int(opened["samples"])
        self._client.open_job(job, {**asked, "dataset": opened["dataset"]}, wait=WAIT)

    def begin(self, epoch: int) -> list[int]:
        """The ids of this rank."""
        plan = self._client.begin_epoch(self.job, epoch, rank=self.rank, world=self.world, start=0, wait=WAIT)
        return plan.block(0, len(plan))

    def read(self, epoch: int, ids: Sequence[int], truth: Mapping[int, str]) -> None:
        """Reads them in order, and reports on each batch. Every byte is looked at."""
        for first in range(0, len(ids), BATCH):
            some = ids[first : first + BATCH]
            batch = self._client.get_batch(
                self.job, list(map(numbers_of(epoch), some)), rank=self.rank, wait=WAIT
            )
            wrong = [
                number for number, view in zip(some, batch, strict=True) if digest(view) != truth[number]
            ]
            assert not wrong, f"wrong bytes of {wrong}"
            del batch
            scores = [((number * 7919 + epoch * 104_729) % 1009) / 1009 for number in some]
            upto = first + len(some)
            self._client.report(
                self.job, epoch, rank=self.rank, upto=upto, ids=some, scores=scores, wait=WAIT
            )

    def epoch(self, epoch: int, truth: Mapping[int, str]) -> list[int]:
        """Trains an epoch; its ids."""
        ids = self.begin(epoch)
        self.read(epoch, ids, truth)
        self._client.end_epoch(self.job, epoch, rank=self.rank, wait=WAIT)
        return ids

    def residents(self) -> set[int]:
        """The ids that its server has in memory: those that it serves past the plan without storage."""
        found = set()
        before = self._unplanned()
        for number in range(self.samples):
            assert len(self._client.get_batch(self.job, [number], rank=self.rank, wait=WAIT)) == 1
            after = self._unplanned()
            if after == before:
                found.add(number)
            before = after
        return found

    def _unplanned(self) -> int:
        return int(self.stats()["unplanned"]["storage_reads"])

    def stats(self) -> dict[str, Any]:
        """What its server counts of the job."""
        (job,) = json.loads(self._client.stats(self.job, wait=WAIT))["jobs"]
        return dict(job)

    def close(self) -> None:
        """Leaves the job."""
        self._client.close_job(self.job, wait=WAIT)
        self._client.close()


class Readers:
    """All ranks of a job, which train at the same time."""

    def __init__(
        self,
        sockets: Sequence[Path],
        place: Path | str,
        job: str,
        layout: str = "files",
        parts: Sequence[str] = (),
        **asked: Any,
    ) -> None:
        world = len(sockets)
        self._threads = ThreadPoolExecutor(world)
        self.ranks = [
            Reader(socket, place, job, asked, rank, world, layout, parts)
            for rank, socket in enumerate(sockets)
        ]

    def epoch(self, epoch: int, truth: Mapping[int, str]) -> list[list[int]]:
        """Trains an epoch; the ids of each rank."""
        return list(self._threads.map(lambda rank: rank.epoch(epoch, truth), self.ranks))

    def submit(self, rank: int, epochs: range, truth: Mapping[int, str]) -> Future[list[list[int]]]:
        """Has one rank train some epochs by itself; the ids of each."""
        return self._threads.submit(lambda: [self.ranks[rank].epoch(epoch, truth) for epoch in epochs])

    def counted(self, epoch: int, *names: str) -> list[int]:
        """Counters of an epoch, summed over the servers of the ranks."""
        jobs = [rank.stats() for rank in self.ranks]
        found = [each for job in jobs for each in job["epochs"] if each["epoch"] == epoch]
        return [sum(int(each[name]) for each in found) for name in names]

    def close(self) -> None:
        """Ends it."""
        for rank in self.ranks:
            rank.close()
        self._threads.shutdown()
