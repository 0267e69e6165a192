"""What strategies and policies save, live: epochs through a server, from storage that is bound by requests.

The store answers every request after 5 ms and works on 16 at a time: local files behind a throttle, or with
`--store s3` a real S3 server behind the same. Packages are read through the same throttle; what the packer
reads and writes is inside every time and every count. Losses are those of a real training where `--trace`
names one (`loss` [epochs, samples]), and otherwise fall at another pace for every sample.

    python -m benchmarks.live.savings                  # request-bound, five repetitions
    python -m benchmarks.live.savings --store s3
    python -m benchmarks.live.savings --bound bytes    # 110 KB a sample: how much comes from storage
    python -m benchmarks.live.savings --bound compute  # `carousel` beside `oracle`, while storage sustains it

Counts are asserted; times are medians with their range.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hotset
import torch

from benchmarks.report import spread
from benchmarks.sources import Samples, UntrueError, isolate, served

BATCH = 256
REQUESTS = 16
LATENCY = 5.0

Losses = Callable[[torch.Tensor, int], torch.Tensor]


@dataclass
class Arm:
    """One way to train, and what its epochs came to."""

    name: str
    strategy: str
    policy: str
    cache: str = "20%"
    packages: bool = False
    settings: dict[str, object] = field(default_factory=dict)
    epochs: int = 3
    steady: int = 1
    """The first epoch that is as all later ones are."""
    pace: float = 0.0
    """Seconds that training a batch takes."""
    seconds: list[list[float]] = field(default_factory=list)
    """By repetition and epoch."""
    counts: list[list[dict[str, Any]]] = field(default_factory=list)

    def steady_seconds(self) -> list[float]:
        """The median steady epoch of each repetition."""
        return [statistics.median(epochs[self.steady :]) for epochs in self.seconds]

    def steady_counts(self, name: str) -> float:
        """The mean of a counter over all steady epochs."""
        return statistics.fmean(epoch[name] for epochs in self.counts for epoch in epochs[self.steady :])


def main() -> None:
    """Measures, and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bound", choices=("requests", "bytes", "compute"), default="requests")
    parser.add_argument("--store", choices=("files", "s3"), default="files")
    parser.add_argument("--samples", type=int, help="30,000, or 2,400 of 110 KB")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--trace", type=Path, help="an .npz with `loss` [epochs, samples]")
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()
    bytes_bound = options.bound == "bytes"
    size = 110_000 if bytes_bound else 1_500
    count = options.samples or (2_400 if bytes_bound else 30_000)
    arms = _arms(options.bound)
    with tempfile.TemporaryDirectory(prefix="hs-live-") as top, ExitStack() as stack:
        folder = Path(top)
        isolate(folder)
        losses = _traced(options.trace, count) if options.trace else _falling
        samples = Samples.made(folder / "files", count, size)
        place, reach = str(samples.folder), dict[str, str]()
        if options.store == "s3":
            place, reach = stack.enter_context(_bucket(samples))
        stack.enter_context(served(folder, REQUESTS))
        throttle = (
            {} if bytes_bound else {"throttle.latency": f"{LATENCY}ms", "throttle.requests": str(REQUESTS)}
        )
        for repetition in range(options.repeat):
            for arm in arms:
                beside = f"{beside_of(place)}/packages-{repetition}"
                _train(arm, place, reach | throttle, beside, losses, repetition)
                _said(arm, repetition)
    {"requests": _request_bound, "bytes": _bytes_bound, "compute": _compute_bound}[options.bound](
        arms, count, size, options
    )
    if options.json:
        options.json.write_text(json.dumps([vars(arm) for arm in arms], indent=1))


def beside_of(place: str) -> str:
    """The folder or prefix in which a place lies: packages must not lie in what is listed."""
    return place.rpartition("/")[0]


def _arms(bound: str) -> list[Arm]:
    if bound == "requests":
        return [
            Arm("uniform+lru", "uniform", "lru"),
            Arm("uniform+minio", "uniform", "minio"),
            Arm("iis+icache, packages", "iis", "icache", packages=True, epochs=10, steady=4),
            Arm("carousel 0.25", "carousel", "carousel", settings={"fresh": 0.25}, epochs=4, steady=2),
        ]
    if bound == "bytes":
        return [Arm("iis+icache", "iis", "icache", epochs=14, steady=6)]
    pace = BATCH / 8_000
    return [
        Arm("oracle", "uniform", "minio", cache="100%", epochs=3, steady=1, pace=pace),
        Arm("carousel 0.25", "carousel", "carousel", settings={"fresh": 0.25}, epochs=4, steady=2, pace=pace),
        Arm("carousel auto", "carousel", "carousel", epochs=5, steady=3, pace=pace),
        Arm("uniform+lru", "uniform", "lru", epochs=2, pace=pace),
    ]


def _train(arm: Arm, place: str, options: dict[str, str], packages: str, losses: Losses, seed: int) -> None:
    train = hotset.Dataset(place, cache=arm.cache, with_ids=True, decode=len, storage_options=options)
    sampler = hotset.Sampler(
        train,
        arm.strategy,
        policy=arm.policy,
        seed=seed,
        settings=arm.settings,
        epochs=arm.epochs,
        packages=packages if arm.packages else None,
    )
    seconds = []
    for epoch in range(arm.epochs):
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        batch: list[int] = []
        for index in sampler:
            batch.append(index)
            if len(batch) == BATCH:
                _step(train, sampler, batch, epoch, arm, losses)
                batch.clear()
        if batch:
            _step(train, sampler, batch, epoch, arm, losses)
        seconds.append(time.perf_counter() - began)
    counted = [each for each in train.stats()["epochs"] if each["epoch"] < arm.epochs]
    for each in counted:
        if (
            each["served"] != each["planned"]
            or each["served"] != each["hit"] + each["packed"] + each["single"]
        ):
            raise UntrueError(f"{arm.name}: {each}")
    arm.seconds.append(seconds)
    arm.counts.append(counted)
    train.close()


def _step(
    train: hotset.Dataset, sampler: hotset.Sampler, batch: list[int], epoch: int, arm: Arm, losses: Losses
) -> None:
    began = time.perf_counter()
    ids = torch.tensor([number for _, number in train.__getitems__(batch)])
    sampler.update(ids, losses(ids, epoch))
    rest = arm.pace - (time.perf_counter() - began)
    if arm.pace and rest > 0:
        time.sleep(rest)


def _falling(ids: torch.Tensor, epoch: int) -> torch.Tensor:
    """A loss that falls, at another pace for every sample, with some luck."""
    pace = (ids * 7919 % 1_009) / 1_009.0
    luck = ((ids * 31 + epoch * 17) * 104_729 % 997) / 997.0
    return 3.0 * torch.exp(-epoch * pace / 3.0) + luck / 4.0


def _traced(path: Path, count: int) -> Losses:
    import numpy

    with zipfile.ZipFile(path) as archive, archive.open("loss.npy") as file:
        table = torch.from_numpy(numpy.load(file)[:, :count].astype("float32"))
    if table.shape[1] < count:
        raise SystemExit(f"`{path}` has the losses of {table.shape[1]} samples, and there are {count}")
    return lambda ids, epoch: torch.nan_to_num(table[min(epoch + 10, len(table) - 1)][ids], nan=0.0)


@contextmanager
def _bucket(samples: Samples) -> Iterator[tuple[str, dict[str, str]]]:
    """The samples in a bucket of a real S3 server."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python"))
    from bucket import Bucket  # type: ignore[import-not-found]

    bucket = Bucket()
    try:
        bucket.put_tree(samples.folder, "files")
        yield bucket.url("files"), bucket.options
    finally:
        bucket.stop()


def _said(arm: Arm, repetition: int) -> None:
    epochs = " ".join(f"{seconds:.2f}" for seconds in arm.seconds[-1])
    sys.stderr.write(f"repetition {repetition}: {arm.name}: {epochs} s\n")


def _table(arms: list[Arm], samples: int) -> None:
    print(f"{'':22} {'s an epoch, steady':>24} {'served':>8} {'hit':>7} {'packed':>7} {'single':>7} ", end="")
    print(f"{'reads':>7} {'requests':>8}")
    for arm in arms:
        counts = [arm.steady_counts(name) for name in ("served", "hit", "packed", "single")]
        more = [arm.steady_counts(name) for name in ("storage_reads", "storage_requests")]
        print(f"{arm.name:22} {spread(arm.steady_seconds(), '.2f'):>24}", end="")
        print(f" {counts[0]:8,.0f} {counts[1]:7,.0f} {counts[2]:7,.0f} {counts[3]:7,.0f}", end="")
        print(f" {more[0]:7,.0f} {more[1]:8,.0f}")
    print(f"{samples:,} samples; what the packer reads and writes is inside")


def _request_bound(arms: list[Arm], count: int, size: int, options: argparse.Namespace) -> None:
    print(
        f"{count:,} samples of {size:,} bytes from {options.store}, {LATENCY:g} ms, "
        f"{REQUESTS} requests at a time"
    )
    _table(arms, count)
    lru, minio, icache, _ = arms
    for other, goal in ((lru, 8.0), (minio, 6.0)):
        ratios = [
            theirs / ours
            for theirs, ours in zip(other.steady_seconds(), icache.steady_seconds(), strict=True)
        ]
        verdict = "met" if statistics.median(ratios) >= goal else "MISSED"
        print(
            f"{icache.name} is {spread(ratios, '.1f')} times as fast as {other.name}; "
            f"goal {goal:g}: {verdict}"
        )
        counted = other.steady_counts("storage_requests") / icache.steady_counts("storage_requests")
        print(f"    by requests: {counted:.1f} times")
    each = icache.steady_counts("package_reads") / icache.steady_counts("packed")
    print(
        f"requests for each packed sample: {each:.4f}; goal below 0.05: {'met' if each < 0.05 else 'MISSED'}"
    )
    for other in (lru, minio):
        even = [_break_even(ours, theirs) for ours, theirs in zip(icache.seconds, other.seconds, strict=True)]
        shown = ", ".join("later" if epoch is None else str(epoch) for epoch in even)
        print(f"all epochs so far took no longer than {other.name}'s after epoch: {shown} (counted from 0)")


def _break_even(ours: list[float], theirs: list[float]) -> int | None:
    """The epoch after which ours have taken no longer in all; others go on as their last epochs."""
    steady, own, others = statistics.median(theirs[1:]), 0.0, 0.0
    for epoch, seconds in enumerate(ours):
        own += seconds
        others += theirs[epoch] if epoch < len(theirs) else steady
        if epoch > 0 and own <= others:
            return epoch
    return None


def _bytes_bound(arms: list[Arm], count: int, size: int, options: argparse.Namespace) -> None:
    print(f"{count:,} samples of {size:,} bytes: too large for packages")
    _table(arms, count)
    share = arms[0].steady_counts("storage_bytes") / (count * size)
    print(f"bytes from storage an epoch: {share:.3f} of the dataset; goal at most 0.55: ", end="")
    print("met" if share <= 0.55 else "MISSED")


def _compute_bound(arms: list[Arm], count: int, size: int, options: argparse.Namespace) -> None:
    print(
        f"{count:,} samples of {size:,} bytes, training takes 8,000 a second, "
        f"storage gives {REQUESTS / LATENCY * 1000:,.0f}"
    )
    _table(arms, count)
    oracle = arms[0].steady_seconds()
    for arm in arms[1:]:
        ratios = [ours / theirs for ours, theirs in zip(arm.steady_seconds(), oracle, strict=True)]
        goal = (
            ""
            if "lru" in arm.name
            else f"; goal at most 1.1: {'met' if statistics.median(ratios) <= 1.1 else 'MISSED'}"
        )
        print(f"{arm.name} takes {spread(ratios, '.2f')} times as long as all in memory{goal}")


if __name__ == "__main__":
    main()
