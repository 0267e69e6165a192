"""How long one call may take, whatever it has to wait for on its way."""

from __future__ import annotations

import time

from ..errors import InvalidError

DEFAULT_WAIT = 600.0
"""Seconds a call waits for a store or a server: long enough for a server to be restarted by hand."""


class Deadline:
    """A moment `seconds` after this object was made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that remain, never below zero."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether nothing remains."""
        return time.monotonic() >= self._end

    def within(self, seconds: float) -> Deadline:
        """The earlier of this moment and `seconds` from now."""
        return Deadline(min(self.left(), seconds))


def check_wait(wait: float) -> float:
    """`wait` as the user gave it, refused unless it is a time."""
    if not 0.0 < float(wait) < 1e9:
        raise InvalidError(f"`wait={wait}`: a number of seconds above 0 is needed")
    return float(wait)
