"""What a thread's time went into: computing, waiting for something else, or waiting for a core.

Fetching waits and preparing computes, so the two are told apart in one pass over samples, whatever storage is
behind a dataset. Waiting for a core is neither, and the kernel counts it (`schedstat`); where it does not, it
is taken for fetching.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

_STATISTICS = "/proc/thread-self/schedstat"


@dataclass(frozen=True)
class Moment:
    """The clocks of this thread at a time, in seconds."""

    wall: float
    computed: float
    queued: float

    @classmethod
    def now(cls) -> Self:
        """The clocks of the calling thread."""
        return cls(time.perf_counter(), time.thread_time(), _queued())


@dataclass
class Spent:
    """What some work took of its thread."""

    wall: float = 0.0
    computed: float = 0.0
    queued: float = 0.0

    def since(self, began: Moment) -> None:
        """Adds what passed since `began`."""
        now = Moment.now()
        self.wall += now.wall - began.wall
        self.computed += now.computed - began.computed
        self.queued += now.queued - began.queued

    @property
    def waited(self) -> float:
        """Seconds in which something else was waited for."""
        return max(self.wall - self.computed - self.queued, 0.0)


def _queued() -> float:
    try:
        with open(_STATISTICS) as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
