"""Looks at what begins an epoch, since not all that draw from a sampler do with its numbers what it plans.

The call that begins an epoch comes through the objects that draw: torch's loader, and what a framework put
around it. Two mistakes, which otherwise train something else or end in a bare `IndexError`, are found there,
once an epoch: a loader whose dataset is another than the sampler's, with other numbers for its samples; and
Accelerate, which deals the batches of a loader out to its processes, whatever sampler the loader has, so
that each rank would train a share of its share.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from .._dataset.dataset import Dataset
from ..errors import InvalidError
from .target import named, within

_DEEP = 32
"""Callers that are looked at."""


def check_callers(dataset: object, samples: int, world: int) -> None:
    """Refuses loaders of another dataset than `dataset`, and to be divided once more by `world` ranks."""
    for caller in _callers():
        kinds = [kind.__name__ for kind in type(caller).__mro__]
        if "_BaseDataLoaderIter" in kinds:
            _check_dataset(getattr(caller, "_dataset", None), dataset, samples)
        elif kinds[0] == "BatchSamplerShard" and world > 1 and getattr(caller, "num_processes", 1) > 1:
            raise InvalidError(
                f"the sampler has divided its samples among {world} ranks, and Accelerate divides them "
                "once more; instead of `accelerator.prepare(loader)` write "
                "`hotset.integrations.accelerate.Hook(accelerator, sampler).prepare(loader)`"
            )


def _callers() -> Iterator[Any]:
    """The objects whose methods are under way, the nearest first."""
    frame = sys._getframe(1).f_back
    for _ in range(_DEEP):
        if frame is None:
            return
        if frame.f_code.co_varnames[:1] == ("self",):
            yield frame.f_locals.get("self")
        frame = frame.f_back


def _check_dataset(loaded: object, planned: object, samples: int) -> None:
    """Refuses a loader of `loaded`, if the numbers of `planned` stand for other samples in it."""
    if loaded is planned or not hasattr(loaded, "__len__"):
        return
    try:
        size = len(loaded)
    except (TypeError, NotImplementedError):
        return
    known = isinstance(loaded, (Dataset, Subset, ConcatDataset))
    if size == samples:
        # A wrapper, or the same part once more.
        if not isinstance(loaded, Subset) or _same(within(loaded), within(planned)):
            return
    elif size > samples and not known:
        # One's own may have each sample several times.
        return
    mend = "give both the same: `DataLoader(part, sampler=hotset.Sampler(part))`"
    if not known:
        mend += ", or the Sampler what your dataset wraps"
    raise InvalidError(
        f"the loader has a {named(loaded)} of {size} samples, and its Sampler was made of another dataset, a "
        f"{named(planned)} of {samples}, whose numbers stand for other samples there; {mend}"
    )


def _same(a: tuple[list[int], object], b: tuple[list[int], object]) -> bool:
    return a[1] is b[1] and a[0] == b[0]
