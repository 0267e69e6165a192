"""What the jobs of the soak train, on what, and what becomes of them.

Kinds and fates are dealt from decks, each shuffled by the seed: in every round of a deck all of it comes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

FAULTS = {
    "fault.rate": "0.02",
    "fault.stall": "0.01",
    "fault.stall_for": "20ms",
    "fault.truncate": "0.002",
    "fault.swap": "0.002",
}


@dataclass(frozen=True)
class Data:
    """Small files in a folder, of which `share` of the soak's samples, and how slow they are to read."""

    name: str
    share: float
    smallest: int
    largest: int
    latency: str

    def made(self, place: Path, samples: int, seed: int) -> Path:
        """Writes files whose bytes nothing else could stand in for."""
        draw = random.Random(f"{seed} {self.name}")
        for number in range(int(samples * self.share)):
            folder = place / self.name / f"{number // 256:03d}"
            folder.mkdir(parents=True, exist_ok=True)
            content = draw.randbytes(draw.randint(self.smallest, self.largest))
            (folder / f"{number:06d}.bin").write_bytes(content)
        return place / self.name

    def options(self, seed: int) -> dict[str, str]:
        """How its storage is slow and fails: alike for all jobs, so that they share what is read."""
        return {**FAULTS, "throttle.latency": self.latency, "fault.seed": str(seed)}


DATA = {
    data.name: data for data in (Data("near", 1.0, 600, 2400, "1ms"), Data("far", 0.6, 1500, 5000, "4ms"))
}


class Serves(Enum):
    """What an epoch of a plan holds."""

    ALL = "every id once"
    SOME = "no id twice"
    DRAWN = "what is drawn"


@dataclass(frozen=True)
class Kind:
    """A strategy and a policy on one of the datasets."""

    data: str
    strategy: str
    policy: str
    serves: Serves
    packages: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As tables have it."""
        return f"{self.strategy}+{self.policy}{', packages' if self.packages else ''}"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("near", "uniform", "minio", Serves.ALL),
        Kind("near", "iis", "icache", Serves.SOME, packages=True),
        Kind("far", "quiver", "quiver", Serves.ALL),
        Kind("far", "pads", "app", Serves.DRAWN),
        Kind("near", "hybrid", "impact", Serves.SOME, packages=True, settings={"warmup_max": 2}),
        Kind("far", "carousel", "carousel", Serves.DRAWN),
        Kind("near", "iis", "icache", Serves.SOME),
        Kind("far", "uniform", "lru", Serves.ALL),
        Kind("far", "infobatch", "minio", Serves.SOME),
    )
}


class Fate(Enum):
    """What becomes of one process of a job."""

    ENDS = "trains to its end"
    WORKER = "workers are killed; it begins the epoch over, and trains to its end"
    LOST = "is killed, and nobody goes on with it"
    RESUMED = "is killed, and gone on with by `resume=True`"
    LOADED = "is killed, and gone on with by `load_state_dict`"

    @property
    def is_killed(self) -> bool:
        """Whether the trainer itself is killed."""
        return self not in (Fate.ENDS, Fate.WORKER)


class Deck(Generic[T]):
    """Deals what it holds, again and again, each time in another order."""

    def __init__(self, cards: Sequence[T], draw: random.Random) -> None:
        self._cards, self._draw, self._left = list(cards), draw, list[T]()

    def deal(self) -> T:
        """The next."""
        if not self._left:
            self._left = self._draw.sample(self._cards, len(self._cards))
        return self._left.pop()
