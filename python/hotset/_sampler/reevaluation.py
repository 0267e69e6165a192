"""Losses of samples under the model as it is now, for strategies that ask before they plan.

Training must not notice: the model keeps its mode, module by module, and every generator of random numbers
(torch's on the CPU and on all GPUs, numpy's, Python's) is left as it was found, so that a run that
re-evaluates draws the same crops as one that does not.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from .._dataset.dataset import Dataset
from ..errors import InvalidError, kind_of
from .losses import check_loss

Loss = Callable[[Any, Any], torch.Tensor]
"""The loss of each sample of a batch, from the model's output and the labels."""


@dataclass(frozen=True)
class Evaluation:
    """How losses under the current model are found; `Sampler.reevaluate` says what each of these is."""

    model: nn.Module
    loss: Loss
    transform: Callable[[Any], Any] | None
    batch_size: int
    device: torch.device | str | None
    collate: Callable[[list[Any]], Any] | None

    def losses(self, dataset: Dataset, epoch: int, ids: Sequence[int]) -> list[float]:
        """The losses of the samples `ids`, in their order, before `epoch`."""
        if self.batch_size < 1:
            raise InvalidError(f"`batch_size={self.batch_size}`: at least 1 is needed")
        plain, inner = _plain(dataset, self.transform), _alone(self.model)
        place = _device(inner) if self.device is None else torch.device(self.device)
        found: list[float] = []
        with undisturbed(inner), torch.inference_mode():
            for first in range(0, len(ids), self.batch_size):
                some = ids[first : first + self.batch_size]
                inputs, labels = self._pair(plain.reevaluated_items(epoch, some))
                losses = self.loss(inner(_moved(inputs, place)), _moved(labels, place))
                check_loss(losses, len(some))
                found += losses.float().tolist()
        return found

    def _pair(self, samples: list[Any]) -> tuple[Any, Any]:
        """Inputs and labels of a batch."""
        batch = (self.collate or default_collate)(samples)
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise InvalidError(
                f"a batch to re-evaluate is {kind_of(batch)}, not inputs and labels; give "
                "`collate=`, a function that turns a list of samples into such a pair"
            )
        return batch[0], batch[1]


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Puts `model` into evaluation mode for a while; its modes and all random states are then as before."""
    modes = [(module, module.training) for module in model.modules()]
    python, torchs = random.getstate(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    # A program that has not imported numpy draws nothing from it.
    numpy: Any = sys.modules.get("numpy")
    numpys = None if numpy is None else numpy.random.get_state()
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        random.setstate(python)
        torch.set_rng_state(torchs)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpys is not None:
            numpy.random.set_state(numpys)


def _plain(dataset: Dataset, transform: Callable[[Any], Any] | None) -> Dataset:
    """`dataset` as pairs without ids, with another transform if one is given."""
    plain = copy.copy(dataset)
    plain.with_ids = False
    if transform is not None:
        if not hasattr(plain, "transform"):
            raise InvalidError(
                f"a `{type(dataset).__name__}` has no `transform` to replace; transform in `collate=` instead"
            )
        plain.transform = transform
    return plain


def _alone(model: nn.Module) -> nn.Module:
    """`model` on this rank alone: ranks have different numbers of batches, and none may wait for another."""
    # What `torch.compile` makes of a module keeps it under this name.
    plain = getattr(model, "_orig_mod", model)
    return plain.module if isinstance(plain, nn.parallel.DistributedDataParallel) else model


def _device(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {name: _moved(one, device) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(one, device) for one in value)
    return value
