"""The stages of a training, each measured alone.

Loading; training on a batch that is there; fetching and preparing single samples.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidError
from .clocks import Moment, Spent
from .patience import Stop

_WARM = 3
"""Steps before those that count: libraries choose and compile their kernels in the first."""

_STEPS = 200
"""Steps at most: more say nothing new."""


@dataclass(frozen=True)
class Loaded:
    """What came of running a loader that nothing was trained with."""

    batch: Any
    """One of its batches, as it came."""
    size: int
    """The samples of a whole batch."""
    rate: float | None
    """Samples a second once all workers were at work; `None`: too few batches came to tell."""
    batches: int
    first: float
    """Seconds until the first batch."""
    ended: bool
    """Whether an epoch was over."""
    closing: float
    """Seconds from its last batch to its end, in which workers end; 0 where it was not over."""


def loading(loader: Iterable[Any], workers: int, size: int | None) -> Callable[[Stop], Loaded]:
    """Runs a loader until it is told to stop, or to the end of an epoch."""

    def run(stop: Stop) -> Loaded:
        began = time.perf_counter()
        arrived: list[float] = []
        sizes: list[int] = []
        kept: Any = None
        batches = iter(loader)
        ended, closing = False, 0.0
        while not stop:
            asked = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                ended, closing = True, time.perf_counter() - asked
                break
            arrived.append(time.perf_counter())
            sizes.append(size_of(batch) or size or 1)
            if kept is None or sizes[-1] > size_of(kept):
                kept = batch
        if not arrived:
            raise InvalidError(
                "the loader gave no batch: its dataset is empty, or shorter than a batch with "
                "`drop_last=True`"
            )
        return Loaded(
            kept,
            max(sizes),
            _rate(arrived, sizes, max(workers, 1)),
            len(arrived),
            arrived[0] - began,
            ended,
            closing,
        )

    return run


def _rate(arrived: list[float], sizes: list[int], workers: int) -> float | None:
    """Samples a second, from one round of all workers to another: batches of a round come close together."""
    rounds = (len(arrived) - 1) // workers
    if rounds < 1:
        return None
    # The first round waits for workers to start; where there are others, they say it better.
    first = workers if rounds >= 3 else 0
    last = rounds * workers
    passed = arrived[last] - arrived[first]
    return sum(sizes[first + 1 : last + 1]) / passed if passed > 0 else None


def training(step: Callable[[Any], object], batch: Any, seconds: float) -> float:
    """Seconds of a step on a batch that is there, on average."""
    synchronize = _synchronize()
    until = time.perf_counter() + seconds

    def once() -> None:
        try:
            step(batch)
        except Exception as error:
            raise InvalidError(
                f"`step` failed on a batch of the loader: {type(error).__name__}: {error}; it is called with "
                "one batch, as the loader gives it"
            ) from error

    for _ in range(_WARM):
        once()
        synchronize()
        if time.perf_counter() >= until:
            break
    began, steps = time.perf_counter(), 0
    while steps == 0 or (steps < _STEPS and time.perf_counter() < until):
        once()
        synchronize()
        steps += 1
    return (time.perf_counter() - began) / steps


def _synchronize() -> Callable[[], None]:
    """What waits for the work that a step has handed to an accelerator."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        synchronize: Callable[[], None] = torch.cuda.synchronize
        return synchronize
    return lambda: None


@dataclass(frozen=True)
class Sampled:
    """What one thread took for samples, one after the other."""

    fetching: float
    """Seconds of waiting for each."""
    preparing: float
    """Seconds of computing for each."""
    samples: int


def sampling(
    dataset: Any, collate: Callable[[list[Any]], Any] | None, size: int, *, in_order: bool = False
) -> Callable[[Stop], Sampled]:
    """Takes random samples of a dataset, or the first of one that is only iterated, into batches."""

    def run(stop: Stop) -> Sampled:
        spent, taken = Spent(), 0
        groups = _groups(dataset, size, in_order)
        with _one_thread():
            while not stop:
                batch: list[Any] = []
                for take in groups:
                    began = Moment.now()
                    batch.extend(take())
                    spent.since(began)
                    if len(batch) >= size or stop:
                        break
                if not batch:
                    break
                taken += len(batch)
                if collate is not None:
                    began = Moment.now()
                    collate(batch)
                    # What is put together was fetched before: all of it is preparing.
                    spent.since(began)
        if taken == 0:
            raise InvalidError("the loader's dataset is empty")
        return Sampled(spent.waited / taken, spent.computed / taken, taken)

    return run


def _groups(dataset: Any, size: int, in_order: bool) -> Iterator[Callable[[], list[Any]]]:
    """What fetches samples, a few at a time."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        yield from _each(dataset)
        return
    draw, length, next_one = random.Random(0), len(dataset), itertools.count()

    def index() -> int:
        return next(next_one) % length if in_order else draw.randrange(length)

    many = getattr(dataset, "__getitems__", None)
    while length > 0:
        if many is not None:
            chosen = [index() for _ in range(min(size, length))]
            yield lambda chosen=chosen: list(many(chosen))  # type: ignore[misc]
        else:
            at = index()
            yield lambda at=at: [dataset[at]]  # type: ignore[misc]


def _each(dataset: Iterable[Any]) -> Iterator[Callable[[], list[Any]]]:
    samples = iter(dataset)
    end = False

    def take() -> list[Any]:
        nonlocal end
        try:
            return [next(samples)]
        except StopIteration:
            end = True
            return []

    while not end:
        yield take


@contextmanager
def _one_thread() -> Iterator[None]:
    """As in a loader's worker, where torch has one."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def size_of(batch: Any) -> int:
    """How many samples a batch has, as far as its form tells; 0 where it does not."""
    if isinstance(batch, dict):
        return next((size for value in batch.values() if (size := size_of(value))), 0)
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) > 0 else 0
    if isinstance(batch, list | tuple):
        inner = next((size for value in batch if (size := _tensor_size(value))), 0)
        return inner or len(batch)
    return 0


def _tensor_size(value: Any) -> int:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) > 0 else 0
    return size_of(value) if isinstance(value, dict) else 0
