"""`ImageFolder`: torchvision's, served through the cache.

The same tree, the same order, the same labels and, with the same transforms, the same samples. A loader gets
the bytes of the file instead of its path, because most files are never opened in this process.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from .._client.source import Batch
from ..errors import InvalidError
from .classes import Classes
from .dataset import Dataset
from .options import OptionArguments, Options

_BLOCK = 16_384
"""Samples described in one call when the whole dataset is asked for."""


class ImageFolder(Classes, Dataset):
    """Images in one folder for each class.

    `root`, `transform`, `target_transform` and `loader` are those of torchvision, except that `loader` gets a
    `memoryview` of the file. For the other arguments see `Dataset`. Samples are `(image, label)`, or
    `(image, label, id)` with `with_ids=True`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: Callable[[memoryview], Any] | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        if loader is None:
            _pillow()
        self.transform = transform
        self.target_transform = target_transform
        self.loader = pil_loader if loader is None else loader
        self.decode = None
        self._open(Options(**options), "images", root)
        self.root = str(Path(root).expanduser()) if "://" not in os.fspath(root) else os.fspath(root)

    @cached_property
    def samples(self) -> list[tuple[str, int]]:
        """The path and the label of every sample."""
        every, folder = len(self), self.root.rstrip("/")
        found: list[tuple[str, int]] = []
        while len(found) < every:
            keys, labels, _ = self.source.describe(len(found), min(_BLOCK, every - len(found)))
            found.extend((f"{folder}/{key}", label) for key, label in zip(keys, labels, strict=True))
        return found

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """Another name for `samples`."""
        return self.samples

    @cached_property
    def targets(self) -> list[int]:
        """The label of every sample."""
        return [label for _, label in self.samples]

    def _samples(self, ids: list[int], batch: Batch, first: int = 0) -> list[Any]:
        samples: list[Any] = []
        for number, view, label in zip(ids, batch.views(), batch.labels, strict=True):
            image = self._decoded(self.loader, number, view)
            if self.transform is not None:
                image = self.transform(image)
            target = label if self.target_transform is None else self.target_transform(label)
            samples.append((image, target, first + number) if self.with_ids else (image, target))
        return samples

    def __getstate__(self) -> dict[str, Any]:
        # Workers do not need these, so they are not sent.
        return {name: value for name, value in self.__dict__.items() if name not in ("samples", "targets")}


def pil_loader(view: memoryview) -> Any:
    """The image as Pillow reads it, in RGB as in torchvision."""
    with _pillow().open(io.BytesIO(view)) as image:
        return image.convert("RGB")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidError(
            "`ImageFolder` reads images with Pillow, which is not installed; "
            "run `pip install pillow`, or give a `loader=` of your own"
        ) from error
    return Image
