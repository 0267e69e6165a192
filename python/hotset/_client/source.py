"""Where a dataset's samples come from: what a `Dataset` and a `Sampler` ask.

Two answer: `ServerSource` through a server, `DirectSource` past every server.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import _core

Label = Any
"""An int, a float, or a list of either."""


@dataclass(frozen=True)
class Catalog:
    """What was listed."""

    dataset: str
    samples: int
    bytes: int
    classes: tuple[str, ...]
    labelled: bool
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Catalog:
        """From the fields of the protocol's `DatasetOpened`."""
        return cls(
            dataset=str(fields["dataset"]),
            samples=int(fields["samples"]),
            bytes=int(fields["bytes"]),
            classes=tuple(fields["classes"]),
            labelled=bool(fields["labelled"]),
            parts=tuple(fields["parts"]),
        )


@dataclass(frozen=True)
class Scheme:
    """How a job is planned and kept, and what it is opened with besides."""

    settings: dict[str, Any] = field(default_factory=dict)
    """By the names of the protocol's `JobSettings`; what is left out is as the protocol has it."""
    package_options: dict[str, str] = field(default_factory=dict)
    state: bytes | None = None
    """Where the job resumes."""

    @property
    def planned(self) -> bool:
        """Whether a sampler plans it."""
        return bool(self.settings.get("strategy"))


KEPT = Scheme()
"""Of a dataset without a sampler, such as one for validation: kept as asked for, by the default policy."""


class Batch(Protocol):
    """The samples of one request, in its order."""

    def __len__(self) -> int: ...
    def views(self) -> list[memoryview]: ...
    def bytes(self) -> list[bytes]: ...
    @property
    def labels(self) -> list[Label]: ...
    @property
    def parts(self) -> list[int]: ...


class Plan(Protocol):
    """One rank's slots of one epoch."""

    def __len__(self) -> int: ...
    def block(self, start: int, stop: int) -> list[int]:
        """The ids of slots `start` to `stop`."""

    def weights(self, start: int, stop: int) -> list[float] | None: ...


class Order(Protocol):
    """The order that a trainer gives for an epoch, of all ranks together."""

    @property
    def digest(self) -> int:
        """Tells it from other orders."""

    def ids(self) -> bytes:
        """As 32-bit integers; asked for where no plan was made of it yet."""


class Planning(Protocol):
    """Answers what a sampler asks."""

    @property
    def catalog(self) -> Catalog: ...
    @property
    def options(self) -> Mapping[str, str]:
        """How the dataset's store is reached."""

    @property
    def past_server(self) -> bool:
        """Whether samples are read past every server, in `uniform` order."""

    @property
    def run(self) -> str:
        """The run that is trained, by the id the server gave it; it stays when the run is resumed."""

    @property
    def resumed(self) -> int | None:
        """The epoch at which a run resumes, where the server knows what it had learned."""

    def attach(self, scheme: Scheme, rank: int | None, world: int | None, resume: bool = False) -> None:
        """Plans from now on, as `scheme` says and for the rank given, if one is.

        With `resume` it continues the newest run of the job's name.
        """

    def resume(self, run: str, epoch: int, position: int) -> None:
        """Goes on with `run` where each rank had trained `position` slots of `epoch`."""

    def ranks(self) -> tuple[int, int]:
        """The rank of this process, and how many there are."""

    def plan(self, epoch: int, start: int, order: Order | None = None) -> Plan:
        """The plan this rank has of `epoch`, of which `start` slots were trained already.

        `order` is the trainer's own, for a strategy that takes one.
        """

    def report(self, epoch: int, upto: int, ids: Sequence[int], scores: Sequence[float]) -> None:
        """Scores of samples as trained; `upto` slots of this rank were reported, these included."""

    def reevaluation(self, epoch: int) -> Sequence[int]:
        """The samples whose losses under the current model this rank must tell before `epoch`."""

    def reevaluated(self, epoch: int, ids: Sequence[int], losses: Sequence[float], last: bool) -> None:
        """Losses under the current model; `last` when there are no more."""

    def end_epoch(self, epoch: int, accuracy: float | None) -> None:
        """This rank has trained `epoch` to its end."""

    def importance(self) -> bytes:
        """All that plans are made from, to resume elsewhere."""

    def restore(self, state: bytes) -> None:
        """Goes on from what `importance` gave, here or elsewhere."""

    def scores(self) -> array[float]:
        """The last score of every sample; not a number where there is none."""

    def stats(self) -> dict[str, Any]: ...


class Source(Planning, Protocol):
    """Answers what a dataset and its sampler ask."""

    identity: str
    """Tells it from every other source, in all processes that it is copied to."""

    @property
    def planned(self) -> bool:
        """Whether a sampler plans it."""

    def batch(self, asked: _core.Indices, *, matched: bool = False) -> Batch:
        """Samples; `matched` where a wrapper may have lost the epochs that planned them."""

    def describe(self, first: int, count: int) -> tuple[list[str], list[Label], list[int]]:
        """Keys, labels and sizes of `count` samples from `first`."""

    def reevaluation_batch(self, epoch: int, ids: Sequence[int]) -> Batch:
        """Samples to be re-evaluated before `epoch`; no servings."""

    def select(self, ids: Sequence[int]) -> Source:
        """Answers for a part of the samples, as a dataset of its own."""

    def close(self) -> None: ...
