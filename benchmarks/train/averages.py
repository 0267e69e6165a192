"""Averages of a model's weights over the last epochs, and batch normalisation estimated anew.

`carousel` trains on a window that is replaced within a boarding period, 1 / `fresh` epochs: the last weights,
and the last statistics of batch normalisation even more, are those of the last window. So a run with
`average` is tested, at its end and without training on, in several ways (`tested`):

| name | weights | batch normalisation |
| --- | --- | --- |
| `plain` | the last | as trained |
| `window`, `all` | the last | estimated anew |
| `averaged 4 window`, `averaged 4 all` | mean over the steps of the last 4 epochs | estimated anew |
| `averaged 2 window` and so on | the same over half and a quarter of them | estimated anew |

`window` takes the images served last, a fifth of an epoch, which a cache of a fifth still holds. `all` takes
as many of all training images, most of which would be read once more.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .pixels import Pixels
from .step import Step, losses_of

_RECENT = 0.2
"""Of an epoch: the share of images that batch normalisation is estimated with."""

PARTS = (1.0, 0.5, 0.25)
"""Of the epochs to average over: all, half and a quarter, each tested."""


class Averages:
    """Sums of the weights, one for each of the `PARTS`, and what was served last."""

    def __init__(self, step: Step, epochs: int, average: float, samples: int) -> None:
        self._step = step
        self._begins = {part * average: epochs - part * average for part in PARTS}
        self._sums: dict[float, list[Tensor]] = {}
        self._steps = dict.fromkeys(self._begins, 0)
        self._samples = samples
        self._recent = list[Tensor]()

    @torch.no_grad()
    def add(self, done: float, ids: Tensor) -> None:
        """Hears of a step that began after `done` epochs and trained `ids`."""
        self._recent.append(ids)
        del self._recent[: -max(round(_RECENT * self._samples / len(ids)), 2)]
        weights = self._step.optimizer.parameters
        for span, begins in self._begins.items():
            if done >= begins - 1e-9:
                if span not in self._sums:
                    self._sums[span] = [torch.zeros_like(weight) for weight in weights]
                torch._foreach_add_(self._sums[span], weights)
                self._steps[span] += 1

    def averaged(self, span: float) -> list[Tensor]:
        """The mean of the weights over the last `span` epochs."""
        return [total / self._steps[span] for total in self._sums[span]]

    @torch.no_grad()
    def tested(self, test: Pixels, half: bool) -> dict[str, dict[str, float]]:
        """Top-1 and top-5 of all ways, by name. The model is left as it was."""
        model, weights = self._step.model, self._step.optimizer.parameters
        every = [*weights, *model.buffers()]
        kept = [value.clone() for value in every]
        device = weights[0].device
        drawn = torch.randperm(self._samples, generator=torch.Generator().manual_seed(0))
        size = len(self._recent[0])
        few = {"window": self._recent, "all": [*drawn[: size * len(self._recent)].split(size)]}
        found = {"plain": accuracy(model, test, self._step, half)}
        for span in (None, *self._sums):
            if span is not None:
                torch._foreach_copy_(weights, self.averaged(span))
            for name, batches in few.items():
                estimate(self._step, [batch.to(device) for batch in batches if len(batch) > 1])
                named = name if span is None else f"averaged {span:g} {name}"
                found[named] = accuracy(model, test, self._step, half)
        torch._foreach_copy_(every, kept)
        return found


def accuracy(model: nn.Module, test: Pixels, step: Step, half: bool) -> dict[str, float]:
    """Top-1 and top-5 of the model on `test`, in percent."""
    every = torch.arange(len(test), device=test.labels.device)
    _, ranks = losses_of(model, test, step.scale, every, half)
    return {f"top{k}": round(100.0 * float((ranks < k).float().mean()), 3) for k in (1, 5)}


def estimate(step: Step, batches: list[Tensor]) -> None:
    """Sets the statistics of batch normalisation to their mean over `batches`."""
    layers = [layer for layer in step.model.modules() if isinstance(layer, nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        # Without one the mean is that of all batches, each counted alike.
        layer.momentum = None
    step.model.train()
    for ids in batches:
        step.output(step.images(ids))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
