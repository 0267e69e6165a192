"""What a loss must look like to be reported, and what to write where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch

from .. import _core
from .._dataset.parts import Part
from ..errors import InvalidError, kind_of

_tables: WeakKeyDictionary[Part, dict[torch.device, torch.Tensor]] = WeakKeyDictionary()
"""The places of the samples of each part, on each device that has ids."""


def check_ids(ids: torch.Tensor | Sequence[int], part: Part | None = None) -> torch.Tensor | list[int]:
    """The ids of a batch: a tensor where they are on a GPU, which must not be waited for, else numbers.

    Where a `part` of a dataset is planned, these are the places of the samples in it.
    """
    if not isinstance(ids, torch.Tensor):
        return [int(number) for number in ids] if part is None else [part.place(number) for number in ids]
    if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise InvalidError(
            f"`ids` has the shape {tuple(ids.shape)} and the type {ids.dtype}; what `with_ids=True` gives is "
            "needed: one whole number for each sample"
        )
    numbers = ids.to(torch.int64)
    if numbers.device.type == "cuda":
        return numbers if part is None else places_on(numbers, part)
    return check_ids(numbers.tolist(), part)


def places_on(ids: torch.Tensor, part: Part) -> torch.Tensor:
    """The places of samples in a part, looked up on the device that has their ids; -1 where there is none."""
    table = _tables.setdefault(part, {})
    if ids.device not in table:
        table[ids.device] = torch.tensor(part.places, dtype=torch.int64).to(ids.device)
    places = table[ids.device]
    inside = (ids >= 0) & (ids < len(places))
    return torch.where(inside, places[ids.clamp(0, len(places) - 1)], -1)


def check_loss(loss: torch.Tensor, samples: int) -> None:
    """Refuses what is not one number for each of `samples`."""
    if not isinstance(loss, torch.Tensor):
        raise InvalidError(f"`loss` is {kind_of(loss)}; the tensor of the losses of a batch is needed")
    if loss.dim() == 0:
        raise InvalidError(
            "`loss` is one number for the whole batch; one for each sample is needed: "
            'write `loss = F.cross_entropy(output, labels, reduction="none")`, and call `.mean().backward()` '
            f"on what `update` returns. Strategies that need no losses: {quoted(_no_losses())}"
        )
    if loss.dim() > 1:
        raise InvalidError(
            f"`loss` has the shape {tuple(loss.shape)}; one number for each sample is needed: "
            "write `sampler.update(ids, loss.flatten(1).mean(1))`"
        )
    if len(loss) != samples:
        raise InvalidError(f"`loss` has {len(loss)} values for {samples} ids")
    if loss.is_complex():
        raise InvalidError(f"`loss` is of {loss.dtype}; real numbers are needed")


def quoted(names: Sequence[str]) -> str:
    """`names` as messages show them."""
    return ", ".join(f"`{name}`" for name in names)


def _no_losses() -> list[str]:
    return [strategy.name for strategy in _core.strategies() if not strategy.needs_losses]
