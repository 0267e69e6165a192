"""The weights of one epoch's slots, found again by the ids of a batch.

Only a plan that has weights makes one of these. A sample may have several slots of different weights, such as
one that is trained and one that only fills a rank's part up; they are taken in the order of the plan. One
that is reported once more keeps the weight it had.
"""

from __future__ import annotations

from collections import Counter, deque

import torch


class Weights:
    """The weights of the slots handed out so far."""

    def __init__(self, samples: int) -> None:
        self._by_id = torch.ones(samples)
        """The weight a sample was given last."""
        self._waiting: dict[int, deque[float]] = {}
        """Of slots handed out and not yet trained."""
        self._differ = False
        """Whether a sample has been given two different weights in this epoch."""
        self._given = bytearray(samples)
        self._on_device: dict[torch.device, tuple[torch.Tensor, int]] = {}
        """A copy of the table on each device that holds ids, and how many blocks it has seen."""
        self._blocks: list[tuple[list[int], list[float]]] = []

    def add(self, ids: list[int], weights: list[float]) -> None:
        """Takes in the next slots of the plan."""
        table = self._by_id
        for number, weight in zip(ids, weights, strict=True):
            if self._given[number] and float(table[number]) != weight:
                self._differ = True
            self._given[number] = 1
            self._waiting.setdefault(number, deque()).append(weight)
        table[torch.tensor(ids, dtype=torch.long)] = torch.tensor(weights)
        self._blocks.append((ids, weights))

    def of(self, numbers: list[int]) -> torch.Tensor:
        """The weights of the samples of a batch, whose slots are thereby trained."""
        found = []
        for number in numbers:
            waiting = self._waiting.get(number)
            if waiting is None:
                found.append(float(self._by_id[number]))
                continue
            found.append(waiting.popleft())
            if not waiting:
                del self._waiting[number]
        return torch.tensor(found)

    def to_come(self, numbers: list[int]) -> torch.Tensor:
        """What `of` will say next."""
        asked: Counter[int] = Counter()
        found = []
        for number in numbers:
            waiting = self._waiting.get(number, ())
            place = asked[number]
            found.append(waiting[place] if place < len(waiting) else float(self._by_id[number]))
            asked[number] += 1
        return torch.tensor(found)

    def on_device(self, ids: torch.Tensor) -> torch.Tensor:
        """The same for ids on a GPU, which need not be waited for unless a sample's weights differ."""
        if self._differ:
            return self.of(ids.tolist()).to(ids.device)
        table, seen = self._on_device.get(ids.device, (None, 0))
        if table is None:
            table = torch.ones(len(self._by_id), device=ids.device)
        for numbers, weights in self._blocks[seen:]:
            table[torch.tensor(numbers).to(ids.device)] = torch.tensor(weights).to(ids.device)
        self._on_device[ids.device] = table, len(self._blocks)
        return table[ids]
