"""Whether `hotset.doctor` is right: what it predicts beside what an epoch then takes, behind throttles.

In each situation plain PyTorch reads files behind a throttle, with workers that share a semaphore where the
store takes so many requests at a time, and a step that takes so long (an accelerator's: the cores stay
free). `hotset.doctor` looks at that loader and names a bottleneck and ways out. Then the plain loader runs
an epoch, and so do those ways, with the same workers and the same step. Predicted and measured is the share
of the plain epoch that each saves.

    python -m benchmarks.live.doctor                   # all situations, some minutes
    python -m benchmarks.live.doctor --only requests
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import hotset
from hotset import _core
from torch.utils.data import DataLoader, Dataset, RandomSampler

from benchmarks.sources import Samples, isolate, served

WORTH = 0.10
"""The share of an epoch below which no gain is proposed."""


@dataclass(frozen=True)
class Situation:
    """A storage, a dataset and a training."""

    name: str
    bottleneck: frozenset[str]
    """What may be named."""
    samples: int
    size: int
    latency_ms: float = 0.0
    requests: int | None = None
    bandwidth_mb: float | None = None
    preparing_ms: float = 0.0
    step_ms: float = 0.0
    batch: int = 64
    workers: int = 8
    caches: tuple[str, ...] = ("50%", "100%")
    """With which `uniform` is run; and once without any, reading ahead alone."""


SITUATIONS = [
    Situation("requests", frozenset({"requests"}), 6_000, 12_000, latency_ms=10, requests=8, step_ms=15),
    Situation(
        "bytes", frozenset({"bytes"}), 800, 200_000, latency_ms=2, bandwidth_mb=20, step_ms=50, batch=16
    ),
    Situation("few workers", frozenset({"waiting"}), 3_000, 30_000, latency_ms=20, step_ms=60, workers=2),
    Situation("no workers", frozenset({"waiting"}), 2_000, 40_000, latency_ms=5, step_ms=60, workers=0),
    Situation("decoding", frozenset({"preparing"}), 1_500, 2_000, preparing_ms=12, step_ms=20, workers=2),
    Situation("training", frozenset({"computing"}), 3_000, 2_000, latency_ms=2, step_ms=250),
]


@dataclass
class Found:
    """What was predicted and measured."""

    situation: str
    named: str
    right: bool
    plain: float
    """Seconds of an epoch of the plain loader."""
    predicted_plain: float
    predicted: dict[str, float] = field(default_factory=dict)
    """The share of the plain epoch that each way saves."""
    measured: dict[str, float] = field(default_factory=dict)

    def error(self, way: str) -> float:
        """How far the prediction is from what was measured, as a share of that."""
        return abs(self.predicted[way] - self.measured[way]) / max(self.measured[way], 1e-9)


def main() -> int:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=[one.name for one in SITUATIONS])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each diagnosis (%(default)s)")
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()
    found: list[Found] = []
    for situation in SITUATIONS:
        if options.only and situation.name not in options.only:
            continue
        found.append(_examined(situation, options.seconds))
        sys.stderr.write(f"{json.dumps(asdict(found[-1]))}\n")
    print(_table(found))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    wrong = [one.situation for one in found if not one.right]
    return 1 if wrong else 0


class Plain(Dataset[bytes]):
    """The files behind the throttle, read in the process that asks."""

    def __init__(self, place: Path, situation: Situation) -> None:
        share = max(situation.workers, 1)
        self._catalog = _core.Catalog(str(place), layout="files", storage_options=throttle(situation, share))
        self._turns = get_context("fork").Semaphore(situation.requests or 1 << 20)
        self._preparing = situation.preparing_ms / 1e3

    def __len__(self) -> int:
        return len(self._catalog)

    def __getitem__(self, index: int) -> bytes:
        with self._turns:
            content = self._catalog.read(index)
        return prepared(content, self._preparing)


def throttle(situation: Situation, share: int = 1) -> dict[str, str]:
    """The store, as one of `share` processes that share its bandwidth sees it."""
    options = {"throttle.latency": f"{situation.latency_ms}ms"}
    if situation.bandwidth_mb is not None:
        options["throttle.bandwidth"] = f"{int(situation.bandwidth_mb * 1e6 / share)}B/s"
    if situation.requests is not None and share == 1:
        options["throttle.requests"] = str(situation.requests)
    return options


def prepared(content: bytes | memoryview, seconds: float) -> bytes:
    """What decoding and transforms would do: keep a core for so long."""
    until = time.thread_time() + seconds
    while seconds and time.thread_time() < until:
        hashlib.blake2b(b"busy" * 1_000).digest()
    return bytes(content[:8])


class Prepared:
    """The same as `decode=`; it can be sent to a worker."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, view: memoryview) -> bytes:
        return prepared(view, self._seconds)


def _examined(situation: Situation, seconds: float) -> Found:
    with tempfile.TemporaryDirectory(prefix="hs-doctor-") as top, ExitStack() as stack:
        folder = Path(top)
        isolate(folder)
        files = Samples.made(folder / "files", situation.samples, situation.size).folder
        stack.enter_context(served(folder, 32))
        train = Plain(files, situation)
        loader = _loader(train, RandomSampler(train), situation)
        step = _step(situation)
        diagnosis = hotset.doctor(
            loader, step=step, seconds=seconds, place=files, storage_options=throttle(situation)
        )
        report = diagnosis.report
        found = Found(
            situation.name,
            diagnosis.bottleneck,
            diagnosis.bottleneck in situation.bottleneck,
            _median_epoch(loader, step),
            report["rates"]["epoch"],
        )
        if not situation.bottleneck & {"requests", "bytes", "waiting"}:
            return found
        ways = {one["cache"]: one for one in report["candidates"] if one["pair"] == "uniform+minio"}
        for cache in ("0B", *situation.caches):
            name = "reading ahead" if cache == "0B" else f"uniform, {cache}"
            found.predicted[name] = ways[cache]["saves"]
            taken = _with_hotset(files, situation, cache, step)
            found.measured[name] = 1.0 - taken / found.plain
        return found


def _step(situation: Situation) -> Callable[[Any], None]:
    return lambda batch: time.sleep(situation.step_ms / 1e3)


def _loader(dataset: Any, sampler: Any, situation: Situation) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=situation.batch,
        sampler=sampler,
        num_workers=situation.workers,
        collate_fn=list,
        multiprocessing_context="fork" if situation.workers else None,
    )


def _epoch(loader: DataLoader[Any], step: Callable[[Any], None]) -> float:
    began = time.perf_counter()
    for batch in loader:
        step(batch)
    return time.perf_counter() - began


def _median_epoch(loader: DataLoader[Any], step: Callable[[Any], None]) -> float:
    return statistics.median(_epoch(loader, step) for _ in range(3))


def _with_hotset(files: Path, situation: Situation, cache: str, step: Callable[[Any], None]) -> float:
    """Seconds of an epoch after the first."""
    train = hotset.Dataset(
        files,
        cache=cache,
        decode=Prepared(situation.preparing_ms / 1e3),
        storage_options=throttle(situation),
    )
    sampler = hotset.Sampler(train, seed=0)
    loader = _loader(train, sampler, situation)
    taken = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        taken.append(_epoch(loader, step))
    train.close()
    return statistics.median(taken[1:])


def _table(found: list[Found]) -> str:
    rows = [
        "| situation | named | plain epoch, s (predicted) | way | predicted | measured | apart |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for one in found:
        named = one.named if one.right else f"**{one.named}**"
        head = f"| {one.situation} | {named} | {one.plain:.1f} ({one.predicted_plain:.1f}) |"
        if not one.predicted:
            rows.append(f"{head} no gain predicted | | | |")
        for way, saves in one.predicted.items():
            measured = one.measured[way]
            apart = "not proposed" if saves < WORTH else f"{one.error(way):.0%}"
            rows.append(f"{head} {way} | {saves:.0%} | {measured:.0%} | {apart} |")
            head = "| | | |"
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
