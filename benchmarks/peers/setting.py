"""What an arm is told: where the samples lie, how much it may keep, and how it trains."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

BATCH = 64
WORKERS = 4
PACE = 0.005
"""Seconds that training a batch takes."""
REQUESTS = 32
"""That the store works on at a time, and that an arm which can be told has under way."""

Sample = tuple[bytes, int]
"""Digest and label."""


@dataclass(frozen=True)
class Setting:
    """Of one arm in one repetition."""

    feed: str
    """The module of `benchmarks.peers.feeds` that reads."""
    kind: str
    endpoint: str
    bucket: str
    access: str
    secret: str
    region: str
    shards: int
    cache: int
    """Bytes that may be kept."""
    whole: bool
    """Whether that is room for everything."""
    folder: str
    """Of this arm alone, gone when it ends."""
    truth: str
    epochs: int
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    def url(self, layout: str) -> str:
        """`s3://` of a layout."""
        return f"s3://{self.bucket}/{self.kind}/{layout}"

    def shard_keys(self) -> list[str]:
        """Of the tar shards, in the bucket."""
        return [f"{self.kind}/shards/{number:06}.tar" for number in range(self.shards)]

    def write(self, path: Path) -> None:
        """For `read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Setting:
        """What was written."""
        return cls(**json.loads(path.read_text()))


class Feed(Protocol):
    """How an arm reads."""

    settings: dict[str, object]
    """What it was set to, to be shown."""

    def epoch(self, number: int) -> Iterator[list[Sample]]:
        """The batches of an epoch."""
        ...

    def close(self) -> None:
        """Ends what it started."""
        ...
