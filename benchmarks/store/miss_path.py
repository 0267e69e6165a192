"""How close a miss-only epoch comes to what its store can do.

The store is local files behind a throttle that answers every read after a fixed latency and works on a fixed
number of requests at a time, so its own limit is known: requests / latency. Nothing is kept (`cache=0`), so
every serving is a read. Counts are asserted: each sample read once, none hit, and never more reads in flight
than set, looked at every 20 ms.

    python -m benchmarks.store.miss_path                  # 5 ms, 64 requests
    python -m benchmarks.store.miss_path --repeat 5 --samples 64000
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import hotset

from benchmarks.sources import WAIT, Samples, UntrueError, isolate, served

BATCH = 256


class Watch:
    """Looks again and again how many reads are in flight."""

    def __init__(self) -> None:
        self.most = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        client = hotset.connect(wait=WAIT)
        while not self._stop.wait(0.02):
            server = json.loads(client.stats(wait=WAIT))["server"]
            self.most = max(self.most, server["reads_in_flight"])


def main() -> None:
    """Measures, and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--size", type=int, default=1_500)
    parser.add_argument("--latency", type=float, default=5.0, help="milliseconds")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-miss-") as top:
        folder = Path(top)
        isolate(folder)
        samples = Samples.made(folder / "files", arguments.samples, arguments.size)
        with served(folder, arguments.requests):
            measured = [epoch(samples, arguments) for _ in range(arguments.repeat)]
    limit = arguments.requests / (arguments.latency / 1000)
    rates = [rate for rate, _ in measured]
    print(f"{arguments.samples:,} samples of {arguments.size:,} bytes, {arguments.latency:g} ms, ", end="")
    print(f"{arguments.requests} requests at a time; every sample read exactly once")
    print(f"  the store's own limit  {limit:10,.0f} reads/s")
    print(
        f"  Hotset, miss only      {statistics.median(rates):10,.0f} reads/s  (median of {len(rates)}; ",
        end="",
    )
    print(f"{min(rates):,.0f} to {max(rates):,.0f})  {statistics.median(rates) / limit:.1%} of the limit")
    print(
        f"  reads in flight        {max(most for _, most in measured):10,d} at most, {arguments.requests} set"
    )


def epoch(samples: Samples, arguments: argparse.Namespace) -> tuple[float, int]:
    """Reads a second of one miss-only epoch, and the most reads that were in flight."""
    throttle = {"throttle.latency": f"{arguments.latency}ms", "throttle.requests": str(arguments.requests)}
    train = hotset.Dataset(samples.folder, cache=0, with_ids=True, storage_options=throttle)
    sampler = hotset.Sampler(train, policy="lru", seed=1)
    seen: set[int] = set()
    with Watch() as watch:
        # From the first slot asked for: what comes before it is planning, not reading.
        began = time.perf_counter()
        batch: list[int] = []
        for index in sampler:
            batch.append(index)
            if len(batch) == BATCH:
                seen.update(number for _, number in train.__getitems__(batch))
                batch.clear()
        if batch:
            seen.update(number for _, number in train.__getitems__(batch))
        seconds = time.perf_counter() - began
    check(train.stats(), samples.count, len(seen), watch.most, arguments.requests)
    train.close()
    return samples.count / seconds, watch.most


def check(stats: dict[str, Any], samples: int, distinct: int, most: int, requests: int) -> None:
    """Fails unless every sample was read once, none was hit, and the limit held."""
    counted = stats["epochs"][0]
    found = {name: counted[name] for name in ("served", "hit", "single", "storage_reads", "storage_requests")}
    expected = {
        "served": samples,
        "hit": 0,
        "single": samples,
        "storage_reads": samples,
        "storage_requests": samples,
    }
    if found != expected or distinct != samples:
        raise UntrueError(f"{distinct} distinct samples, counted {found}, expected {expected}")
    if most > requests:
        raise UntrueError(f"{most} reads were in flight, {requests} are the limit")


if __name__ == "__main__":
    main()
