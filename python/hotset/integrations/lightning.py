"""Hotset in Lightning: `Trainer(callbacks=[Callback()])`.

Lightning leaves a `DistributedSampler` as it is, and calls its `set_epoch`, so that training works without
this. The callback adds what Lightning cannot know: checkpoints save and restore the sampler's position and
what its strategy has learned, in mid-epoch too; the server's counters are logged, with each rank's wait;
strategies that ask for it get their samples re-evaluated, and the accuracy; validation follows epochs that
are shorter than the first.

The sampler is found in the trainer's own loader, so that a `LightningDataModule` may make it in `setup`. A
checkpoint arrives before there are loaders, and is kept until then. Loaders begin to draw as soon as
Lightning has them, so the callback asks for them first and passes them on.

Losses are reported in `training_step`, with `sampler.update(ids, loss)`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, IterableDataset

from .._sampler.sampler import Sampler
from ..errors import InvalidError
from ._checkpoint import draws_from, load_sampler, save_sampler
from ._counters import epoch_counters

if TYPE_CHECKING:
    _Base = object
elif "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback as _Base
else:
    from lightning.pytorch import Callback as _Base


class Callback(_Base):
    """Keeps a sampler's position in checkpoints, logs its counters, and reports what its strategy asks for.

    - `sampler`: that of the training loader, where it is found by default.
    - `loss`: the loss of each sample from the model's output and the labels, for strategies that re-evaluate
      samples: `functools.partial(F.cross_entropy, reduction="none")`.
    - `accuracy`: the name of a logged metric that grows as the model improves, for strategies that use it.
    """

    def __init__(
        self,
        sampler: Sampler | None = None,
        *,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        accuracy: str | None = None,
    ) -> None:
        self._sampler = sampler
        self._given = sampler is not None
        self._checkpoint: dict[str, Any] | None = None
        """What a checkpoint says of a sampler that is not there yet."""
        self._loss = loss
        self._accuracy = accuracy
        self._trainer: Any = None
        self._evaluated: int | None = None
        """The epoch before which samples were re-evaluated last."""
        self._before: int | None = None
        """Batches that Lightning counts in this epoch and that were trained before this run; none until its
        first batch."""

    @property
    def sampler(self) -> Sampler:
        """That of the training loader."""
        if self._sampler is None:
            raise InvalidError(
                "no training loader draws from a `hotset.Sampler`: give a loader `sampler=`, or this "
                "callback the sampler of yours"
            )
        return self._sampler

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Remembers the trainer, and finds the sampler."""
        self._trainer, self._before = trainer, None
        if not self._given:
            self._sampler = _found(trainer.fit_loop)
        if self._checkpoint is not None:
            load_sampler(self.sampler, self._checkpoint)
            self._checkpoint = None
        if self.sampler.running is None:
            # In a run that resumes Lightning begins to draw, and the plan is made, before the epoch starts.
            self._reevaluate(pl_module)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Has the samples re-evaluated that the strategy asks for, and the epoch's batches counted."""
        self._before = None
        self._reevaluate(pl_module)
        _count(trainer)

    def _reevaluate(self, pl_module: Any) -> None:
        """Has samples re-evaluated, once before an epoch."""
        if self._loss is not None and self._evaluated != self.sampler.epoch:
            self.sampler.reevaluate(pl_module, self._loss, device=pl_module.device)
            self._evaluated = self.sampler.epoch

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Remembers where the epoch begins, in the middle where the run resumes."""
        if self._before is None:
            self._before = trainer.fit_loop.epoch_loop.batch_progress.current.processed

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs what the server counted, and each rank's wait."""
        self.sampler.flush()
        if trainer.is_global_zero:
            # The server counts for all ranks of the host: one of them logs.
            for name, value in epoch_counters(self.sampler.stats(), self.sampler.epoch).items():
                pl_module.log(name, value, on_step=False, on_epoch=True, rank_zero_only=True)
        if self._accuracy is not None and self._accuracy in trainer.callback_metrics:
            self.sampler.end_epoch(accuracy=float(trainer.callback_metrics[self._accuracy]))

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler stands, for a checkpoint, and what its strategy has learned."""
        if self._sampler is None:
            return {} if self._checkpoint is None else {"sampler": self._checkpoint}
        if self._trainer is None:
            return {"sampler": save_sampler(self.sampler, None, 0, last=False)}
        loop = self._trainer.fit_loop
        progress = loop.epoch_loop.batch_progress
        loaders = [] if loop._combined_loader is None else loop._combined_loader.flattened
        own = next((loader for loader in loaders if draws_from(loader, self.sampler)), None)
        trained = 0 if self._before is None else progress.current.processed - self._before
        # Until the first batch it says this of the epoch before.
        last = self._before is not None and progress.is_last_batch
        return {"sampler": save_sampler(self.sampler, own, trained, last)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a checkpoint. Lightning begins to draw before it says which epoch it is in."""
        self._evaluated = None
        if self._sampler is None:
            self._checkpoint = state_dict.get("sampler")
        else:
            load_sampler(self._sampler, state_dict["sampler"])


def _found(loop: Any) -> Sampler | None:
    """The sampler that a training loader draws from, before it is drawn from."""
    source = loop._data_source
    package = type(loop).__module__.partition(".loops.")[0]
    connector = importlib.import_module(f"{package}.trainer.connectors.data_connector")
    made = connector._request_dataloader(source)

    def handed_on() -> Any:
        # Once: Lightning may be told to make loaders anew every few epochs.
        del source.dataloader
        return made

    source.dataloader = handed_on
    for loader in tree_leaves(made.iterables if hasattr(made, "iterables") else made):
        batches = getattr(loader, "batch_sampler", None)
        for sampler in (getattr(loader, "sampler", None), getattr(batches, "sampler", None)):
            if isinstance(sampler, Sampler):
                return sampler
    return None


def _count(trainer: Any) -> None:
    """Counts the batches of this epoch.

    Lightning counts those of the first and validates after as many, which a shorter epoch never reaches and a
    longer one would be cut to.
    """
    loop, share = trainer.fit_loop, trainer.limit_train_batches
    if loop.max_batches == float("inf"):
        return
    loaders = loop._combined_loader
    for place, loader in enumerate(loaders.flattened):
        if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
            batches = len(loader)
            # A number of batches, or a share of them.
            loaders.limits[place] = (
                min(batches, share) if isinstance(share, int) else max(1, int(batches * share))
            )
    loop.max_batches = len(loaders)
    interval = trainer.val_check_interval
    if isinstance(interval, float) and trainer.val_check_batch not in (None, float("inf")):
        trainer.val_check_batch = max(1, int(loop.max_batches * interval))
