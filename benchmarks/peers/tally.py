"""What an epoch's batches held: did every sample come once with its own bytes, and how well were they mixed.

`mix_runs` is the mean number of different runs in a full batch beside that of a batch of a shuffle: 1 is as
good as a shuffle. For every arm alike a run is `RUN` samples that are neighbours in the order in which its
layout stores them (32 KiB of the small ones). `mix_labels` is the same of labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from benchmarks.peers.samples import Truth
from benchmarks.peers.setting import BATCH, Sample

RUN = 24


class Tally:
    """Counts one epoch after the other."""

    def __init__(self, truth: Truth, order: Sequence[int]) -> None:
        """`order` is numbers of samples as they are stored."""
        self._truth = truth
        self._number = {digest: number for number, digest in enumerate(truth.digests)}
        runs = [0] * len(order)
        for place, number in enumerate(order):
            runs[number] = place // RUN
        self._classes = {"mix_runs": runs, "mix_labels": truth.labels}
        self._shuffled = {name: shuffled(values, BATCH) for name, values in self._classes.items()}
        self.begin()

    def begin(self) -> None:
        """A new epoch."""
        self._seen = Counter[int]()
        self._wrong = 0
        self._different = Counter[str]()
        self._full = 0

    def add(self, batch: Sequence[Sample]) -> list[int]:
        """Counts a batch; the numbers of its samples."""
        numbers = []
        for content, label in batch:
            number = self._number.get(content)
            if number is None or self._truth.labels[number] != label:
                self._wrong += 1
            else:
                numbers.append(number)
        self._seen.update(numbers)
        if len(numbers) == BATCH:
            self._full += 1
            for name, values in self._classes.items():
                self._different[name] += len({values[number] for number in numbers})
        return numbers

    def figures(self) -> dict[str, float]:
        """Of the epoch."""
        mixes = {
            name: self._different[name] / self._full / self._shuffled[name]
            for name in self._classes
            if self._full
        }
        return {
            "served": self._seen.total() + self._wrong,
            "different": len(self._seen),
            "wrong": self._wrong,
            **mixes,
        }


def shuffled(values: Sequence[int], batch: int) -> float:
    """How many different values a random batch has, in the mean."""
    total = len(values)
    if total <= batch:
        return float(len(set(values)))
    without = [
        math.comb(total - count, batch) / math.comb(total, batch) for count in Counter(values).values()
    ]
    return sum(1 - share for share in without)
