"""Finds loaders that do with a sampler's numbers something else than it plans.

A sampler is not told which loader draws from it. A dataset of Hotset's refuses the numbers of another
dataset's plan by itself (`numbers`). What is left is found here, from what Accelerate says of the loader that
is iterated, and from what the server counted of an epoch that was drawn (decision 18).
"""

from __future__ import annotations

import sys
import time
from typing import Any

from .._client.notes import warn_once
from .._dataset.numbers import PlanMark
from ..errors import InvalidError
from .epoch import Epoch


def check_accelerate(sampler: object, world: int) -> None:
    """Refuses to have the part of one of `world` ranks divided among the processes of Accelerate.

    Warns a Trainer, which trains through Accelerate with whatever loader it has.
    """
    state = sys.modules.get("accelerate.state")
    if state is None:
        return
    # A prepared loader enters itself here before it draws.
    loader = state.GradientState().active_dataloader
    if loader is None or not _draws_from(loader, sampler):
        return
    warn_of_trainer(sampler)
    if world > 1 and _divides(loader):
        raise InvalidError(
            f"the sampler has divided its samples among {world} ranks, and Accelerate divides them "
            "again; instead of `accelerator.prepare(loader)` write "
            "`hotset.integrations.accelerate.Hook(accelerator, sampler).prepare(loader)`"
        )


def warn_of_trainer(sampler: Any) -> None:
    """Warns where epochs differ in length, and the Trainer of transformers may ask for it once for all."""
    # Transformers loads the module only for a program that has named the Trainer.
    if "transformers.trainer" in sys.modules and not sampler.has_equal_epochs:
        warn_once(
            f"epochs of `strategy={sampler.strategy!r}` differ in length, and the Trainer of transformers "
            "asks for the length once, so it would train a different number of epochs from that requested: "
            "make it with `class Trainer(hotset.integrations.transformers.Mixin, transformers.Trainer)`, or "
            f'the sampler with `hotset.Sampler(..., "{sampler.strategy}", epoch_length="auto")`',
            rank=sampler.rank,
        )


def _divides(loader: Any) -> bool:
    """Whether a prepared loader divides what it draws among processes."""
    module = sys.modules["accelerate.data_loader"]
    if issubclass(type(loader), module.DataLoaderDispatcher):
        return True
    batches = getattr(loader, "batch_sampler", None)
    return isinstance(batches, module.BatchSamplerShard) and batches.num_processes > 1


def _draws_from(loader: Any, sampler: object) -> bool:
    """Whether a loader draws from `sampler`, by itself or through samplers of batches."""
    for name in ("batch_sampler", "sampler"):
        inner = getattr(loader, name, None)
        if inner is sampler or (inner is not None and _draws_from(inner, sampler)):
            return True
    return False


def warn_unasked(stats: dict[str, Any], epoch: Epoch, mark: PlanMark) -> None:
    """Warns where this rank's loader has drawn all of `epoch`, and the dataset was hardly asked for it."""
    jobs, drawn, elapsed = stats.get("datasets", [stats]), len(epoch), time.monotonic() - epoch.begun
    if any(job["server"]["uptime_seconds"] < elapsed for job in jobs if "server" in job):
        # A server that was started since does not know what was served before.
        return
    counted = (each for job in jobs for each in job.get("epochs", ()) if each["epoch"] == epoch.number)
    served = sum(each["served"] for each in counted)
    beside = sum(job["unplanned"]["served"] for job in jobs if "unplanned" in job)
    # A loader that leaves out an incomplete last batch asks for more than half.
    if 2 * (served + beside) <= drawn:
        warn_once(
            f"the Sampler's epoch {epoch.number} was drawn to its end, and {served + beside} of its {drawn} "
            f"samples were asked for: the loader has another dataset than the {mark.made_of} that the "
            "Sampler was made of; give both the same: `DataLoader(part, sampler=hotset.Sampler(part))`",
            name="unasked",
        )
