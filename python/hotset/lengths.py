"""How long epochs are, and how long they can be, told from settings before any of them is planned.

With `epoch_length` every epoch has as many samples as it says (`crates/core/src/sampling/rolling.rs`).
Without it an epoch is as long as what its strategy draws. `iis` and `realtime` select a share of the samples
that follows from `fraction` alone, once there is a loss of every sample
(`crates/core/src/sampling/selection.rs`). The first epoch is whole, and the second nearly so: it is planned
while the last losses of the first are on their way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from .errors import InvalidError
from .source import Scheme

EpochLength = int | str | None
"""Samples of a rank in every epoch; "auto" for its share of the dataset; none where strategies decide."""

_SELECTING = ("iis", "realtime")

_AT_ONCE = 1 << 20

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


def most(scheme: Scheme, samples: int, epochs: int) -> Iterator[int]:
    """The most samples that are drawn for all ranks in each of the first `epochs` epochs."""
    if scheme.strategy not in _SELECTING:
        yield from [samples] * epochs
        return
    # What is not set has the default of `hotset strategies`.
    share = float(scheme.settings.get("fraction", 0.7))
    warmup = int(scheme.settings.get("warmup", 1))
    full_last = math.floor(float(scheme.settings.get("full_last", 0)) * scheme.epochs + 1e-9)
    selected = _selected(samples, share)
    for epoch in range(epochs):
        whole = epoch < max(warmup, 2) or (full_last > 0 and epoch + full_last >= scheme.epochs)
        yield samples if whole else selected


def _selected(samples: int, share: float) -> int:
    """How many are taken where each is with the probability percentile ^ (1 / share - 1)."""
    total = 0.0
    for first in range(0, samples, _AT_ONCE):
        places = torch.arange(first, min(first + _AT_ONCE, samples), dtype=torch.float64)
        total += float(((places + 0.5) / samples).pow(1 / share - 1).sum())
    return math.floor(total + 0.5)
