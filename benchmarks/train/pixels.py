"""All images of a split, decoded once and kept where the model is.

Decoding 50,000 JPEG files again in every epoch would measure the decoder. So they are decoded once, by
torchvision if it is there, else by Pillow, and kept as bytes beside the files for the next run. What Hotset
serves is still asked for sample by sample; only the pixels come from here, by id.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

_EDGE = 8
"""Crops shift an image by up to an eighth of its side."""


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of the training images, by channel, from 0 to 255."""

    mean: Tensor
    spread: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """Bytes as the model takes them. Channels stay last in memory; their dimension is renamed."""
        return ((images.float() - self.mean) / self.spread).permute(0, 3, 1, 2)


def unpacked(archive: Path, into: Path) -> Path:
    """The folder that `archive` was unpacked into, now or before."""
    done = into / ".unpacked"
    if not done.exists():
        into.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            tar.extractall(into, filter="data")
        done.touch()
    return into


@dataclass(frozen=True)
class Pixels:
    """The images and labels of a split, by id."""

    images: Tensor
    """[ids, height, width, 3], bytes, in ids' order: what torchvision's `ImageFolder` calls them."""
    labels: Tensor
    decoder: str

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def side(self) -> int:
        """The height of an image in pixels."""
        return self.images.shape[1]

    def on(self, device: torch.device) -> Pixels:
        """The same, where the model is."""
        return Pixels(self.images.to(device), self.labels.to(device), self.decoder)

    def part(self, ids: list[int]) -> Pixels:
        """These images alone, in this order."""
        return Pixels(self.images[ids], self.labels[ids], self.decoder)

    def scale(self) -> Scale:
        """The scale of these images, on their device."""
        total = torch.zeros(3, dtype=torch.float64, device=self.images.device)
        squares = total.clone()
        for some in self.images.split(5000):
            values = some.double()
            total += values.sum((0, 1, 2))
            squares += values.square().sum((0, 1, 2))
        count = self.images[..., 0].numel()
        mean = total / count
        spread = (squares / count - mean.square()).clamp(min=1.0).sqrt()
        return Scale(mean.float(), spread.float())

    def padded(self) -> Tensor:
        """All images with an edge of zeros, for `cropped`."""
        edge = self.side // _EDGE
        edged = torch.nn.functional.pad(self.images, (0, 0, edge, edge, edge, edge))
        return edged.contiguous()


def cropped(padded: Tensor, side: int, ids: Tensor) -> Tensor:
    """The images `ids` of `padded`, square ones of `side`, each shifted and mirrored at random."""
    count, device = len(ids), padded.device
    top, left = torch.randint(0, padded.shape[1] - side + 1, (2, count, 1), device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    along = torch.arange(side, device=device).expand(count, side)
    columns = left + torch.where(mirrored, side - 1 - along, along)
    rows = top + torch.arange(side, device=device)
    return padded[ids[:, None, None], rows[:, :, None], columns[:, None, :]]


def decoded(split: Path) -> Pixels:
    """The images below `split`, in the order of torchvision's `ImageFolder`."""
    kept = split.with_name(f"{split.name}-decoded.pt")
    if not kept.exists():
        made = _decode_all(split)
        partial = kept.with_name(f"{kept.name}.{os.getpid()}")
        torch.save(made, partial)
        partial.rename(kept)
    images, labels, name = torch.load(kept)
    return Pixels(images, labels, name)


def _decode_all(split: Path) -> tuple[Tensor, Tensor, str]:
    classes = sorted(folder.name for folder in split.iterdir() if folder.is_dir())
    files = [
        (path, label)
        for label, named in enumerate(classes)
        for path in sorted((split / named).iterdir(), key=str)
        if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    ]
    if not files:
        raise SystemExit(f"no images below `{split}`; --data names a folder with `train` and `test` in it")
    sample = files[0][0].read_bytes()
    name, decode = decoder(sample)
    first = decode(sample)
    images = torch.empty((len(files), *first.shape), dtype=torch.uint8)
    for place, (path, _) in enumerate(files):
        images[place] = decode(path.read_bytes())
    return images, torch.tensor([label for _, label in files]), name


def decoder(sample: bytes) -> tuple[str, Callable[[bytes | memoryview], Tensor]]:
    """The name of a decoder that is there, and what makes [height, width, 3] of a file's bytes."""
    try:
        from torchvision.io import ImageReadMode, decode_image

        def with_torchvision(data: bytes | memoryview) -> Tensor:
            made: Tensor = decode_image(
                torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB
            )
            return made.permute(1, 2, 0)

        with_torchvision(sample)
        return "torchvision", with_torchvision
    except (ImportError, RuntimeError):
        # Some builds of torchvision come without their decoders, and say so only when they are called.
        pass
    try:
        from PIL import Image
    except ImportError:
        raise SystemExit(
            "neither torchvision nor Pillow is here to decode images: pip install pillow"
        ) from None

    def with_pillow(data: bytes | memoryview) -> Tensor:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        made = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return made.view(image.height, image.width, 3)

    return "Pillow", with_pillow
