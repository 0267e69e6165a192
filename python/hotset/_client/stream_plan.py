"""Epochs of one length past the server, where every plan is a permutation of all samples.

The server does so for every strategy (`crates/core/src/sampling/draw_stream.rs`).
"""

from __future__ import annotations

from collections.abc import Callable

from .source import Plan


class StreamPlan:
    """An epoch of `length` slots of plans that are all equally long, one after the other: past the server."""

    def __init__(self, planned: Callable[[int], Plan], epoch: int, length: int) -> None:
        self._planned = planned
        self._first = epoch * length
        self._length = length
        self._plans: dict[int, Plan] = {}
        self._each = len(self._plan(0))

    def __len__(self) -> int:
        return self._length

    def block(self, start: int, stop: int) -> list[int]:
        """The slots from `start` to `stop`."""
        at, last = self._first + start, self._first + min(stop, self._length)
        found: list[int] = []
        while at < last:
            number, place = divmod(at, self._each)
            found += self._plan(number).block(place, min(self._each, place + last - at))
            at = self._first + start + len(found)
        return found

    def weights(self, start: int, stop: int) -> None:
        """All are 1."""

    def _plan(self, number: int) -> Plan:
        if number not in self._plans:
            self._plans[number] = self._planned(number)
        return self._plans[number]
