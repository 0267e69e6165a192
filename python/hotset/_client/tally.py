"""What `HOTSET=off` counts: servings, bytes and waits, over all loader workers of this process.

Workers are processes of their own, so the counts lie in a memory file: forked workers inherit it, spawned
ones open it through the process that made it. There is one record for each epoch, changed under the file's
lock.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import astuple, dataclass, replace
from typing import Any

_RECORD = struct.Struct("<QQQdddQ")


@dataclass
class Counts:
    """The counts of one epoch."""

    served: int = 0
    bytes: int = 0
    batches: int = 0
    waited: float = 0.0
    """Seconds that batches took to read, all together."""
    began: float = 0.0
    ended: float = 0.0
    readers: int = 0
    """Processes that have read of it."""

    def add(self, other: Counts) -> None:
        """Adds what another batch, or epoch, counts."""
        first = min((each.began for each in (self, other) if each.batches), default=0.0)
        self.began, self.ended = first, max(self.ended, other.ended)
        self.served += other.served
        self.bytes += other.bytes
        self.batches += other.batches
        self.waited += other.waited
        self.readers += other.readers

    def mean_wait(self) -> float:
        """Seconds that its mean reader waited."""
        return self.waited / max(self.readers, 1)

    def shown(self, rank: int) -> dict[str, Any]:
        """By the names that a server's counters have."""
        return {
            "served": self.served,
            "hit": 0,
            "packed": 0,
            "single": self.served,
            "storage_reads": self.served,
            "storage_bytes": self.bytes,
            "seconds": self.ended - self.began,
            "waited": self.mean_wait(),
            "waits": [{"rank": rank, "batches": self.batches, "sum": self.waited}],
        }


class Tally:
    """Counts by epoch; 0 is what no plan asked for."""

    def __init__(self) -> None:
        self._file = os.memfd_create("hotset-off")
        self._read: set[tuple[int, int]] = set()
        """The process and the epochs of which it has read. A forked one begins with those of another."""

    def add(self, epoch: int, counts: Counts) -> None:
        """Counts a batch."""
        at, reader = epoch * _RECORD.size, (os.getpid(), epoch)
        if reader not in self._read:
            self._read.add(reader)
            counts = replace(counts, readers=1)
        fcntl.lockf(self._file, fcntl.LOCK_EX, _RECORD.size, at)
        try:
            record = self._record(epoch)
            record.add(counts)
            os.pwrite(self._file, _RECORD.pack(*astuple(record)), at)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _RECORD.size, at)

    def all(self) -> dict[int, Counts]:
        """What was counted so far, by epoch."""
        epochs = os.fstat(self._file).st_size // _RECORD.size
        counted = {epoch: self._record(epoch) for epoch in range(epochs)}
        return {epoch: counts for epoch, counts in counted.items() if counts.batches}

    def _record(self, epoch: int) -> Counts:
        read = os.pread(self._file, _RECORD.size, epoch * _RECORD.size)
        return Counts(*_RECORD.unpack(read)) if len(read) == _RECORD.size else Counts()

    def __getstate__(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def __setstate__(self, path: str) -> None:
        self._read = set()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # The process that pickled it is gone: what is counted from here on is this one's own.
            self._file = os.memfd_create("hotset-off")

    def __del__(self) -> None:
        os.close(self._file)
