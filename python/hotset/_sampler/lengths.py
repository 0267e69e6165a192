"""How long epochs are, and how long they can be, told from settings before any of them is planned.

With `epoch_length` every epoch has as many samples as it says (`crates/core/src/sampling/rolling.rs`).
Without it an epoch is as long as what its strategy draws, of which a strategy tells the most beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .. import _core
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
