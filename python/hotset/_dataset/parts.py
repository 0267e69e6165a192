"""Parts of a dataset that Samplers plan: what lies behind `Sampler(Subset(train, ids))`.

A part has a job of its own, over its own samples, numbered from 0 as the `Subset` numbers them. The loader
asks the `Subset`, which asks the whole dataset with the whole's numbers, and the epochs that the Sampler
marked are lost on the way. So the whole dataset looks its numbers up here: those of a part go to the part's
job, which takes them for slots of the epoch that was begun; all others, such as those of a validation part,
are the whole's own.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Iterator, Sequence

from .. import _core
from .._client.source import Batch, Source
from ..errors import InvalidError
from .numbers import Number

_ABSENT = -1


class Part:
    """Some samples of a dataset, in the order in which a Sampler numbers them."""

    def __init__(self, places: array[int], source: Source) -> None:
        self.places, self.source = places, source

    def __contains__(self, number: int) -> bool:
        return self.places[number] != _ABSENT

    def batch(self, numbers: Sequence[int]) -> Batch:
        """Samples of it, by their numbers in the whole."""
        places = [self.places[number] for number in numbers]
        return self.source.batch(_core.Indices(places, self.source.catalog.samples), matched=True)

    def place(self, number: int) -> int:
        """Where a sample is in the part, by its number in the whole; a marked number says so itself."""
        marked, number = isinstance(number, Number), int(number)
        if marked:
            return number
        if not 0 <= number < len(self.places) or number not in self:
            raise InvalidError(
                f"sample {number} is not in the `Subset` that this Sampler plans; report the ids that came "
                "with the batch (`with_ids=True`), which are numbers of the whole dataset",
                number,
            )
        return self.places[number]


def places_of(ids: Sequence[int], samples: int) -> array[int]:
    """Where each of the whole's `samples` is in a part of the samples `ids`."""
    places = array("q", [_ABSENT]) * samples
    for place, number in enumerate(ids):
        if not 0 <= number < samples:
            raise IndexError(f"there is no sample {number} in a dataset of {samples}")
        if places[number] != _ABSENT:
            raise InvalidError(
                f"the `Subset` has sample {number} twice, and a plan has each once; leave repeating to a "
                "strategy (`hotset strategies`)"
            )
        places[number] = place
    return places


class Parts:
    """The parts of one dataset, the newest first, each for as long as its Sampler lives."""

    def __init__(self) -> None:
        self._parts: list[weakref.ref[Part]] = []
        self._held: list[Part] = []
        """In a process that has no Samplers, a loader's worker."""
        self.had = False
        """Whether there ever was one."""

    def add(self, part: Part) -> None:
        """Takes in a part, before those there are."""
        self.had = True
        self._parts = [weakref.ref(part), *(known for known in self._parts if known() is not None)]

    def __iter__(self) -> Iterator[Part]:
        return (part for known in self._parts if (part := known()) is not None)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def shares(self, numbers: list[int]) -> list[tuple[Part | None, list[int]]]:
        """Which part answers for which of `numbers`, given by their places in the list."""
        shares: dict[Part | None, list[int]] = {}
        parts = list(self)
        for at, number in enumerate(numbers):
            part = next((part for part in parts if number in part), None)
            shares.setdefault(part, []).append(at)
        return list(shares.items())

    def __getstate__(self) -> tuple[list[Part], bool]:
        return list(self), self.had

    def __setstate__(self, state: tuple[list[Part], bool]) -> None:
        parts, self.had = state
        self._held, self._parts = parts, [weakref.ref(part) for part in parts]
