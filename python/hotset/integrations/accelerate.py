"""Hotset with Accelerate: `Hook(accelerator, sampler).prepare(loader)`.

`accelerator.prepare` divides a loader's batches among processes, whatever sampler it has. Hotset's ranks are
divided already, by a plan of equal parts, so `Hook.prepare` makes the same kind of loader, which moves
batches to the device and tells Accelerate about the end of an epoch, without dividing once more. The Trainer
of `transformers` trains through Accelerate: `hotset.integrations.transformers` is for it. One that has only
this needs a sampler with `epoch_length="auto"`, because it asks for the length of an epoch once and for all.
Its Accelerator is like any other, so that where a Trainer can be in use a warning says so.

The hook is registered for checkpoints: `accelerator.save_state` and `load_state` keep the sampler's place and
what its strategy has learned.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import DataLoaderShard
from torch.utils.data import DataLoader

from .._sampler.loader_checks import warn_of_trainer
from .._sampler.sampler import Sampler
from ..errors import InvalidError
from ._checkpoint import draws_from, load_sampler, save_sampler
from ._counters import epoch_counters


class Hook:
    """Prepares the loader of a sampler, keeps its position in checkpoints, and logs its counters."""

    def __init__(self, accelerator: Any, sampler: Sampler) -> None:
        self.accelerator = accelerator
        self.sampler = sampler
        self.prepared: Any = None
        """The loader that was prepared last."""
        accelerator.register_for_checkpointing(self)

    def prepare(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        """Prepares `loader` for Accelerate, each rank with its own part of the plan."""
        if not draws_from(loader, self.sampler):
            raise InvalidError(
                "the loader's `sampler=` is not the one this hook was made for; give the loader of the "
                "training to `prepare`, and others to `accelerator.prepare`"
            )
        warn_of_trainer(self.sampler)
        accelerator = self.accelerator
        prepared = CountingLoader(
            loader.dataset,
            device=accelerator.device if accelerator.device_placement else None,
            _drop_last=loader.drop_last,
            _non_blocking=accelerator.non_blocking,
            **_arguments(loader),
        )
        # Accelerate looks for this before it wraps anything, and then only remembers the loader.
        prepared._is_accelerate_prepared = True
        prepared.iteration = self.sampler.epoch
        self.prepared = prepared
        known: DataLoader[Any] = accelerator.prepare_data_loader(prepared)
        return known

    def end_epoch(self, *, accuracy: float | None = None, step: int | None = None) -> dict[str, float]:
        """Logs and returns the server's counters of this epoch, with each rank's wait."""
        self.sampler.flush()
        values = epoch_counters(self.sampler.stats(), self.sampler.epoch)
        self.accelerator.log(values, step=step)
        if accuracy is not None:
            self.sampler.end_epoch(accuracy=accuracy)
        return values

    def state_dict(self) -> dict[str, Any]:
        """The sampler's position and what its strategy has learned, for `accelerator.save_state`."""
        loader = self.prepared
        if loader is None:
            return save_sampler(self.sampler, None, 0, last=False)
        last = getattr(loader, "end_of_dataloader", False)
        return save_sampler(self.sampler, loader, loader.yielded, last=last)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from there."""
        load_sampler(self.sampler, state)
        if self.prepared is not None:
            # A prepared loader counts epochs itself, from 0, and says so to its sampler.
            self.prepared.iteration = self.sampler.epoch


class CountingLoader(DataLoaderShard):  # type: ignore[misc]  # Accelerate has no types
    """A prepared loader that is one process's, and counts the batches it hands out."""

    yielded = 0
    """Batches of this epoch."""

    def __iter__(self) -> Iterator[Any]:
        self.yielded = 0
        for batch in super().__iter__():
            self.yielded += 1
            yield batch


def _arguments(loader: DataLoader[Any]) -> dict[str, Any]:
    """What makes another loader of the same batches. The hook keeps the place, so that it is a plain one."""
    drawn: dict[str, Any] = {"batch_sampler": loader.batch_sampler}
    if loader.batch_sampler is None:
        drawn = {"sampler": loader.sampler, "batch_size": None}
    left_out = {"dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}
    names = [name for name in inspect.signature(DataLoader).parameters if name not in left_out]
    return {**drawn, **{name: getattr(loader, name) for name in names if hasattr(loader, name)}}
