"""`HOTSET=off`: the same samples, read from the store in this process, with no server and no cache.

For finding out whether a fault is Hotset's, and for machines where no server may run. Every strategy is
served as `uniform`, which is said once. What is read is counted here (`tally`), for comparing.
"""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import Sequence
from typing import Any

from .. import _core
from ..errors import ChangedError
from .listed_source import ListedSource
from .listing import Listing, Progress
from .rank import Ranks
from .source import Catalog, Label, Order, Plan, Scheme
from .stream_plan import StreamPlan
from .tally import Counts, Tally

_log = logging.getLogger(__name__)
_said = False
_TEXT = (
    "HOTSET=off: samples are read past the server and its cache, in `uniform` order unless `ids=` or "
    "`shuffle=False` says another"
)

_inherited: list[_core.Catalog] = []
"""Listings of the process that forked this one. The threads behind an object store are not inherited, so they
cannot be used here, nor ended."""


class DirectSource(ListedSource):
    """Answers a dataset from its store."""

    def __init__(self, listing: Listing, *, progress: Progress | None) -> None:
        super().__init__(listing)
        _say_once()
        self._tally = Tally()
        self._pid = os.getpid()
        self._native: _core.Catalog | None = self._list(progress)
        self._catalog = Catalog.of(self._native.info())

    @property
    def past_server(self) -> bool:
        return True

    run = ""
    resumed: int | None = None

    def attach(self, scheme: Scheme, rank: int | None, world: int | None, resume: bool = False) -> None:
        self._scheme, self._ranks = scheme, Ranks(rank, world)

    def resume(self, run: str, epoch: int, position: int) -> None:
        """Past the server every plan follows from the seed, and nothing is learned."""

    def batch(self, asked: _core.Indices, *, matched: bool = False) -> Read:
        # A loader's batch is of one epoch.
        return self._read(asked.ids(), 1 + min(asked.epochs(), default=-1))

    def _read(self, samples: Sequence[int], number: int = 0) -> Read:
        """Samples that are counted in the epoch of that number, counted from 1; 0 is none."""
        listed = self._listed()
        labels = [listed.label(sample) for sample in samples] if self.catalog.labelled else []
        began = time.monotonic()
        read = [listed.read(sample) for sample in samples]
        ended = time.monotonic()
        self._tally.add(number, Counts(len(read), sum(map(len, read)), 1, ended - began, began, ended))
        return Read(
            read,
            [label for label in labels if label is not None],
            [place for sample in samples for place in listed.parts(sample)],
        )

    def plan(self, epoch: int, start: int, order: Order | None = None) -> Plan:
        rank, world = self.ranks()
        if order is not None:
            return _core.given_plan(order.ids(), epoch, rank, world, self._scheme.settings["pad"])
        length = self._scheme.settings["strategy_settings"].get("epoch_length")
        pad = self._scheme.settings["pad"] and (length is None or self.catalog.samples < world)

        def planned(number: int) -> Plan:
            samples, seed = self.catalog.samples, self._scheme.settings["seed"]
            return _core.seed_plan(self._strategy(), samples, seed, number, rank, world, pad)

        return planned(epoch) if length in (None, "auto") else StreamPlan(planned, epoch, int(length))

    def report(self, epoch: int, upto: int, ids: Sequence[int], scores: Sequence[float]) -> None:
        """Nothing is planned from scores here."""

    def reevaluation(self, epoch: int) -> Sequence[int]:
        return ()

    def reevaluated(self, epoch: int, ids: Sequence[int], losses: Sequence[float], last: bool) -> None:
        """Nothing is planned from losses here."""

    def reevaluation_batch(self, epoch: int, ids: Sequence[int]) -> Read:
        return self._read(ids)

    def end_epoch(self, epoch: int, accuracy: float | None) -> None:
        """Nothing is planned from accuracies here."""

    def importance(self) -> bytes:
        """Nothing is known here."""
        return b""

    def restore(self, state: bytes) -> None:
        """Nothing is planned from it here."""

    def scores(self) -> array[float]:
        return array("f", [float("nan")]) * self.catalog.samples

    def describe(self, first: int, count: int) -> tuple[list[str], list[Label], list[int]]:
        return self._listed().describe(first, count)

    def select(self, ids: Sequence[int]) -> DirectSource:
        return DirectSource(self._listing.select(ids), progress=None)

    def stats(self) -> dict[str, Any]:
        """What this process and its loader workers have read, by the names that a server's counters have."""
        rank, _ = self.ranks()
        counted = self._tally.all()
        total = Counts()
        for counts in counted.values():
            total.add(counts)
        return {
            "dataset": self.catalog.dataset,
            "place": self._listing.place,
            "strategy": self._strategy(),
            "samples": self.catalog.samples,
            "bytes": self.catalog.bytes,
            "capacity": 0,
            "epochs": [
                {"epoch": number - 1, **counts.shown(rank)} for number, counts in counted.items() if number
            ],
            "unplanned": counted.get(0, Counts()).shown(rank),
            "total": total.shown(rank) | {"waited": sum(each.mean_wait() for each in counted.values())},
            "remarks": [_TEXT],
        }

    def _strategy(self) -> str:
        """The strategy that is followed here; empty without a sampler."""
        if not self._scheme.planned:
            return ""
        asked = _core.Strategy(self._scheme.settings["strategy"])
        return asked.name if asked.takes_order or not asked.shuffles else "uniform"

    def close(self) -> None:
        self._native = None

    def _listed(self) -> _core.Catalog:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if self._native is not None and "://" in self._listing.place + self._listing.root:
                _inherited.append(self._native)
                self._native = None
        if self._native is None:
            native = self._list()
            if native.info()["dataset"] != self.catalog.dataset:
                raise ChangedError(
                    f"`{self._listing.place}` holds other files than when it was opened; open it again"
                )
            self._native = native
        return self._native

    def _list(self, progress: Progress | None = None) -> _core.Catalog:
        return _core.Catalog(
            self._listing.place,
            layout=self._listing.layout,
            extensions=self._listing.extensions,
            storage_options=self._listing.storage_options,
            label=self._listing.label,
            root=self._listing.root,
            select=self._listing.selected or (),
            progress=progress,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ranks": self._ranks.settled(), "_native": None}


class Read:
    """Samples that were read from the store."""

    def __init__(self, samples: list[bytes], labels: list[Label], parts: list[int]) -> None:
        self._samples = samples
        self.labels = labels
        self.parts = parts

    def __len__(self) -> int:
        return len(self._samples)

    def views(self) -> list[memoryview]:
        return [memoryview(sample) for sample in self._samples]

    def bytes(self) -> list[bytes]:
        return self._samples


def _say_once() -> None:
    global _said
    if not _said:
        _said = True
        _log.warning("%s", _TEXT)
