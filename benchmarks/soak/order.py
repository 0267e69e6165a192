"""What a process of the soak shall train, told to it when it is started.

The soak itself does without torch: what is here can be had without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.soak.kinds import Fate

BATCH = 32
TRAINER = "benchmarks.soak.trainer"


@dataclass(frozen=True)
class Order:
    """What a process shall train."""

    job: str
    kind: str
    place: Path
    """The folder of its dataset."""
    folder: Path
    """Where the job has its checkpoint, its packages and its log."""
    seed: int
    faults: int
    """The seed of its storage's faults."""
    epochs: int
    pace: float
    """Seconds that a batch takes to train."""
    workers: int
    before: Fate | None = None
    """What became of the process that it goes on with, if it does."""
    doomed: bool = False
    """Whether it is to be killed, and so must not end by itself."""
    server: str | None = None
    """The server's socket; a private one without it."""


def ended(worker: int) -> str:
    """What a worker that was told to end says in the log, before it does."""
    return f"worker {worker} ends in a batch"


def obey(order: Order, line: Connection) -> None:
    """The process."""
    from benchmarks.soak import trainer

    trainer.main(order, line)
