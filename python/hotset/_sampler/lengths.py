"""How long epochs are, and how long they can be, told from settings before any of them is planned.

With `epoch_length` every epoch has as many samples as it says (`crates/core/src/sampling/draw_stream.rs`).
Without it an epoch is as long as what its strategy draws, of which a strategy tells the most beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .. import _core
from .._client.source import Planning
from ..errors import InvalidError

EpochLength = int | str | None
"""Samples of a rank in every epoch; "auto" for its share of the dataset; none where strategies decide."""

_MOST = (1 << 32) - 1


def check_length(length: Any) -> EpochLength:
    """`epoch_length=` as a user gives it."""
    whole = isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= _MOST
    if length is None or length == "auto" or whole:
        return length  # type: ignore[no-any-return]
    raise InvalidError(
        f'`epoch_length={length!r}`: a number of samples for each rank is needed, or "auto" for its share of '
        "the dataset"
    )


def check_same_length(saved: EpochLength, before: int, own: EpochLength, world: int) -> None:
    """Refuses a state of `before` ranks whose epochs are longer or shorter than those of `world` ranks."""
    together = tuple(
        length * ranks if isinstance(length, int) else length
        for length, ranks in ((saved, before), (own, world))
    )
    if together[0] != together[1]:
        raise InvalidError(
            f"the state was saved with `epoch_length={saved!r}` in {before} ranks, this sampler has "
            f"`epoch_length={own!r}` in {world}: an epoch of all ranks together must be as long; make the "
            "sampler with the same, or start afresh"
        )


class EpochLengths:
    """How long a rank's epochs are, as far as that is known before they are planned."""

    def __init__(self, source: Planning, sizes: Sequence[int], strategy: _core.Strategy, pad: bool) -> None:
        self._source, self._sizes, self._strategy, self._pad = source, sizes, strategy, pad

    def fixed(self, length: int | str) -> int:
        """Of every epoch, where it is `length`."""
        return own_length(length, self._sizes, self._source.ranks()[1])

    def whole(self) -> int:
        """Of an epoch of all samples."""
        # Past the server every strategy is `uniform`.
        pad = self._pad or (self._strategy.pads and not self._source.past_server)
        return whole_length(self._sizes, self._source.ranks()[1], pad)

    def total_steps(self, length: EpochLength, epochs: int, batch_size: int, drop_last: bool) -> int:
        """The most batches of the first `epochs` epochs, each of `length` samples if there is one."""
        if length is not None:
            return epochs * steps(self.fixed(length), batch_size, drop_last)
        _, world = self._source.ranks()
        whole, samples = self.whole(), self._source.catalog.samples
        # Past the server every epoch is whole.
        strategy = None if self._source.past_server else self._strategy
        # Rounded up: what an epoch leaves over, fewer samples than ranks, is added to the next.
        lengths = (min(whole, math.ceil(drawn / world)) for drawn in most_drawn(strategy, samples, epochs))
        return sum(steps(length, batch_size, drop_last) for length in lengths)


def own_length(length: int | str, sizes: Sequence[int], world: int) -> int:
    """A rank's slots of an epoch that has a `length` of its own, of datasets of these `sizes`."""
    return length if isinstance(length, int) else sum(max(size // world, 1) for size in sizes)


def whole_length(sizes: Sequence[int], world: int, pad: bool) -> int:
    """A rank's slots of an epoch of all samples; each dataset is cut by itself where there are several."""
    return sum(math.ceil(size / world) if pad else size // world for size in sizes)


def most_drawn(strategy: _core.Strategy | None, samples: int, epochs: int) -> Iterator[int]:
    """The most samples that are drawn for all ranks in each of the first `epochs` epochs; all by `None`."""
    selected = samples if strategy is None else strategy.selected(samples)
    for epoch in range(epochs):
        yield samples if strategy is None or strategy.may_be_full(epoch) else selected


def steps(length: int, batch_size: int, drop_last: bool) -> int:
    """The batches of an epoch of `length` samples."""
    return length // batch_size if drop_last else math.ceil(length / batch_size)
