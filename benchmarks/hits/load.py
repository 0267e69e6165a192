"""Several readers at once, in processes of their own, on a Hotset server or on the echo server.

Loads are closed loops of the same work, unless they are paced: ask, wait for the answer, make a view of each
sample, drop them, ask again. Paced readers ask in turn, at equal distances. On the echo server a request and
an answer have as many bytes as Hotset's, and the views are made of a batch that the reader holds. So
the two differ in what the server and the native client do, not in what else the cores are busy with. What is
timed is the call alone.
"""

from __future__ import annotations

import multiprocessing
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from statistics import quantiles
from typing import Any

from hotset import _core

from benchmarks.sources import WAIT, Opened, Samples, UntrueError

_LEAD = 0.05
"""Seconds between the order to run and the start, so that all readers start together."""


@dataclass(frozen=True)
class Setting:
    """What all readers have in common."""

    samples: Samples
    batch: int
    echo: str | None
    """The echo server's socket."""
    own: bool = False
    """Whether each reader has jobs of its own too, one without and one with a plan."""


@dataclass(frozen=True)
class Order:
    """What a reader shall do, from a time of the monotonic clock on.

    `hotset`: any samples, of the job that all readers have; `own`: the same of a job of its own; `planned`:
    along the plan of another job of its own; `echo`: nothing of Hotset's.
    """

    server: str
    begin: float
    seconds: float
    every: float = 0.0
    """Seconds from one call to the next, from `begin` on; 0 for a closed loop."""


@dataclass(frozen=True)
class Turn:
    """What one reader did."""

    seconds: float
    waits: list[float]
    """How long each of its calls took."""


@dataclass(frozen=True)
class Load:
    """What all readers of a round did together."""

    batches: int
    rate: float
    """Samples per second."""
    p99: float
    """Seconds that one call in a hundred exceeded."""


class Readers:
    """Reader processes that wait for orders."""

    def __init__(self, lines: list[Connection], jobs: list[dict[str, str]], batch: int) -> None:
        self._lines, self.jobs, self._batch = lines, jobs, batch
        """The jobs of each, by what it may be ordered to ask."""

    def run(self, server: str, readers: int, seconds: float, rate: float = 0.0) -> Load:
        """Lets the first `readers` run together, at `rate` calls a second of all if there is one."""
        lines = self._lines[:readers]
        begin, apart = time.monotonic() + _LEAD, 1 / rate if rate else 0.0
        for number, line in enumerate(lines):
            line.send(Order(server, begin + number * apart, seconds, readers * apart))
        turns = [_answer(line) for line in lines]
        waits = [wait for turn in turns for wait in turn.waits]
        rate = sum(len(turn.waits) * self._batch / turn.seconds for turn in turns)
        return Load(len(waits), rate, quantiles(waits, n=100)[-1])


@contextmanager
def started(setting: Setting, count: int) -> Iterator[Readers]:
    """`count` readers, connected and ready; they end with this."""
    # Not forked: this process holds connections and hundreds of megabytes.
    context = multiprocessing.get_context("spawn")
    lines, processes = [], []
    try:
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_reader, args=(theirs, setting, number), daemon=True)
            process.start()
            theirs.close()
            lines.append(ours)
            processes.append(process)
        yield Readers(lines, [_answer(line) for line in lines], setting.batch)
    finally:
        for line in lines:
            line.close()
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


def _answer(line: Connection) -> Any:
    if not line.poll(WAIT):
        raise UntrueError(f"a reader has not answered for {WAIT:g} s")
    try:
        return line.recv()
    except EOFError:
        raise UntrueError("a reader ended early; see its error above") from None


def _reader(line: Connection, setting: Setting, number: int) -> None:
    """A reader process: says which jobs it has when it is ready, then does each order, until the end."""
    opened = Opened(setting.samples)
    order = random.Random(number)
    everything = range(setting.samples.count)
    batches = [order.sample(everything, setting.batch) for _ in range(64)]
    ask: dict[str, tuple[Callable[[list[int]], _core.Batch], Iterator[list[int]]]]
    ask = {"hotset": (_hotset(opened, opened.kept), cycle(batches))}
    if setting.echo is not None:
        ask["echo"] = (_echo(opened, setting, batches[0]), cycle(batches))
    jobs = {"hotset": opened.kept}
    if setting.own:
        jobs |= {"own": opened.keep(f"own-{number}"), "planned": opened.plan(f"planned-{number}")}
        ask["own"] = _hotset(opened, jobs["own"]), cycle(batches)
        ask["planned"] = _hotset(opened, jobs["planned"]), opened.planned(jobs["planned"], setting.batch)
        # A job's own first pass reads every sample, also where another job has its bytes.
        for name, whole in (("own", _parts(everything, setting.batch)), ("planned", ask["planned"][1])):
            for _ in range(-(-len(everything) // setting.batch)):
                ask[name][0](next(whole))
    line.send(jobs)
    while True:
        try:
            ordered: Order = line.recv()
        except (EOFError, KeyboardInterrupt):
            return
        line.send(_turn(*ask[ordered.server], ordered))


def _turn(ask: Callable[[list[int]], _core.Batch], batches: Iterator[list[int]], order: Order) -> Turn:
    clock = time.monotonic
    time.sleep(max(order.begin - clock(), 0.0))
    waits: list[float] = []
    began = clock()
    end = began + order.seconds
    while True:
        ids = next(batches)
        if order.every:
            time.sleep(max(order.begin + len(waits) * order.every - clock(), 0.0))
        before = clock()
        batch = ask(ids)
        after = clock()
        waits.append(after - before)
        batch.views()
        if after >= end:
            return Turn(clock() - began, waits)


def _parts(ids: Sequence[int], size: int) -> Iterator[list[int]]:
    for first in range(0, len(ids), size):
        yield list(ids[first : first + size])


def _hotset(opened: Opened, job: str) -> Callable[[list[int]], _core.Batch]:
    client = opened.client
    return lambda ids: client.get_batch(job, ids, rank=0, wait=WAIT)


def _echo(opened: Opened, setting: Setting, ids: list[int]) -> Callable[[list[int]], _core.Batch]:
    held = opened.client.get_batch(opened.kept, ids, rank=0, wait=WAIT)
    request, answer = bytes(request_size(opened, ids)), bytearray(answer_size(setting.samples, ids))
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(None)
    line.connect(setting.echo or "")
    line.sendall(struct.pack("<2I", len(request), len(answer)))

    def ask(_: list[int]) -> _core.Batch:
        line.sendall(request)
        if line.recv_into(answer, len(answer), socket.MSG_WAITALL) != len(answer):
            raise UntrueError("the echo server went away")
        return held

    return ask


def request_size(opened: Opened, ids: list[int]) -> int:
    """The bytes of a `GetBatch` frame: length, kind, job, wait, packed indices."""
    packed = sum(_varint(number) for number in ids)
    inner = 2 + len(opened.kept) + 1 + _varint(int(WAIT * 1000)) + 1 + _varint(packed) + packed
    return 4 + 1 + _varint(inner) + inner


def answer_size(samples: Samples, ids: list[int]) -> int:
    """About the bytes of a `Batch` frame: packed segments, offsets (as if in order of ids) and lengths."""
    segments, lengths = len(ids), len(ids) * _varint(samples.size)
    offsets = sum(_varint(number * samples.size) for number in ids)
    inner = sum(1 + _varint(packed) + packed for packed in (segments, offsets, lengths)) + 4
    return 4 + 1 + _varint(inner) + inner


def _varint(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))
