"""What the controls of a comparison train: a part of the images, or batches and blocks that come again.

A strategy that reads less must be held against simpler ways to read as little:

| control | reads less because |
| --- | --- |
| fewer epochs | there are fewer of them, and the learning rate falls to 0 all the same |
| `subset` | the images are fewer, drawn once |
| `echo` | each batch is trained several times in a row |
| `block` | a share of the images is gathered, trained `echo` times in new orders, and given up for the next |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from .run import Run

_HOLD_OUT = 2026
"""The seed of the images that are held out: the same for all runs, or a choice would see them."""


def held_out(samples: int, count: int) -> list[int]:
    """The images that are held out of training, in order."""
    drawn = torch.randperm(samples, generator=torch.Generator().manual_seed(_HOLD_OUT))
    return sorted(drawn[:count].tolist())


def trained(run: Run, labels: Tensor) -> list[int] | None:
    """The images that `run` trains with, in order; none if it is all of them."""
    chosen = list(range(len(labels)))
    if run.images:
        chosen = _first_of_each_class(labels, run.images)
    if run.held_out:
        without = set(held_out(len(labels), run.held_out))
        chosen = [number for number in chosen if number not in without]
    if run.subset:
        if run.subset > len(chosen):
            raise SystemExit(f"--subset {run.subset} is more than the {len(chosen)} images there are")
        drawn = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(run.seed))
        chosen = sorted(chosen[place] for place in drawn[: run.subset].tolist())
    return None if len(chosen) == len(labels) else chosen


def repeated(run: Run, epoch: int, batches: Iterable[list[int]], samples: int) -> Iterator[list[int]]:
    """The whole batches that are trained while the `batches` of an epoch over `samples` are served."""
    if not run.block:
        whole = (batch for batch in batches if len(batch) == run.batch)
        for number, batch in enumerate(whole, epoch * (samples // run.batch)):
            for _ in range(_times(run.echo, number)):
                yield batch
        return
    shuffle = torch.Generator().manual_seed(1_000_000 * run.seed + epoch)
    size, gathered = max(round(run.block * samples), run.batch), list[int]()
    number = epoch * -(-samples // size)
    for batch in batches:
        gathered += batch
        if len(gathered) >= size:
            yield from _passes(gathered, _times(run.echo, number), run.batch, shuffle)
            gathered, number = [], number + 1
    yield from _passes(gathered, _times(run.echo, number), run.batch, shuffle)


def _passes(ids: list[int], times: int, size: int, shuffle: torch.Generator) -> Iterator[list[int]]:
    """`times` passes over `ids`, each in an order of its own, as whole batches."""
    orders = [torch.randperm(len(ids), generator=shuffle).tolist() for _ in range(times)]
    every = [ids[place] for order in orders for place in order]
    for first in range(0, len(every) - size + 1, size):
        yield every[first : first + size]


def _times(echo: float, number: int) -> int:
    """How often batch or block `number` is trained, so that all together come to `echo` on average."""
    return int((number + 1) * echo + 1e-9) - int(number * echo + 1e-9)


def _first_of_each_class(labels: Tensor, images: int) -> list[int]:
    """About `images` ids, as many of each class."""
    classes = labels.unique().tolist()
    each = max(images // len(classes), 1)
    chosen = [number for label in classes for number in (labels == label).nonzero()[:each, 0].tolist()]
    return sorted(chosen)
