"""The ways of getting the same samples with one reader, and the proof that each did what it says.

An arm is asked with what it understands (ids, paths, keys), made before the clock starts, and answers with
one buffer for each sample, in order. `begin` and `end` stand around every measured part: `end` fails when the
samples came from elsewhere than the arm's name says.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy
import redis
from hotset import _core
from hotset._dataset.numbers import numbers_of

from benchmarks.sources import WAIT, Counters, Opened, Samples, SkippedError, UntrueError, read_from_disk

Buffer = bytes | bytearray | memoryview

_STRAY = 1 << 20
"""Bytes from storage that say nothing: pages of Python's own code that are touched for the first time."""


class Arm(Protocol):
    """One way of getting samples."""

    @property
    def name(self) -> str: ...
    def prepare(self, ids: list[int], epoch: int) -> Any:
        """What `fetch` is asked with for the samples `ids`."""

    def fetch(self, request: Any) -> Sequence[Buffer]:
        """The samples. This is what is timed."""

    def begin(self, epoch: int) -> None:
        """Before a measured part."""

    def end(self, asked: int) -> None:
        """After a measured part of `asked` samples."""


FIRST_BATCH = 256


class Hotset:
    """A batch of a kept dataset: as views, as `bytes`, or copied into a buffer."""

    def __init__(self, name: str, opened: Opened, take: Callable[[_core.Batch], Sequence[Buffer]]) -> None:
        self.name = name
        self._opened, self._take, self._job = opened, take, opened.kept
        self._before = Counters(0, 0, 0)

    def prepare(self, ids: list[int], epoch: int) -> list[int]:
        return ids

    def fetch(self, request: list[int]) -> Sequence[Buffer]:
        return self._take(self._opened.client.get_batch(self._job, request, rank=0, wait=WAIT))

    def begin(self, epoch: int) -> None:
        self._before = self._opened.counters(self._job)

    def end(self, asked: int) -> None:
        self._opened.counters(self._job).check(self._before, asked)


class Planned(Hotset):
    """The same along a plan, as training asks: numbers carry their epoch, and each takes its slot."""

    def __init__(self, name: str, opened: Opened) -> None:
        super().__init__(name, opened, _core.Batch.views)
        self._job = opened.plan()
        # In its first epoch the plan reads every sample, also where another job has its bytes.
        self._begin_epoch(0)
        for first in range(0, opened.samples.count, FIRST_BATCH):
            ids = range(first, min(first + FIRST_BATCH, opened.samples.count))
            self.fetch(list(map(numbers_of(0), ids)))

    def prepare(self, ids: list[int], epoch: int) -> list[int]:
        return list(map(numbers_of(epoch + 1), ids))

    def begin(self, epoch: int) -> None:
        self._begin_epoch(epoch + 1)
        super().begin(epoch)

    def _begin_epoch(self, epoch: int) -> None:
        self._opened.client.begin_epoch(self._job, epoch, rank=0, world=1, start=0, wait=WAIT)


class PageCache:
    """Files that the kernel has in memory, read by `read`."""

    def __init__(self, name: str, paths: list[str], read: Callable[[str], bytes]) -> None:
        self.name = name
        self._paths, self._read = paths, read
        self._before = 0

    def prepare(self, ids: list[int], epoch: int) -> list[str]:
        return [self._paths[number] for number in ids]

    def fetch(self, request: list[str]) -> list[bytes]:
        read = self._read
        return [read(path) for path in request]

    def begin(self, epoch: int) -> None:
        self._before = read_from_disk()

    def end(self, asked: int) -> None:
        if (read := read_from_disk() - self._before) > _STRAY:
            raise UntrueError(f"{self.name}: {read:,} bytes came from storage, not from the page cache")


def plain_read(path: str) -> bytes:
    """As a dataset does it."""
    with open(path, "rb") as file:
        return file.read()


def system_read(path: str, size: int) -> bytes:
    """As few system calls as Python can make, the size being known."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, size)
    finally:
        os.close(file)


class Redis:
    """`MGET` over a Unix socket, with redis-py and its native parser."""

    name = "redis MGET"

    def __init__(self, socket: str, paths: list[str]) -> None:
        self._client = redis.Redis(unix_socket_path=socket, socket_timeout=WAIT)
        self._client.flushall()
        for number, path in enumerate(paths):
            self._client.set(str(number), plain_read(path))
        connection: Any = self._client.connection_pool.get_connection()
        parser = type(connection._parser).__name__
        self._client.connection_pool.release(connection)
        if "Hiredis" not in parser:
            raise SkippedError(f"redis-py uses {parser}, which is slow: install hiredis")
        self._before = (0, 0)

    def prepare(self, ids: list[int], epoch: int) -> list[bytes]:
        return [b"%d" % number for number in ids]

    def fetch(self, request: list[bytes]) -> list[bytes]:
        return cast("list[bytes]", self._client.mget(request))

    def begin(self, epoch: int) -> None:
        self._before = self._counters()

    def end(self, asked: int) -> None:
        hits, misses = (after - before for after, before in zip(self._counters(), self._before, strict=True))
        if (hits, misses) != (asked, 0):
            raise UntrueError(f"of {asked} keys asked for, Redis found {hits} and missed {misses}")

    def _counters(self) -> tuple[int, int]:
        said = cast("dict[str, int]", self._client.info("stats"))
        return said["keyspace_hits"], said["keyspace_misses"]


class Memcpy:
    """Plain copies from this process's own memory into the given buffer: one memcpy a sample."""

    name = "memcpy"

    def __init__(self, paths: list[str], target: bytearray, size: int) -> None:
        self._samples = [memoryview(plain_read(path)) for path in paths]
        self._whole = memoryview(target)
        self._places = [self._whole[begin : begin + size] for begin in range(0, len(target), size)]

    def prepare(self, ids: list[int], epoch: int) -> list[tuple[memoryview, memoryview]]:
        return list(zip(self._places, (self._samples[number] for number in ids), strict=False))

    def fetch(self, request: list[tuple[memoryview, memoryview]]) -> list[memoryview]:
        for place, sample in request:
            place[:] = sample
        return self._places

    def begin(self, epoch: int) -> None:
        self._whole[:] = bytes(len(self._whole))

    def end(self, asked: int) -> None:
        pass


class CopyInto(Hotset):
    """`Batch.copy_into` the given buffer."""

    def __init__(self, opened: Opened, target: bytearray) -> None:
        super().__init__("hotset copy_into", opened, self._copied)
        self._target, self._whole = target, memoryview(target)

    def _copied(self, batch: _core.Batch) -> list[Buffer]:
        batch.copy_into(self._target)
        return [self._whole]

    def begin(self, epoch: int) -> None:
        self._whole[:] = bytes(len(self._whole))
        super().begin(epoch)


def total(samples: Sequence[Buffer]) -> int:
    """Reads every byte: the sum of all samples as 64-bit words, at the speed of memory."""
    return sum(int(numpy.add.reduce(numpy.frombuffer(sample, numpy.uint64))) for sample in samples)


def measure(
    arm: Arm, batches: list[list[int]], epoch: int, use: Callable[[Sequence[Buffer]], int]
) -> tuple[float, int]:
    """Samples per second over all batches, and the sum of what `use` makes of each within the time."""
    asked = sum(len(batch) for batch in batches)
    requests = [arm.prepare(batch, epoch) for batch in batches]
    arm.begin(epoch)
    gc.collect()
    fetch = arm.fetch
    used = 0
    began = time.perf_counter()
    for request in requests:
        used += use(fetch(request))
    seconds = time.perf_counter() - began
    arm.end(asked)
    return asked / seconds, used


def check_content(arm: Arm, batch: list[int], paths: list[str], epoch: int) -> None:
    """Fails unless the arm gives exactly the bytes of the files."""
    arm.begin(epoch)
    given = b"".join(arm.fetch(arm.prepare(batch, epoch)))
    if given != b"".join(plain_read(paths[number]) for number in batch):
        raise UntrueError(f"{arm.name} gave other bytes than the files have")


def warm(samples: Samples, opened: Opened, paths: list[str], batch: int) -> None:
    """Has every sample in the page cache and in the server's memory."""
    for first in range(0, samples.count, batch):
        ids = list(range(first, min(first + batch, samples.count)))
        given = opened.client.get_batch(opened.kept, ids, rank=0, wait=WAIT).bytes()
        if given != [plain_read(paths[number]) for number in ids]:
            raise UntrueError(f"the server gave other bytes than the files from sample {first} on have")
