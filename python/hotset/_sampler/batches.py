"""The batches of a batch sampler of the user's own, in the plan that was made of them.

A loader draws them by `DataLoader(train, batch_sampler=sampler.batches())`. They are the numbers that the
sampler hands out, cut where the batches were that came by `ids=`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler as TorchSampler

from .._dataset.numbers import Number
from ..errors import InvalidError
from .given import OwnOrder, Runs, sizes_of
from .slots import Slots

if TYPE_CHECKING:
    from .sampler import Sampler


class Batches(TorchSampler[list[Number]]):
    """A batch sampler: the batches of each epoch."""

    def __init__(self, sampler: Sampler, order: Callable[[], OwnOrder | None]) -> None:
        self.sampler = sampler
        self._order = order

    def _runs(self) -> Runs:
        """The sizes of the batches of the epoch that was set."""
        order = self._order()
        if order is None or order.batches is None:
            raise InvalidError(
                "`batches()` needs a batch sampler, `hotset.Sampler(train, ids=batch_sampler)`; with single "
                "ids write `DataLoader(train, batch_size, sampler=sampler)`"
            )
        return order.batches

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, as `Sampler.set_epoch` does."""
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return sum(count for _, count in self._runs())

    def slots(self, start: int, count: int) -> int:
        """How many slots of the epoch are trained after `count` batches from slot `start` on."""
        return start + sum(islice(sizes_of(self._runs(), start), count))

    def __iter__(self) -> Iterator[list[Number]]:
        return DrawnBatches(iter(self.sampler), self._runs)


class DrawnBatches(Iterator[list[Number]]):
    """The batches of one epoch, which begins with the first of them."""

    def __init__(self, slots: Slots, runs: Callable[[], Runs]) -> None:
        self._slots, self._runs = slots, runs
        self._sizes: Iterator[int] | None = None

    def __iter__(self) -> DrawnBatches:
        return self

    def __next__(self) -> list[Number]:
        first = next(self._slots)
        if self._sizes is None:
            # The epoch has begun, perhaps behind its beginning.
            self._sizes = sizes_of(self._runs(), self._slots.drawn - 1)
        return [first, *islice(self._slots, next(self._sizes, 1) - 1)]

    def state_dict(self) -> dict[str, Any]:
        """Where drawing stands."""
        return self._slots.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where drawing stood."""
        self._slots.load_state_dict(state)
