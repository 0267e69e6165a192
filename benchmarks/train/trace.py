"""The losses of a training, by epoch and sample, as `hotset simulate --trace` takes them.

    python -m benchmarks.train.train --epochs 90 --data cifar10 --trace resnet18-cifar10.npz

`loss` is the loss at which a sample was trained, NaN where an epoch did not train it; `reeval` is its loss,
as it is, under the model at the end of that epoch. Both are float16, [epochs, ids].
"""

from __future__ import annotations

from pathlib import Path

import numpy
import torch
from torch import Tensor


class Trace:
    """What is kept of a run; the epoch under way stays where the model is."""

    def __init__(self, path: Path, samples: int, device: torch.device) -> None:
        self._path = path
        self._loss, self._reeval = list[Tensor](), list[Tensor]()
        self._now = torch.full((samples,), torch.nan, device=device)

    def trained(self, ids: Tensor, losses: Tensor) -> None:
        """Keeps the losses of a batch; of a sample that comes again in an epoch the last."""
        self._now[ids.to(self._now.device, non_blocking=True)] = losses

    def end_epoch(self, reevaluated: Tensor) -> None:
        """Ends an epoch with every sample's loss under the model as it is now."""
        self._loss.append(self._now.half().cpu())
        self._reeval.append(reevaluated.half().cpu())
        self._now.fill_(torch.nan)

    def write(self) -> None:
        """Writes the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("wb") as file:
            numpy.savez_compressed(
                file, loss=torch.stack(self._loss).numpy(), reeval=torch.stack(self._reeval).numpy()
            )
