"""A small convolutional network and its training loop, the same for every arm."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .arms import Feed


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
    model: nn.Module, optimizer: torch.optim.Optimizer, feed: Feed, epoch: int, step: Callable[[], object]
) -> EpochTimes:
    """One epoch over what `feed` yields, and all that it asks for before; calls `step` after each batch."""
    samples, loss_sum, waited = 0, 0.0, 0.0
    started = time.perf_counter()
    feed.begin(epoch, model)
    model.train()
    asked = time.perf_counter()
    for images, labels, ids in feed.loader:
        waited += time.perf_counter() - asked
        optimizer.zero_grad()
        losses = functional.cross_entropy(model(images), labels, reduction="none")
        feed.report(ids, losses).mean().backward()
        optimizer.step()
        samples += len(labels)
        loss_sum += float(losses.detach().sum())
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
