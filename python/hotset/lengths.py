"""How long epochs are, and how long they can be, told from settings before any of them is planned.

With `epoch_length` every epoch has as many samples as it says (`crates/core/src/sampling/rolling.rs`).
Without it an epoch is as long as what its strategy draws, of which a strategy tells the most beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import _core
from .errors import InvalidError

EpochLength = int | str | None
"""Samples of a rank in every epoch; "auto" for its share of the dataset; none where strategies decide."""

_MOST = (1 << 32) - 1


def judged_length(length: Any) -> EpochLength:
    """`epoch_length=` as a user gives it."""
    whole = isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= _MOST
    if length is None or length == "auto" or whole:
        return length  # type: ignore[no-any-return]
    raise InvalidError(
        f'`epoch_length={length!r}`: a number of samples for each rank is needed, or "auto" for its share of '
        "the dataset"
    )


def judge_going_on(saved: EpochLength, before: int, own: EpochLength, world: int) -> None:
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


def most(strategy: _core.Strategy, samples: int, epochs: int) -> Iterator[int]:
    """The most samples that are drawn for all ranks in each of the first `epochs` epochs."""
    selected = strategy.selected(samples)
    for epoch in range(epochs):
        yield samples if strategy.may_be_full(epoch) else selected
