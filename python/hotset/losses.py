"""What a loss must look like to be reported, and what to write where it does not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import _core
from .errors import InvalidError
from .source import SAMPLE_MASK

# The names of strategies that never look at losses.
_NEEDS_NO_LOSSES = ("uniform", "quiver", "carousel")


def judged_ids(ids: torch.Tensor | Sequence[int]) -> torch.Tensor | list[int]:
    """The ids of a batch: a tensor where they are on a GPU, which must not be waited for, else numbers."""
    if not isinstance(ids, torch.Tensor):
        return [int(number) & SAMPLE_MASK for number in ids]
    if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise InvalidError(
            f"`ids` has the shape {tuple(ids.shape)} and the type {ids.dtype}; what `with_ids=True` gives is "
            "needed: one whole number for each sample"
        )
    masked = ids.to(torch.int64) & SAMPLE_MASK
    if masked.device.type == "cuda":
        return masked
    return masked.tolist()


def judge_loss(loss: torch.Tensor, samples: int) -> None:
    """Refuses what is not one number for each of `samples`."""
    if not isinstance(loss, torch.Tensor):
        raise InvalidError(
            f"`loss` is a `{type(loss).__name__}`; the tensor of the losses of a batch is needed"
        )
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
    return [name for name, *_ in _core.strategies() if name in _NEEDS_NO_LOSSES]
