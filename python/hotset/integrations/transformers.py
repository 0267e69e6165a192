"""Hotset in the Trainer of transformers: `class Trainer(Mixin, transformers.Trainer)`.

The Trainer asks once how many batches an epoch has, and makes its schedule, its number of steps and its place
after a stop from that. So epochs must all be equally long: where a sampler has no `epoch_length` the mixin
sets "auto". It makes the training loader, which Accelerate must not divide among processes once more
(`hotset.integrations.accelerate`); it puts the sampler's place and what its strategy has learned into every
checkpoint, as `hotset.pt`, and takes them from there; it has samples re-evaluated, for strategies that ask.

A Trainer that resumes skips the batches before its position by drawing them. The sampler yields them once
more for that, and tells the server where training really resumes, so that nothing is read for them.

Losses are reported in `compute_loss`, with `self.sampler.update(ids, loss)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from .._sampler.sampler import Sampler
from ..errors import InvalidError
from ._checkpoint import load_sampler, save_sampler
from .accelerate import Hook

if TYPE_CHECKING:
    _Callback = object
else:
    from transformers import TrainerCallback as _Callback

_FILE = "hotset.pt"


class Mixin:
    """Makes a Trainer train what a sampler plans. Name it before `transformers.Trainer` among the bases.

    - `sampler`: of `train_dataset`.
    - `reevaluate`: called before each epoch, for strategies that ask:
      `lambda: sampler.reevaluate(model, loss)`.
    """

    sampler: Sampler

    def __init__(
        self, *given: Any, sampler: Sampler, reevaluate: Callable[[], object] | None = None, **named: Any
    ) -> None:
        self.sampler = sampler
        if sampler.epoch_length is None:
            sampler.set_epoch_length("auto")
        super().__init__(*given, **named)
        trainer: Any = self
        self._hook = Hook(trainer.accelerator, sampler)
        trainer.add_callback(_Keeping(self, reevaluate))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The loader of the training, as the Trainer's arguments describe it."""
        trainer: Any = self
        args = trainer.args
        workers = args.dataloader_num_workers
        return self._hook.prepare(
            DataLoader(
                trainer.train_dataset,
                batch_size=trainer._train_batch_size,
                sampler=self.sampler,
                collate_fn=trainer.data_collator,
                num_workers=workers,
                pin_memory=args.dataloader_pin_memory and torch.cuda.is_available(),
                persistent_workers=args.dataloader_persistent_workers,
                prefetch_factor=args.dataloader_prefetch_factor if workers else None,
                drop_last=args.dataloader_drop_last,
            )
        )

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Goes on from a checkpoint; the Trainer calls this for one that it was given."""
        parent: Any = super()
        parent._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint) / _FILE
        if not path.is_file():
            raise InvalidError(
                f"the checkpoint has no `{path}`, which says where the sampler stood: it was saved by a "
                "Trainer without `hotset.integrations.transformers.Mixin`; start afresh"
            )
        load_sampler(self.sampler, torch.load(path, weights_only=True))
        # The Trainer skips what it has trained by drawing it.
        self.sampler.replay()


class _Keeping(_Callback):
    """What the Trainer must be told of, and asked, as it goes."""

    def __init__(self, trainer: Mixin, reevaluate: Callable[[], object] | None) -> None:
        self._trainer, self._reevaluate = trainer, reevaluate

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Has samples re-evaluated before an epoch is planned."""
        if self._reevaluate is not None:
            # Rounded: the Trainer counts in shares of an epoch.
            self._trainer.sampler.set_epoch(int((state.epoch or 0) + 1e-6))
            self._reevaluate()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keeps the sampler's place, which is the same for all ranks, beside the model."""
        sampler, accumulated = self._trainer.sampler, args.gradient_accumulation_steps
        loader = self._trainer._hook.prepared
        batches = len(loader)
        steps = -(-batches // accumulated)
        done = state.global_step % steps
        # At the end of an epoch nothing of it is left, an incomplete last step included.
        trained = batches if done == 0 else done * accumulated
        before = 0 if sampler.running is None else sampler.running.start // loader.batch_sampler.batch_size
        kept = save_sampler(sampler, loader, trained - before, last=done == 0)
        if args.should_save:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            os.makedirs(folder, exist_ok=True)
            torch.save(kept, folder / _FILE)
