"""How long epochs can be, told from settings before any of them is planned.

`iis` and `realtime` select a share of the samples that follows from `fraction` alone, once there is a loss of
every sample (`crates/core/src/sampling/selection.rs`). The first epoch is whole, and the second nearly so:
it is planned while the last losses of the first are on their way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from .source import Scheme

_SELECTING = ("iis", "realtime")

_AT_ONCE = 1 << 20


def most(scheme: Scheme, samples: int, epochs: int) -> Iterator[int]:
    """The most samples that are drawn for all ranks in each of the first `epochs` epochs."""
    if scheme.strategy not in _SELECTING:
        yield from [samples] * epochs
        return
    # What is not set has the default of `hotset strategies`.
    share = float(scheme.settings.get("fraction", 0.7))
    warmup = int(scheme.settings.get("warmup", 1))
    full_last = math.floor(float(scheme.settings.get("full_last", 0)) * scheme.epochs + 0.5)
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
