"""How long a batch takes while losses pour in, beside idle.

One process reads batches of hits. A process of its own, as another rank is, tells losses of the same job,
4,096 at a time, as fast as the server acknowledges them: 1.28 million, and on until the batches are read.
Beside idle stands a third way, in which they go to a job of another server: the machine has the same work
then, and the reader's server none of it. Ways take turns; a figure is the p99 over all batches of a turn.

    python -m benchmarks.live.reports
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import hotset
from hotset import _core

from benchmarks.report import spread
from benchmarks.sources import Samples, isolate, served

BATCH, SLICE, LOSSES = 256, 4_096, 1_280_000
WAYS = ("idle", "elsewhere", "here")


def main() -> None:
    """Measures, and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--batches", type=int, default=2_000, help="of a turn")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-reports-") as top, ExitStack() as stack:
        folder = Path(top)
        isolate(folder)
        samples = Samples.made(folder / "files", options.samples, 1_500)
        sockets = [stack.enter_context(served(folder, 16, name)) for name in ("server.sock", "other.sock")]
        reader = Reader(str(samples.folder))
        ours, theirs = get_context("spawn").Pipe()
        child = get_context("spawn").Process(target=pour, args=(theirs, str(samples.folder), sockets[1]))
        child.start()
        try:
            figures = [measure(reader, ours, str(sockets[0]), options.batches) for _ in range(options.repeat)]
        finally:
            ours.close()
            theirs.close()
            child.join(30)
    for way in WAYS:
        p99 = [turn[way] * 1e6 for turn in figures]
        times = [turn[way] / turn["idle"] for turn in figures]
        print(f"{way:10} p99 {spread(p99, ',.0f')} us, {spread(times, '.2f')} times idle")
    own = [turn["here"] / turn["elsewhere"] for turn in figures]
    print(f"here beside elsewhere: {spread(own, '.2f')} times")
    met = statistics.median(turn["here"] / turn["idle"] for turn in figures) <= 2
    print(f"goal, here at most 2 times idle: {'met' if met else 'MISSED'}")


class Reader:
    """Trains without a model, everything from memory."""

    def __init__(self, place: str) -> None:
        self.train = hotset.Dataset(place, cache="100%", with_ids=True, decode=len)
        self.sampler = hotset.Sampler(self.train, "iis", policy="icache")
        self.epoch = 0
        self.read(1)

    def read(self, batches: int) -> list[float]:
        """Reads so many batches and the rest of their epoch; how long each took."""
        taken: list[float] = []
        while len(taken) < batches:
            self.sampler.set_epoch(self.epoch)
            batch: list[int] = []
            for index in self.sampler:
                batch.append(index)
                if len(batch) == BATCH:
                    began = time.perf_counter()
                    self.train.source.batch(_core.Indices(batch, len(self.train)))
                    taken.append(time.perf_counter() - began)
                    batch.clear()
            self.epoch += 1
        return taken


def measure(reader: Reader, pouring: Connection, socket: str, batches: int) -> dict[str, float]:
    """The p99 of each way, taken in turn."""
    found = {}
    for way in WAYS:
        if way != "idle":
            pouring.send((socket, reader.train.stats()["job"], reader.epoch) if way == "here" else None)
        taken = reader.read(batches)
        if way != "idle":
            pouring.send("enough")
            told, seconds = pouring.recv()
            assert told >= LOSSES
            print(f"  {told:,} losses told {way}, {told / seconds:,.0f} a second", flush=True)
        found[way] = statistics.quantiles(taken, n=100)[98]
    return found


def pour(orders: Connection, place: str, other: Path) -> None:
    """Tells losses to whom it is told to, until it is told that it is enough."""
    os.environ["HOTSET_SERVER"] = str(other)
    own = hotset.Dataset(place, cache="100%", with_ids=True, decode=len)
    sampler = hotset.Sampler(own, "iis", policy="icache")
    next(iter(sampler))
    draw = random.Random(1)
    slices = [
        (draw.choices(range(len(own)), k=SLICE), [draw.random() for _ in range(SLICE)]) for _ in range(64)
    ]
    while True:
        try:
            order = orders.recv()
        except EOFError:
            return
        socket, job, epoch = order or (str(other), own.stats()["job"], 0)
        client = hotset.Client(socket, main_pid=os.getpid(), timeout=5)
        told, began = 0, time.perf_counter()
        while told < LOSSES or not orders.poll():
            ids, scores = slices[told // SLICE % len(slices)]
            accepted, _ = client.report(job, epoch, rank=1, upto=SLICE, ids=ids, scores=scores, wait=60.0)
            assert accepted == SLICE
            told += SLICE
        orders.send((told, time.perf_counter() - began))
        assert orders.recv() == "enough"


if __name__ == "__main__":
    main()
