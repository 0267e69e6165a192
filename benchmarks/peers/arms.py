"""The rows: who reads what, and how many epochs it takes until one is as all later ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Arm:
    """One way to read."""

    name: str
    feed: str
    """The module of `benchmarks.peers.feeds`, and its environment; `hotset` runs in this one."""
    layout: str
    epochs: int = 4
    steady: int = 1
    """The first epoch that is as all later ones are."""
    keeps: bool = True
    """Whether it has a cache: one that has none is not run again where everything would fit."""
    kinds: tuple[str, ...] = ("small", "large")
    """The datasets that it can read."""
    options: dict[str, Any] = field(default_factory=dict)


def _hotset(name: str, layout: str, **more: Any) -> Arm:
    words = {"options": {"layout": layout} | more.pop("options", {})}
    return Arm(f"Hotset {name}", "hotset", layout, **words, **more)


ARMS = [
    Arm("PyTorch, boto3", "boto3", "objects", epochs=3, keeps=False, options={"layout": "objects"}),
    Arm(
        "s3torchconnector",
        "s3torchconnector",
        "objects",
        epochs=2,
        keeps=False,
        options={"layout": "objects"},
    ),
    Arm("WebDataset", "webdataset", "shards"),
    Arm("litdata", "litdata", "chunks"),
    Arm("Streaming", "streaming", "MDS"),
    Arm("HF datasets", "datasets", "shards", epochs=3, keeps=False),
    _hotset("`uniform`", "objects"),
    _hotset("`uniform`", "shards"),
    _hotset(
        "`uniform` by runs",
        "shards",
        # Samples of 64 KiB and more are worth a request each.
        kinds=("small",),
        options={"sampler": {"settings": {"order": "runs"}}},
    ),
    _hotset(
        "`iis`, packages",
        "objects",
        epochs=9,
        steady=5,
        options={"sampler": {"strategy": "iis"}, "packages": True},
    ),
    _hotset(
        "`carousel` 0.25",
        "objects",
        epochs=5,
        steady=2,
        options={"sampler": {"strategy": "carousel", "settings": {"fresh": 0.25}}},
    ),
]
