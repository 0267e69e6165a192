"""A small convolutional network and its training loop, the same for every arm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class EpochTimes:
    """Where one epoch's time went."""

    seconds: float
    # The part of it that the loop waited for the loader.
    waited: float
    samples: int
    loss: float


def network(classes: int, seed: int) -> nn.Module:
    """Two convolutions and a linear layer over RGB images of any size, the same weights for the same seed."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, classes),
    )


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[Any], step: Callable[[], object]
) -> EpochTimes:
    """One epoch over `loader`, which yields images and labels; calls `step` after each batch."""
    model.train()
    samples, loss_sum, waited = 0, 0.0, 0.0
    started = asked = time.perf_counter()
    for images, labels in loader:
        waited += time.perf_counter() - asked
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        samples += len(labels)
        loss_sum += loss.item() * len(labels)
        step()
        asked = time.perf_counter()
    # The last wait is for the loader to say that there is no more.
    ended = time.perf_counter()
    return EpochTimes(ended - started, waited + ended - asked, samples, loss_sum / max(samples, 1))


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of `images` that the model names rightly."""
    model.eval()
    with torch.no_grad():
        named = torch.cat([model(some).argmax(1) for some in images.split(500)])
    return int((named == labels).sum()) / len(labels)
