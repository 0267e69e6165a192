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
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_EDGE = 4
"""Pixels around an image, of which crops take some."""

MEAN, SPREAD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Of CIFAR-10's training images, by channel."""


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

    def on(self, device: torch.device) -> Pixels:
        """The same, where the model is."""
        return Pixels(self.images.to(device), self.labels.to(device), self.decoder)

    def plain(self, ids: Tensor) -> Tensor:
        """The images as they are, as the model takes them."""
        return _scaled(self.images[ids])

    def padded(self) -> Tensor:
        """All images with an edge of zeros, for `cropped`."""
        edged = torch.nn.functional.pad(self.images, (0, 0, _EDGE, _EDGE, _EDGE, _EDGE))
        return edged.contiguous()


def cropped(padded: Tensor, ids: Tensor) -> Tensor:
    """The images `ids` of `padded`, each shifted by up to 4 pixels and mirrored at random."""
    count, height, width = len(ids), padded.shape[1] - 2 * _EDGE, padded.shape[2] - 2 * _EDGE
    device = padded.device
    top, left = torch.randint(0, 2 * _EDGE + 1, (2, count, 1), device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    along = torch.arange(width, device=device).expand(count, width)
    columns = left + torch.where(mirrored, width - 1 - along, along)
    rows = top + torch.arange(height, device=device)
    return _scaled(padded[ids[:, None, None], rows[:, :, None], columns[:, None, :]])


def _scaled(images: Tensor) -> Tensor:
    mean, spread = _scale(images.device)
    # Channels are last in memory already; this only renames the dimensions.
    return ((images.float() - mean) / spread).permute(0, 3, 1, 2)


@cache
def _scale(device: torch.device) -> tuple[Tensor, Tensor]:
    # Kept, since a graph that is recorded cannot fetch numbers from the processor.
    return torch.tensor(MEAN, device=device) * 255.0, torch.tensor(SPREAD, device=device) * 255.0


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
    name, decode = _decoder(sample)
    first = decode(sample)
    images = torch.empty((len(files), *first.shape), dtype=torch.uint8)
    for place, (path, _) in enumerate(files):
        images[place] = decode(path.read_bytes())
    return images, torch.tensor([label for _, label in files]), name


def _decoder(sample: bytes) -> tuple[str, Callable[[bytes], Tensor]]:
    """The name of a decoder that is there, and what makes [height, width, 3] of a file's bytes."""
    try:
        from torchvision.io import ImageReadMode, decode_image

        def with_torchvision(data: bytes) -> Tensor:
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

    def with_pillow(data: bytes) -> Tensor:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        made = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return made.view(image.height, image.width, 3)

    return "Pillow", with_pillow
