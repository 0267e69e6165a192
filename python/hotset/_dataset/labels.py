"""Samples of one or several parts, each with a label: what `Shards` and `Manifest` have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._client.source import Batch
from .classes import Classes
from .dataset import Dataset

ABSENT = 2**32 - 1
"""Where a part begins that its sample does not have."""


class LabelledDataset(Classes, Dataset):
    """Samples as `(sample, label)`, or alone where there are no labels; the id comes last, if requested."""

    transform: Callable[[Any], Any] | None = None
    """Turns what was decoded into what is trained."""
    target_transform: Callable[[Any], Any] | None = None
    """Turns a label into a target."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of a sample's parts, optional ones with a `?`; empty where a sample has no parts."""
        return self._source.catalog.parts

    def _samples(self, ids: list[int], batch: Batch, first: int = 0) -> list[Any]:
        views, labels = batch.views(), batch.labels
        places = batch.parts
        width = len(places) // len(ids)
        samples: list[Any] = []
        pieces: list[memoryview | None]
        for at, (number, view) in enumerate(zip(ids, views, strict=True)):
            if width:
                spans = places[at * width : (at + 1) * width]
                pieces = [
                    None if begin == ABSENT else view[begin : begin + length]
                    for begin, length in zip(spans[::2], spans[1::2], strict=True)
                ]
            else:
                pieces = [view]
            sample = self._made(number, view, pieces)
            if self.transform is not None:
                sample = self.transform(sample)
            if labels or self.with_ids:
                own = labels[at : at + 1]
                if self.target_transform is not None:
                    own = [self.target_transform(label) for label in own]
                sample = (sample, *own, *([first + number] if self.with_ids else []))
            samples.append(sample)
        return samples

    def _made(self, number: int, view: memoryview, pieces: list[memoryview | None]) -> Any:
        decode: Callable[..., Any] | None = self.decode
        if decode is None:
            made = tuple(None if piece is None else bytes(piece) for piece in pieces)
            return made[0] if len(made) == 1 else made
        return self._decoded(lambda _: decode(*pieces), number, view)
