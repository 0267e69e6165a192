"""The weights of one epoch's slots, found again by the ids of a batch.

Only a plan that has weights makes one of these. A sample may have several slots of different weights, such as
one that is trained and one that only fills a rank's part up; they are taken in the order of the plan. One
that is reported once more keeps the weight it had.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque

import torch


class Weights:
    """The weights of the slots handed out so far."""

    def __init__(self, samples: int) -> None:
        self._by_id = torch.ones(samples)
        """The weight a sample was given last."""
        self._slots = array("I", bytes(4 * samples))
        """Slots handed out and not yet trained, of samples with one weight."""
        self._given = bytearray(samples)
        self._waiting: dict[int, deque[float]] = {}
        """The weights of such slots, of samples with several: few, since a queue is hundreds of bytes."""
        self._differ = False
        """Whether a sample has been given two different weights in this epoch."""
        self._on_device: dict[torch.device, tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]] = {}
        """A copy of the table on each device that holds ids, and what was given since."""

    def add(self, ids: list[int], weights: list[float]) -> None:
        """Takes in the next slots of the plan."""
        places, given = torch.tensor(ids, dtype=torch.long), torch.tensor(weights)
        last = dict(zip(ids, self._by_id[places].tolist(), strict=True))
        for number, weight in zip(ids, weights, strict=True):
            waiting = self._waiting.get(number)
            if waiting is None and self._given[number] and last[number] != weight:
                self._differ = True
                waiting = self._waiting[number] = deque([last[number]] * self._slots[number])
                self._slots[number] = 0
            if waiting is None:
                self._slots[number] += 1
            else:
                waiting.append(weight)
            self._given[number], last[number] = 1, weight
        # Of several slots the last counts, which assigning them at once does not promise.
        self._by_id[list(last)] = torch.tensor(list(last.values()))
        if self._differ:
            # From now on ids come from their devices, and tables there are of no use.
            self._on_device.clear()
        for _, since in self._on_device.values():
            since.append((places, given))

    def of(self, numbers: list[int]) -> torch.Tensor:
        """The weights of the samples of a batch, whose slots are thereby trained."""
        found = []
        for number in numbers:
            waiting = self._waiting.get(number)
            if waiting is None:
                found.append(float(self._by_id[number]))
                self._slots[number] -= self._slots[number] > 0
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
            return _moved(self.of(ids.tolist()), ids.device)
        if ids.device not in self._on_device:
            self._on_device[ids.device] = _moved(self._by_id, ids.device), []
        table, since = self._on_device[ids.device]
        for places, weights in since:
            table[_moved(places, ids.device)] = _moved(weights, ids.device)
        since.clear()
        return table[ids]


def _moved(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of `values` on `device`; from pinned memory, since the trainer would wait for any other."""
    if device.type == "cuda":
        values = values.pin_memory()
    return values.to(device, non_blocking=True, copy=True)
