"""What a loader draws from: the numbers of one epoch's samples, and where it stands among them.

Loaders that keep their own state (torchdata's `StatefulDataLoader`) ask an iterator for its state at every
batch they draw, and pair it with that batch. So the state of this iterator is what was *drawn*, while that of
the sampler is what was *trained*. Such loaders also make iterators that they never draw from. So an epoch
begins when the first index is drawn, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .._dataset.numbers import Number
from .epoch import Epoch


class Slots(Iterator[Number]):
    """The numbers of an epoch's samples; it begins with the first of them."""

    def __init__(
        self,
        begin: Callable[[], Epoch],
        state: Callable[[int | None], dict[str, Any]],
        load: Callable[[dict[str, Any]], bool],
    ) -> None:
        self._begin = begin
        self._state = state
        self._load = load
        self._epoch: Epoch | None = None
        self._over = False
        """Whether a state was loaded at which nothing of its epoch was left."""
        self._block: list[Number] = []
        self._first = 0
        self._at = 0

    def __iter__(self) -> Slots:
        return self

    @property
    def drawn(self) -> int:
        """Slots of the epoch that were drawn, those before a resumed position included."""
        return self._at

    def __next__(self) -> Number:
        if self._over:
            raise StopIteration
        if self._epoch is None:
            self._epoch = self._begin()
            self._first = self._at = self._epoch.handed
        place = self._at - self._first
        if place == len(self._block):
            self._block, self._first, place = self._epoch.block(self._at), self._at, 0
            if not self._block:
                raise StopIteration
        self._at += 1
        self._epoch.handed = self._at
        return self._block[place]

    def state_dict(self) -> dict[str, Any]:
        """Where drawing stands."""
        return self._state(None if self._epoch is None else self._at)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where drawing stood."""
        self._over = self._load(state)
