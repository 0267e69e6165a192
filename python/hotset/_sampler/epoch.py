"""One epoch as this rank trains it: how far its plan was handed out, and how far it was trained.

The two differ by what a loader has read ahead. Handed out is counted as the loader draws; trained is told
from the ids that are reported: one past the furthest slot that any of them has. A batch is nearly always the
next few slots in their order, which is looked at first; else its ids are looked for among all slots handed
out and not yet trained.
"""

from __future__ import annotations

import time
import zlib
from array import array
from collections import Counter
from functools import cached_property

import torch

from .._client.source import Plan
from .._dataset.numbers import Number, PlanMark, numbers_of
from ..errors import InvalidError
from .weights import Weights

_BLOCK = 4096
"""Slots taken from the plan at a time, so that an epoch of millions starts at once."""

_MARKED = 64
"""Slots that tell one plan from another."""

_NAMED = 5
"""Ids that an error names."""


def marked(plan: Plan) -> int:
    """A number that tells one rank's part of a plan from that of another."""
    return zlib.crc32(array("Q", plan.block(0, _MARKED)).tobytes())


class Epoch:
    """One rank's part of one epoch."""

    def __init__(
        self, number: int, plan: Plan, start: int, samples: int, plan_mark: PlanMark | None = None
    ) -> None:
        self.number = number
        self.plan = plan
        self.start = start
        """Where this process began it, beyond 0 in a run that resumes."""
        self.begun = time.monotonic()
        self.handed = start
        """Slots of the plan that were handed out, those before `start` included."""
        self.trained = start
        """Slots of the plan that were trained, as far as is known."""
        self.reported = False
        """Whether anything was reported in this epoch, so that `trained` means something."""
        self.weights: Weights | None = None
        self._served = bytearray(samples)
        self._numbers = numbers_of(number, plan_mark)

    def __len__(self) -> int:
        return len(self.plan)

    @cached_property
    def mark(self) -> int:
        """Tells this part of a plan from another."""
        return marked(self.plan)

    def block(self, first: int) -> list[Number]:
        """The next numbers to hand out, from slot `first` on."""
        ids = self.plan.block(first, first + _BLOCK)
        weights = self.plan.weights(first, first + _BLOCK)
        if weights is not None:
            if self.weights is None:
                self.weights = Weights(len(self._served))
            self.weights.add(ids, weights)
        for number in ids:
            self._served[number] = 1
        return list(map(self._numbers, ids))

    def check(self, ids: list[int]) -> None:
        """Refuses ids that were not handed out in this epoch."""
        samples = len(self._served)
        strange = [number for number in ids if not (0 <= number < samples and self._served[number])]
        if strange:
            shown = ", ".join(map(str, strange[:_NAMED])) + (", ..." if len(strange) > _NAMED else "")
            raise InvalidError(
                f"{len(strange)} of {len(ids)} ids were not served to this rank in epoch {self.number}: "
                f"{shown}; report the ids that came with the batch (`with_ids=True`)",
                strange[0],
            )

    def train(self, ids: list[int]) -> None:
        """Notes that the samples `ids` were trained."""
        self.reported = True
        first = self.trained
        if self.plan.block(first, first + len(ids)) == ids:
            self.trained += len(ids)
            return
        wanted = Counter(ids)
        for slot, number in enumerate(self.plan.block(first, self.handed), first):
            if wanted[number]:
                wanted[number] -= 1
                self.trained = slot + 1

    def count(self, samples: int) -> None:
        """Notes that as many samples were trained, whose ids are not known yet: the next in their order."""
        self.reported = True
        self.trained = min(self.trained + samples, self.handed)

    def weighted(self, loss: torch.Tensor, ids: torch.Tensor | list[int]) -> torch.Tensor:
        """`loss` times the weights of the samples; itself where the plan has none."""
        if self.weights is None:
            return loss
        found = self.weights.of(ids) if isinstance(ids, list) else self.weights.on_device(ids)
        if loss.device.type == "cuda" and found.device.type == "cpu":
            found = found.pin_memory()
        return loss * found.to(loss.device, loss.dtype, non_blocking=True)
