"""A line on the terminal while a long listing runs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from .._client.listing import Progress

_QUIET = 1.0
"""Seconds that may pass without a word; most listings are done by then."""

_BETWEEN = 0.1


@contextlib.contextmanager
def shown(place: str, progress: Progress | None) -> Iterator[Progress | None]:
    """What to report progress to: the user's own function, a line if a person looks on, else nothing."""
    if progress is not None or sys.stderr is None or not sys.stderr.isatty():
        yield progress
        return
    line = _Line(place)
    try:
        yield line
    finally:
        line.clear()


class _Line:
    """One line of the terminal, written over and in the end removed."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._next = time.monotonic() + _QUIET
        self._width = 0

    def __call__(self, what: str, done: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _BETWEEN
        text = f"hotset: {what} {self._place}: {done:,}"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
