"""The samples of an epoch, asked for at the server batch after batch, ahead of the training.

Every slot of the plan is asked for, the incomplete last batch too, so that what the server counts is the
whole epoch; the bytes are dropped at once, since the pixels are decoded already. One thread asks; the server
does the reading.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from itertools import islice

import hotset
from hotset import _core

_AHEAD = 4
"""Batches that are asked for before they are trained."""

_ENOUGH = 1024
"""Samples of one request where they belong to no batch."""


def batches(train: hotset.Dataset, sampler: hotset.Sampler, size: int) -> Iterator[list[int]]:
    """The ids of every batch of the epoch that was set, once the server has served them."""
    ready: queue.Queue[list[int] | BaseException | None] = queue.Queue(_AHEAD)
    over = threading.Event()

    def put(item: list[int] | BaseException | None) -> None:
        while not over.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def ask() -> None:
        try:
            slots = iter(sampler)
            while batch := list(islice(slots, size)):
                train.source.batch(_core.Indices(batch, len(train)))
                put(list(batch))
                if over.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=ask, name="feed", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        over.set()
        thread.join()


def read(train: hotset.Dataset, epoch: int, ids: list[int]) -> None:
    """Asks for samples that are re-evaluated before an epoch."""
    for first in range(0, len(ids), _ENOUGH):
        train.source.reevaluation_batch(epoch, ids[first : first + _ENOUGH])
