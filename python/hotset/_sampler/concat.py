"""Several datasets planned as one: what lies behind `Sampler(ConcatDataset([a, b]))`.

Each dataset keeps its own job, with its own cache, scores and plan. The plans of an epoch are shuffled
together: at every slot the next sample of one of them comes, drawn from the seed and the epoch alone, so
that ranks and resumed runs agree. For `uniform` that is a random order of all samples. A strategy that
selects does so in each dataset by itself; one that does not shuffle trains them one after the other.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch

from .. import _core
from .._client.source import Catalog, Order, Plan, Scheme, Source
from ..errors import InvalidError

_STRIDE = 4096
"""Slots between two places at which it is known how many of each dataset came before."""

_REMEMBERED = 2
"""Epochs whose shuffling is kept, for reports that come late."""


class ConcatSource:
    """Plans several datasets, numbered one after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._sizes = [source.catalog.samples for source in self._sources]
        self._firsts = [0, *accumulate(self._sizes)][:-1]
        self._seed: int | None = 0
        """Of the shuffling, unless the datasets are trained one after the other."""
        self._plans: dict[int, ConcatPlan] = {}
        catalogs = [source.catalog for source in self._sources]
        names = hashlib.blake2b("\n".join(each.dataset for each in catalogs).encode(), digest_size=16)
        self._catalog = Catalog(
            dataset=names.hexdigest(),
            samples=sum(self._sizes),
            bytes=sum(each.bytes for each in catalogs),
            classes=(),
            labelled=all(each.labelled for each in catalogs),
        )

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    @property
    def past_server(self) -> bool:
        return any(source.past_server for source in self._sources)

    @property
    def run(self) -> str:
        return "+".join(source.run for source in self._sources)

    @property
    def resumed(self) -> int | None:
        epochs = [source.resumed for source in self._sources]
        return epochs[0] if epochs.count(epochs[0]) == len(epochs) else None

    def resume(self, run: str, epoch: int, position: int) -> None:
        runs = run.split("+")
        if len(runs) == len(self._sources):
            for source, own in zip(self._sources, runs, strict=True):
                # No dataset has trained more of its own plan; what was reported beyond is trained again.
                source.resume(own, epoch, position)

    def attach(self, scheme: Scheme, rank: int | None, world: int | None, resume: bool = False) -> None:
        if scheme.settings["packages"] not in ("", "off"):
            raise InvalidError(
                "`packages=` is one dataset's, and a `ConcatDataset` has several; leave it out, or put the "
                "samples into one dataset (one root, or a `Manifest`)"
            )
        shuffles = _core.Strategy(scheme.settings["strategy"]).shuffles
        self._seed = scheme.settings["seed"] if shuffles else None
        for source in self._sources:
            source.attach(scheme, rank, world, resume)

    def ranks(self) -> tuple[int, int]:
        return self._sources[0].ranks()

    def plan(self, epoch: int, start: int, order: Order | None = None) -> ConcatPlan:
        _, world = self.ranks()
        if min(self._sizes) < world:
            raise InvalidError(
                f"the smallest dataset of the `ConcatDataset` has {min(self._sizes)} samples, too few for "
                f"{world} ranks; start fewer ranks, or put the samples into one dataset"
            )
        plans: list[Plan] = [source.plan(epoch, 0) for source in self._sources]
        joined = ConcatPlan(plans, self._firsts, self._seed, epoch)
        if start:
            for source, done in zip(self._sources, joined.counts(start), strict=True):
                source.plan(epoch, done)
        self._plans = {**dict(list(self._plans.items())[1 - _REMEMBERED :]), epoch: joined}
        return joined

    def report(self, epoch: int, upto: int, ids: Sequence[int], scores: Sequence[float]) -> None:
        plan = self._plans.get(epoch)
        done = [0] * len(self._sources) if plan is None else plan.counts(upto)
        for source, reported, (own, values) in zip(
            self._sources, done, self._split(ids, scores), strict=True
        ):
            if own:
                source.report(epoch, reported, own, values)

    def reevaluation(self, epoch: int) -> Sequence[int]:
        asked = zip(self._firsts, self._sources, strict=True)
        return [first + number for first, source in asked for number in source.reevaluation(epoch)]

    def reevaluated(self, epoch: int, ids: Sequence[int], losses: Sequence[float], last: bool) -> None:
        for source, (own, values) in zip(self._sources, self._split(ids, losses), strict=True):
            if own or last:
                source.reevaluated(epoch, own, values, last)

    def end_epoch(self, epoch: int, accuracy: float | None) -> None:
        for source in self._sources:
            source.end_epoch(epoch, accuracy)

    def importance(self) -> bytes:
        states = [source.importance() for source in self._sources]
        return struct.pack(f"<{len(states)}Q", *map(len, states)) + b"".join(states)

    def restore(self, state: bytes) -> None:
        count = len(self._sources)
        at = 8 * count
        for source, length in zip(self._sources, struct.unpack_from(f"<{count}Q", state), strict=True):
            source.restore(state[at : at + length])
            at += length

    def scores(self) -> array[float]:
        together = array("f")
        for source in self._sources:
            together.extend(source.scores())
        return together

    def stats(self) -> dict[str, Any]:
        """The counters of each dataset's job in `datasets`, and of their server in `server`."""
        found = [source.stats() for source in self._sources]
        return {"datasets": found, "server": found[0].get("server", {})}

    def _split(self, ids: Sequence[int], values: Sequence[float]) -> list[tuple[list[int], list[float]]]:
        """What belongs to each dataset, by its own numbers."""
        shares: list[tuple[list[int], list[float]]] = [([], []) for _ in self._sources]
        for number, value in zip(ids, values, strict=True):
            at = bisect_right(self._firsts, number) - 1
            shares[at][0].append(number - self._firsts[at])
            shares[at][1].append(value)
        return shares


class ConcatPlan:
    """One rank's slots of one epoch, of several datasets."""

    def __init__(self, plans: Sequence[Plan], firsts: Sequence[int], seed: int | None, epoch: int) -> None:
        self._plans, self._firsts = plans, firsts
        lengths = torch.tensor([len(plan) for plan in plans])
        whose = torch.repeat_interleave(torch.arange(len(plans), dtype=torch.int16), lengths)
        if seed is not None:
            drawn = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(drawn, "little", signed=True))
            whose = whose[torch.randperm(len(whose), generator=generator)]
        self._whose = whose
        """Which dataset each slot is of."""
        self._before = torch.zeros(len(whose) // _STRIDE + 1, len(plans), dtype=torch.int64)
        """How many slots of each come before every `_STRIDE`th."""
        for at in range(1, len(self._before)):
            some = self._whose[(at - 1) * _STRIDE : at * _STRIDE].int()
            self._before[at] = self._before[at - 1] + torch.bincount(some, minlength=len(plans))

    def __len__(self) -> int:
        return len(self._whose)

    def counts(self, stop: int) -> list[int]:
        """How many of the slots before `stop` are of each dataset."""
        stop = min(stop, len(self))
        rest = self._whose[stop // _STRIDE * _STRIDE : stop].int()
        counts: list[int] = (
            self._before[stop // _STRIDE] + torch.bincount(rest, minlength=len(self._plans))
        ).tolist()
        return counts

    def block(self, start: int, stop: int) -> list[int]:
        whose = self._whose[start:stop]
        ids = torch.empty(len(whose), dtype=torch.int64)
        for at, (mine, done, count) in self._shares(start, whose).items():
            ids[mine] = torch.tensor(self._plans[at].block(done, done + count)) + self._firsts[at]
        block: list[int] = ids.tolist()
        return block

    def weights(self, start: int, stop: int) -> list[float] | None:
        whose = self._whose[start:stop]
        weights = torch.ones(len(whose))
        weighted = False
        for at, (mine, done, count) in self._shares(start, whose).items():
            own = self._plans[at].weights(done, done + count)
            if own is not None:
                weights[mine], weighted = torch.tensor(own), True
        return weights.tolist() if weighted else None

    def _shares(self, start: int, whose: torch.Tensor) -> dict[int, tuple[torch.Tensor, int, int]]:
        """Of each dataset that has slots among `whose`: which, how many it has before, and how many here."""
        shares: dict[int, tuple[torch.Tensor, int, int]] = {}
        for at, done in enumerate(self.counts(start)):
            mine = whose == at
            if count := int(mine.sum()):
                shares[at] = mine, done, count
        return shares
