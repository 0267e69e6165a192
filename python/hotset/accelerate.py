"""Hotset with Accelerate: `hotset.accelerate.Hook(accelerator, sampler)`.

`accelerator.prepare` divides a loader's batches among processes, whatever sampler it has. Hotset's ranks are
divided already, by a plan of equal parts, so `Hook.prepare` makes the same kind of loader, which moves
batches to the device and tells Accelerate about the end of an epoch, without dividing once more. The Trainer
of `transformers` trains through Accelerate: `hotset.transformers` is for it. A loader that is prepared inside
a Trainer without that gets `epoch_length="auto"`, because the Trainer asks for its length once and for all.

The hook is registered for checkpoints: `accelerator.save_state` and `load_state` keep the sampler's place and
what its strategy has learned.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from .checkpoint import draws_from, load, saved
from .errors import InvalidError
from .measured import measured
from .sampler import Sampler

_log = logging.getLogger(__name__)

_DEEP = 16
"""Callers that are looked at."""


class Hook:
    """Prepares the loader of a sampler, keeps its place in checkpoints, and logs its counters."""

    def __init__(self, accelerator: Any, sampler: Sampler) -> None:
        self.accelerator = accelerator
        self.sampler = sampler
        self.prepared: Any = None
        """The loader that was prepared last."""
        accelerator.register_for_checkpointing(self)

    def prepare(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        """`loader` as Accelerate wants it, each rank with its own part of the plan."""
        from accelerate.data_loader import prepare_data_loader

        if not draws_from(loader, self.sampler):
            raise InvalidError(
                "the loader's `sampler=` is not the one this hook was made for; give the loader of the "
                "training to `prepare`, and others to `accelerator.prepare`"
            )
        if self.sampler.epoch_length is None and _in_trainer():
            _log.info('the Trainer of transformers needs epochs of one length: `epoch_length` is "auto"')
            self.sampler.set_epoch_length("auto")
        accelerator = self.accelerator
        prepared: Any = prepare_data_loader(
            loader,
            accelerator.device,
            num_processes=1,
            process_index=0,
            put_on_device=accelerator.device_placement,
            rng_types=None,
            # The hook keeps the place; a loader that keeps it too would apply it a second time.
            use_stateful_dataloader=False,
            non_blocking=accelerator.non_blocking,
        )
        prepared = _counting(prepared)
        # Accelerate looks for this before it wraps anything, and then only remembers the loader.
        prepared._is_accelerate_prepared = True
        prepared.iteration = self.sampler.epoch
        self.prepared = prepared
        known: DataLoader[Any] = accelerator.prepare_data_loader(prepared)
        return known

    def end_epoch(self, *, accuracy: float | None = None, step: int | None = None) -> dict[str, float]:
        """Logs what the server counted in this epoch, with each rank's wait, and returns it."""
        self.sampler.flush()
        values = measured(self.sampler.stats(), self.sampler.epoch)
        self.accelerator.log(values, step=step)
        if accuracy is not None:
            self.sampler.end_epoch(accuracy=accuracy)
        return values

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler stands, for `accelerator.save_state`, and what its strategy has learned."""
        loader = self.prepared
        if loader is None:
            return saved(self.sampler, None, 0, last=False)
        return saved(self.sampler, loader, loader.yielded, last=getattr(loader, "end_of_dataloader", False))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        load(self.sampler, state)
        if self.prepared is not None:
            # A prepared loader counts epochs itself, from 0, and says so to its sampler.
            self.prepared.iteration = self.sampler.epoch


def _in_trainer() -> bool:
    """Whether a Trainer of transformers asks for its loader."""
    frame = sys._getframe(1).f_back
    for _ in range(_DEEP):
        if frame is None:
            return False
        if frame.f_globals.get("__name__") == "transformers.trainer":
            return True
        frame = frame.f_back
    return False


def _counting(prepared: Any) -> Any:
    """A prepared loader that counts the batches it hands out, in `yielded`."""

    class Counting(type(prepared)):  # type: ignore[misc]  # of Accelerate's own class, whichever it is
        def __iter__(self) -> Iterator[Any]:
            self.yielded = 0
            for batch in super().__iter__():
                self.yielded += 1
                yield batch

    counting = object.__new__(Counting)
    counting.__dict__.update(prepared.__dict__)
    counting.yielded = 0
    return counting
