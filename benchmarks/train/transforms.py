"""Further transforms of training images, for all of them or for those that come again within the window.

An image that comes again soon is nearly the same image, and a transform makes it less so. All work on a whole
batch where the model is, after crops and mirroring, and can be recorded in a graph: which images are changed
is a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from .run import Run

_TURN = math.radians(15.0)
_STRETCH = 0.2
_COLOUR = 0.3


def erased(images: Tensor, chosen: Tensor) -> Tensor:
    """The `chosen` images without a square, a quarter to half as wide as they are, anywhere."""
    count, side, device = len(images), images.shape[2], images.device
    width = side * (0.25 + 0.25 * torch.rand(count, 1, device=device))
    across, down = side * torch.rand(2, count, 1, device=device)
    along = torch.arange(side, device=device) + 0.5
    rows, columns = ((along - middle).abs() < width / 2 for middle in (down, across))
    gone = rows[:, :, None] & columns[:, None, :] & chosen[:, None, None]
    # Scaled images have their mean at 0.
    return images.masked_fill(gone[:, None], 0.0)


def warped(images: Tensor, chosen: Tensor) -> Tensor:
    """The `chosen` images turned, stretched, and with another brightness, contrast and saturation."""
    count, device = len(images), images.device
    turn = _TURN * _symmetric(count, device)
    wide, high = (torch.exp(_STRETCH * _symmetric(count, device)) for _ in range(2))
    zero = torch.zeros_like(turn)
    rows = (
        torch.stack((wide * turn.cos(), -high * turn.sin(), zero), 1),
        torch.stack((wide * turn.sin(), high * turn.cos(), zero), 1),
    )
    places = functional.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    made = functional.grid_sample(images, places, align_corners=False)
    brightness, contrast, saturation = (
        _COLOUR * _symmetric(count, device)[:, None, None, None] for _ in range(3)
    )
    grey = made.mean(1, keepdim=True)
    made = grey + (made - grey) * (1.0 + saturation)
    middle = made.mean((1, 2, 3), keepdim=True)
    made = middle + (made - middle) * (1.0 + contrast) + brightness
    made = torch.where(chosen[:, None, None, None], made, images)
    return made.contiguous(memory_format=torch.channels_last)


def _symmetric(count: int, device: torch.device) -> Tensor:
    return 2.0 * torch.rand(count, device=device) - 1.0


TRANSFORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"erase": erased, "warp": warped}


class Visits:
    """Which images of a batch are transformed."""

    def __init__(self, run: Run, samples: int) -> None:
        self._reach = math.inf
        if run.repeats:
            if not run.block and not run.cache.endswith("%"):
                raise SystemExit(f"--repeats needs --cache as a share of the images, not `{run.cache}`")
            window = run.block or float(run.cache[:-1]) / 100.0
            # A round of `carousel` serves the window once, in any order, and so does a pass over a block:
            # visits are up to two rounds apart.
            self._reach = 2 * window * samples
        self._last = torch.full((samples,), -math.inf if run.repeats else 0.0)
        self._now = 0

    def __call__(self, ids: Tensor) -> Tensor:
        """Whether each image of the next batch is transformed: it came a short while ago, or all are."""
        chosen = self._now - self._last[ids] <= self._reach
        self._last[ids] = float(self._now)
        self._now += len(ids)
        return chosen
