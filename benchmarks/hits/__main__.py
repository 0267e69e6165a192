"""`make bench`: the hit path beside the page cache, Redis, memcpy and an echo server.

All arms of a section run one after the other in each round, on the same samples in the same random order, and
each must prove that it did what its name says. README.md says what the rows mean.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import hotset
from hotset import _core

from benchmarks.hits import load
from benchmarks.hits.arms import (
    Arm,
    Buffer,
    CopyInto,
    Hotset,
    Memcpy,
    PageCache,
    Planned,
    Redis,
    check_content,
    measure,
    plain_read,
    system_read,
    total,
    warm,
)
from benchmarks.report import Line, Ratio, Section, save, summary
from benchmarks.sources import (
    Counters,
    Opened,
    Samples,
    SkippedError,
    UntrueError,
    echo_server,
    isolate,
    redis_server,
)

SMALL, LARGE = 900, 110 << 10
"""Bytes of a sample: a CIFAR image, and about ImageNet's mean."""
CORES = 2
READERS = 6
JOBS = 8
RATE = 1_600
"""Calls a second of all jobs together: a fifth of what one reader alone can do."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    batch: int
    small: int
    """Small samples, all asked for once a round."""
    large: int
    """Large samples, likewise: more bytes than processors cache."""
    rounds: int
    load_seconds: float
    """Of each of the loads in a round."""


FULL = Size(batch=256, small=128 * 256, large=4 * 256, rounds=21, load_seconds=0.6)
QUICK = Size(batch=256, small=8 * 256, large=256, rounds=3, load_seconds=0.2)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hits", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few and small rounds: a smoke test, no figures")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="a section; may be repeated")
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"), help="(%(default)s)")
    return parser.parse_args()


def main() -> int:
    """Measures and prints everything; 1 if an arm did not do what it says."""
    asked = arguments()
    size = QUICK if asked.quick else FULL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cores, python = len(os.sched_getaffinity(0)), platform.python_version()
    machine = f"{cores} cores, Linux {platform.release()}, Python {python}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}; {size.rounds} rounds\n", flush=True)
    sections: list[Section] = []
    began = time.monotonic()
    try:
        with workplace() as folder:
            for name in asked.only or SECTIONS:
                section = SECTIONS[name](folder, size)
                sections.append(section)
                print(section.text() + "\n", flush=True)
    except (SkippedError, UntrueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{summary(sections)} ({time.monotonic() - began:.0f} s); all figures: {asked.json}")
    if asked.quick:
        print("a quick run shows that the benchmark works; its figures mean nothing")
    save(sections, {"machine": machine, "quick": asked.quick, **asdict(size)}, asked.json)
    return 0


@contextmanager
def workplace() -> Iterator[Path]:
    """A temporary folder that nothing of the run outlives."""
    folder = Path(tempfile.mkdtemp(prefix="hs-bench-"))
    try:
        isolate(folder)
        yield folder
    finally:
        hotset.stop_private()
        shutil.rmtree(folder)


def small_samples(folder: Path, size: Size) -> Section:
    """One reader of small samples."""
    samples = Samples.found(folder / "small", size.small, SMALL)
    title = f"hit, {SMALL / 1000:g} KB samples, batches of {size.batch}, one reader"
    with one_reader(Section(title), samples, size) as run:
        views = run.add(Hotset("hotset views", run.opened, _core.Batch.views))
        copied = run.add(Hotset("hotset copied out, bytes()", run.opened, _core.Batch.bytes))
        planned = run.add(Planned("hotset views along a plan", run.opened))
        page_cache = run.add(PageCache("page cache, open().read()", run.paths, plain_read))
        least = partial(system_read, size=SMALL)
        system = run.add(PageCache("page cache, os.open, os.read", run.paths, least))
        redis = run.add_redis()
        run.rounds(lambda _: 0)
        run.compare("views : page cache", views, page_cache, 10)
        run.compare("views : Redis", views, redis, 5)
        run.compare("copied out : page cache", copied, page_cache, 5)
        run.compare("copied out : Redis", copied, redis, 2)
        run.compare("views : os.open, os.read", views, system)
        run.compare("views along a plan : page cache", planned, page_cache)
    return run.section


def large_samples(folder: Path, size: Size) -> Section:
    """One reader of large samples, every byte read."""
    samples = Samples.made(folder / "large", size.large, LARGE)
    title = f"hit, {LARGE >> 10} KiB samples, batches of {size.batch}, one reader, every byte read"
    with one_reader(Section(title), samples, size) as run:
        views = run.add(Hotset("hotset views, summed", run.opened, _core.Batch.views))
        page_cache = run.add(PageCache("page cache, summed", run.paths, plain_read))
        redis = run.add_redis()
        run.rounds(total)
        run.compare("views : page cache", views, page_cache, 3)
        run.compare("views : Redis", views, redis)
        target = bytearray(size.batch * LARGE)
        run.arms.clear()
        into = run.add(CopyInto(run.opened, target))
        memcpy = run.add(Memcpy(run.paths, target, LARGE))
        run.rounds(lambda _: 0, after=lambda: total([target]))
        run.compare("copy_into : memcpy", into, memcpy, 0.8)
    return run.section


def many_readers(folder: Path, size: Size) -> Section:
    """More readers than cores."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)
    section = Section(f"hit, {SMALL / 1000:g} KB samples, batches of {size.batch}, on {len(cores)} cores")
    samples = Samples.found(folder / "small", size.small, SMALL)
    opened = Opened(samples)
    # The job of the first section may have been given up meanwhile.
    warm(samples, opened, opened.keys(), size.batch)
    two = Line(f"{CORES} readers", [])
    six = Line(f"{READERS} readers", [])
    calls = Line(f"{READERS} readers, p99 of a call", [], "us")
    floor = Line(f"{READERS} readers on echo, p99", [], "us")
    with ExitStack() as stack:
        echo = None
        try:
            echo = stack.enter_context(echo_server(folder / "echo"))
        except SkippedError as reason:
            section.skipped.append(f"p99 beside an echo server: {reason}")
        readers = stack.enter_context(load.started(load.Setting(samples, size.batch, echo), READERS))
        for number in range(size.rounds + 1):
            before = opened.counters(opened.kept)
            some = readers.run("hotset", CORES, size.load_seconds)
            many = readers.run("hotset", READERS, size.load_seconds)
            opened.counters(opened.kept).check(before, (some.batches + many.batches) * size.batch)
            echoed = None if echo is None else readers.run("echo", READERS, size.load_seconds)
            if number == 0:
                continue
            two.values.append(some.rate)
            six.values.append(many.rate)
            calls.values.append(many.p99 * 1e6)
            if echoed is not None:
                floor.values.append(echoed.p99 * 1e6)
    section.lines = [line for line in (two, six, calls, floor) if line.values]
    section.ratios.append(Ratio(f"total rate, {READERS} : {CORES} readers", six.times(two), 0.9))
    if floor.values:
        section.ratios.append(Ratio("p99, hotset : echo", calls.times(floor), 2, at_most=True))
    return section


def several_jobs(folder: Path, size: Size) -> Section:
    """Several jobs beside one, at the same rate of all calls together."""
    each = f"{RATE:,} batches of {size.batch} a second in all"
    section = Section(f"hit, {SMALL / 1000:g} KB samples, {each}, on {len(os.sched_getaffinity(0))} cores")
    samples = Samples.found(folder / "small", size.small, SMALL)
    opened = Opened(samples)
    warm(samples, opened, opened.keys(), size.batch)
    arms = (
        (Line("one job, one reader, p99 of a call", [], "us"), "planned", 1),
        (Line(f"{JOBS} jobs, a reader each", [], "us"), "planned", JOBS),
        (Line(f"one job without a plan, {JOBS} readers", [], "us"), "hotset", JOBS),
        (Line(f"{JOBS} jobs without plans, a reader each", [], "us"), "own", JOBS),
    )
    with load.started(load.Setting(samples, size.batch, None, own=True), JOBS) as readers:
        for number in range(size.rounds + 1):
            for line, kind, count in arms:
                jobs = {own[kind] for own in readers.jobs[:count]}
                before = [opened.counters(job) for job in jobs]
                found = readers.run(kind, count, size.load_seconds, RATE)
                after = [opened.counters(job) for job in jobs]
                Counters.sum(after).check(Counters.sum(before), found.batches * size.batch)
                if number > 0:
                    line.values.append(found.p99 * 1e6)
    section.lines = [line for line, *_ in arms]
    one, many, readers_of_one, without_plans = section.lines
    section.ratios.append(Ratio(f"p99, {JOBS} jobs : one job", many.times(one), 2, at_most=True))
    section.ratios.append(
        Ratio(f"the same without plans : {JOBS} readers of one", without_plans.times(readers_of_one))
    )
    return section


SECTIONS = {"small": small_samples, "large": large_samples, "readers": many_readers, "jobs": several_jobs}
"""In the order in which they run."""


class OneReader:
    """The arms of a section with one reader, run in rounds."""

    def __init__(self, section: Section, opened: Opened, size: Size, socket: str | None) -> None:
        self.section, self.opened, self.arms = section, opened, list[tuple[Arm, Line]]()
        self.paths = opened.keys()
        self._samples, self._size, self._socket = opened.samples, size, socket
        warm(self._samples, opened, self.paths, size.batch)

    def add(self, arm: Arm) -> Line:
        """Adds an arm whose content is right; its line."""
        check_content(arm, self._batches(0)[0], self.paths, 0)
        line = Line(arm.name, [])
        self.arms.append((arm, line))
        self.section.lines.append(line)
        return line

    def add_redis(self) -> Line | None:
        """Adds Redis, if it runs."""
        try:
            return None if self._socket is None else self.add(Redis(self._socket, self.paths))
        except SkippedError as reason:
            self.section.skipped.append(f"Redis: {reason}")
            return None

    def rounds(self, use: Callable[[Sequence[Buffer]], int], after: Callable[[], int] = lambda: 0) -> None:
        """Measures all arms in turn, once unrecorded; `use` and `after` must come to the same for all."""
        for number in range(self._size.rounds + 1):
            batches = self._batches(number)
            made = []
            for arm, line in self.arms:
                rate, used = measure(arm, batches, number, use)
                made.append(used + after())
                if number > 0:
                    line.values.append(rate)
            if len(set(made)) != 1:
                raise UntrueError(f"the arms of `{self.section.title}` read different bytes: {made}")

    def compare(self, name: str, mine: Line, others: Line | None, goal: float | None = None) -> None:
        """Adds a ratio, unless the other arm was skipped."""
        if others is not None:
            self.section.ratios.append(Ratio(name, mine.times(others), goal))

    def _batches(self, epoch: int) -> list[list[int]]:
        """The samples in the random order of an epoch, which is that of `uniform`."""
        plan = _core.seed_plan("uniform", self._samples.count, 0, epoch, 0, 1, False)
        ids = plan.block(0, len(plan))
        return [ids[first : first + self._size.batch] for first in range(0, len(plan), self._size.batch)]


@contextmanager
def one_reader(section: Section, samples: Samples, size: Size) -> Iterator[OneReader]:
    """A section's arms, with a Redis for the time of it."""
    with ExitStack() as stack:
        socket = None
        try:
            socket = stack.enter_context(redis_server(samples.folder.parent / f"redis-{samples.folder.name}"))
        except SkippedError as reason:
            section.skipped.append(f"Redis: {reason}")
        yield OneReader(section, Opened(samples), size, socket)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
