"""Orders of the user's own: what `Sampler(train, ids=...)` asks, once for each epoch.

A sampler, a batch sampler or any other iterable of ids is run through when an epoch begins, here in the
training process. What it gives is the order of all ranks together. A server that has no plan of it yet is
sent the ids (`_client.source.Order`); every rank says the digest of its own, so that ranks which disagree
find out. Within an epoch the order stays what it was, however often the epoch is begun.

Ids that come one by one go to ranks in turns, as those of every plan do. Batches stay whole: with several
ranks each trains every so-manieth batch, so the ids of a step are laid out for ranks to take in turns.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import index
from typing import Any

from torch.utils.data import DistributedSampler

from .. import _core
from .._dataset.numbers import Number, named
from ..errors import InvalidError
from .lengths import steps
from .position import Position

_DEFAULT = "uniform"
"""The strategy of who names none."""

_BLOCK = 1 << 16
"""Ids, or batches, looked at together."""

_MOST = 1 << 24
"""Ids after which an epoch without a `len()` is taken to be endless, unless the dataset is large."""

_PASSES = 64
"""The same in passes over the dataset."""

PLANNED = (
    "`ids=` gives numbers that another `hotset.Sampler` has planned: give it torch's sampler or yours, or "
    "the ids themselves"
)

Runs = list[list[int]]
"""Sizes of batches, each with how often it follows itself."""


@dataclass(frozen=True)
class OwnOrder:
    """The order of an epoch, of all ranks together."""

    epoch: int
    world: int
    digest: int
    length: int
    """Slots of each rank."""
    batches: Runs | None
    """The sizes of a rank's batches; `None` for ids that come one by one."""
    take: Callable[[], bytes]
    """Gives the ids."""

    def ids(self) -> bytes:
        """As 32-bit integers."""
        return self.take()

    def state(self) -> dict[str, Any]:
        """What tells it, for a checkpoint."""
        return {"digest": self.digest, "batches": self.batches}

    def steps(self, batch_size: int, drop_last: bool) -> int:
        """The batches of a rank: its own, or such of that size."""
        if self.batches is not None:
            return sum(count for _, count in self.batches)
        return steps(self.length, batch_size, drop_last)


def strategy_for(strategy: str, ids: Any, shuffle: bool) -> str:
    """The strategy of a sampler that was made with these arguments."""
    takes = [each.name for each in _core.strategies() if each.takes_order]
    plain = [each.name for each in _core.strategies() if not each.shuffles]
    if not shuffle:
        if ids is not None or strategy not in (_DEFAULT, *plain):
            other = "`ids=`" if ids is not None else f"`strategy={strategy!r}`"
            raise InvalidError(
                f"`shuffle=False` is the order of the dataset, and {other} says another: leave one out"
            )
        return plain[0]
    if ids is None:
        if strategy in takes:
            raise InvalidError(
                f"`strategy={strategy!r}` trains an order of your own: give it as "
                "`hotset.Sampler(train, ids=...)`"
            )
        return strategy
    if strategy not in (_DEFAULT, *takes):
        raise InvalidError(
            f"`ids=` is an order of your own, and `strategy={strategy!r}` draws one: leave out one of them"
        )
    return takes[0]


class Given:
    """An iterable of ids, for one epoch after another."""

    def __init__(self, ids: Any, samples: int, pad: bool) -> None:
        _check_iterable(ids)
        self._ids, self._samples, self._pad = ids, samples, pad
        self._order: OwnOrder | None = None

    @property
    def has_length(self) -> bool:
        """Whether all epochs are equally long, as `len()` says."""
        return hasattr(self._ids, "__len__")

    def known(self, epoch: int) -> OwnOrder | None:
        """The order of `epoch`, if it was asked for."""
        order = self._order
        return order if order is not None and order.epoch == epoch else None

    def at(self, position: Position, world: int) -> OwnOrder:
        """The order of an epoch for `world` ranks; run through once, however often it is asked for."""
        saved, known = position.order if position.start else None, self.known(position.epoch)
        if known is not None and known.world == world and saved in (None, known.state()):
            return known
        self._order = (
            self._run(position.epoch, world) if saved is None else self._resumed(saved, position, world)
        )
        return self._order

    def _resumed(self, saved: dict[str, Any], position: Position, world: int) -> OwnOrder:
        """The order of a checkpoint: what the server still knows, or else the same from `ids` once more."""
        epoch, ranks, length = position.epoch, position.world, position.length
        if saved["batches"] is not None and ranks != world:
            raise InvalidError(
                f"the state is of an epoch whose batches went to {ranks} ranks, and here are {world}: resume "
                "with as many, or from the beginning of an epoch"
            )

        def again() -> bytes:
            own = self._run(epoch, world)
            if own.digest != saved["digest"]:
                raise InvalidError(
                    f"`ids=` gives another order for epoch {epoch} than the one that the state is a position "
                    "in, and the server does not have that one: seed its generator by the epoch "
                    "(`generator.manual_seed(seed + epoch)` in its `set_epoch`), or resume from the "
                    "beginning of an epoch"
                )
            return own.ids()

        slots = length if ranks == world else length * ranks // world
        return OwnOrder(epoch, world, saved["digest"], slots, saved["batches"], again)

    def __getstate__(self) -> dict[str, Any]:
        # Another process runs through it anew.
        return {**self.__dict__, "_order": None}

    def _run(self, epoch: int, world: int) -> OwnOrder:
        for inner in (self._ids, getattr(self._ids, "sampler", None)):
            if set_epoch := getattr(inner, "set_epoch", None):
                set_epoch(epoch)
        ids, sizes = self._collect(epoch)
        if sizes is not None:
            ids, sizes = _in_turns(ids, sizes, world, self._pad)
        if len(ids) < (1 if self._pad else world):
            raise InvalidError(
                f"`ids=` gives {len(ids)} ids for epoch {epoch}, too few for {world} ranks: each needs one"
            )
        packed = ids.tobytes()
        length = (len(ids) + (world - 1 if self._pad else 0)) // world
        runs = None if sizes is None else [[size, len(list(same))] for size, same in groupby(sizes)]
        return OwnOrder(epoch, world, _core.order_digest(packed), length, runs, lambda: packed)

    def _collect(self, epoch: int) -> tuple[array[int], list[int] | None]:
        """All ids of an epoch, and the sizes of batches if they come in batches."""
        # An array or a tensor of ids has them all at once.
        items: Iterator[Any] = iter(self._ids.tolist() if hasattr(self._ids, "tolist") else self._ids)
        first = list(islice(items, 1))
        ids = array("I")
        sizes: list[int] | None = [] if any(map(_is_batch, first)) else None
        items = chain(first, items)
        most = max(_MOST, _PASSES * self._samples)
        while block := list(islice(items, _BLOCK)):
            if sizes is not None:
                batches = [_batch(batch, len(sizes) + at) for at, batch in enumerate(block)]
                sizes += map(len, batches)
                block = list(chain.from_iterable(batches))
            self._add(ids, block, epoch)
            seen = len(ids) if sizes is None else len(sizes)
            if len(ids) > most and not (self.has_length and seen <= len(self._ids)):
                raise InvalidError(
                    f"`ids=` has given {len(ids)} ids for epoch {epoch} of {self._samples} samples and does "
                    "not end: an epoch needs an end; give `ids=` something with a `len()`, such as "
                    "`WeightedRandomSampler(weights, num_samples)`"
                )
        return ids, sizes

    def _add(self, ids: array[int], block: list[Any], epoch: int) -> None:
        before = len(ids)
        if any(issubclass(kind, Number) for kind in set(map(type, block))):
            raise InvalidError(PLANNED)
        try:
            ids.extend(block)
            wrong = max(ids[before:], default=0) >= self._samples
        except (TypeError, ValueError, OverflowError):
            wrong = True
        if wrong:
            for at, one in enumerate(block, before):
                if not _is_id(one) or not 0 <= index(one) < self._samples:
                    raise InvalidError(
                        f"`ids=` gives `{one!r}` at place {at} of epoch {epoch}: whole numbers from 0 to "
                        f"{self._samples - 1} are needed, the ids of the dataset's samples"
                    )


def sizes_of(runs: Runs, start: int) -> Iterator[int]:
    """The sizes of the batches after `start` slots; the first is what is left of one."""
    for size, count in runs:
        skipped = min(start // size, count)
        start -= skipped * size
        for _ in range(count - skipped):
            yield size - start
            start = 0


def _check_iterable(ids: Any) -> None:
    if isinstance(ids, Iterator) and not hasattr(ids, "__len__"):
        raise InvalidError(
            f"`ids=` is an iterator ({named(ids)}), which has one epoch only: give what it iterates over, "
            "such as a list, a sampler or a class with `__iter__`"
        )
    if not isinstance(ids, Iterable) and not hasattr(ids, "__getitem__"):
        raise InvalidError(
            f"`ids=` is a {named(ids)}: a sampler, a batch sampler or another iterable of ids is needed"
        )
    if isinstance(ids, DistributedSampler) and ids.num_replicas > 1:
        raise InvalidError(
            f"`ids=` is a {named(ids)} of {ids.num_replicas} ranks, which gives each rank its part: give "
            "the sampler that one process alone would have, seeded equally on all ranks; Hotset divides it"
        )


def _is_id(one: Any) -> bool:
    """Whether it is one number, also of numpy's or torch's."""
    try:
        index(one)
    except TypeError:
        return False
    return getattr(one, "ndim", 0) == 0


def _is_batch(one: Any) -> bool:
    """Whether it is several numbers."""
    return isinstance(one, list | tuple) or getattr(one, "ndim", 0) > 0


def _batch(batch: Any, number: int) -> Sequence[Any]:
    """One batch of ids."""
    if hasattr(batch, "tolist"):
        batch = batch.tolist()
    if not isinstance(batch, list | tuple) or not batch:
        raise InvalidError(
            f"`ids=` gives `{batch!r}` as batch {number}: batches are lists of ids, and none is empty"
        )
    return batch


def _in_turns(ids: array[int], sizes: list[int], world: int, pad: bool) -> tuple[array[int], list[int]]:
    """The same ids where ranks take turns and each has whole batches, and the sizes of a rank's."""
    if world == 1:
        return ids, sizes
    missing = -len(sizes) % world
    if missing and pad:
        for at in range(missing):
            first = sum(sizes[: at % len(sizes)])
            ids.extend(ids[first : first + sizes[at % len(sizes)]])
        sizes = [*sizes, *(sizes[at % len(sizes)] for at in range(missing))]
    turns, at = array("I"), 0
    for step in range(0, len(sizes) - world + 1, world):
        size = sizes[step]
        if any(other != size for other in sizes[step : step + world]):
            raise InvalidError(
                f"`ids=` gives batches of {sizes[step : step + world]} ids, one after the other, and {world} "
                "ranks train a batch each at a time: those of a step must be equally long; leave out "
                "batches that are too short (`drop_last=True`), or give ids one by one"
            )
        turn = array("I", bytes(4 * size * world))
        for rank in range(world):
            turn[rank::world] = ids[at + rank * size : at + (rank + 1) * size]
        turns += turn
        at += size * world
    return turns, sizes[: len(sizes) // world * world : world]
