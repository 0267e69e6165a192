"""What plans by runs save: `uniform` over tar shards of small samples, each sample by itself and by runs.

The store takes 20 ms to answer, works on 32 requests at a time and delivers 20 MB/s: shards on a local
disk behind a throttle. Beside the arms stands the time in which such a store delivers every byte of the
shards once, which is what a loader that streams whole shards takes at least.

    python -m benchmarks.live.runs                 # three repetitions
    python -m benchmarks.live.runs --cache 40%

That every sample comes once an epoch, with its own bytes, and that requests are the runs that are not
kept, is checked; times are medians with their range.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import statistics
import tarfile
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hotset

from benchmarks.report import spread
from benchmarks.sources import UntrueError, isolate, served

BATCH = 64
REQUESTS, LATENCY, BANDWIDTH = 32, 20, 20_000_000
SHARD = 4 << 20
LABELS = 100
EPOCHS = 4


@dataclass
class Arm:
    """One order, and what its epochs came to."""

    name: str
    settings: dict[str, object]
    seconds: list[list[float]] = field(default_factory=list)
    """By repetition and epoch."""
    counts: list[dict[str, Any]] = field(default_factory=list)
    """Of the last epoch of each repetition."""
    notes: dict[str, float] = field(default_factory=dict)


def main() -> None:
    """Measures, and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--size", type=int, default=1_200)
    parser.add_argument("--cache", default="20%")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pace", type=float, default=0.005, help="seconds that training a batch takes")
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()
    arms = [
        Arm("each sample by itself", {}),
        Arm("by runs", {"order": "runs"}),
        Arm("by runs, mixed in a quarter", {"order": "runs", "mix_share": 0.25}),
    ]
    with tempfile.TemporaryDirectory(prefix="hs-runs-") as top, ExitStack() as stack:
        folder = Path(top)
        isolate(folder)
        truth = _shards(folder / "shards", options.samples, options.size)
        stack.enter_context(served(folder, REQUESTS))
        for repetition in range(options.repeat):
            for arm in arms:
                _train(arm, folder / "shards", truth, options, repetition)
        whole = sum(path.stat().st_size for path in (folder / "shards").iterdir())
    print(
        f"{options.samples:,} samples of {options.size:,} bytes in shards of {whole:,}; "
        f"cache {options.cache}; {LATENCY} ms, {REQUESTS} requests, {BANDWIDTH / 1e6:.0f} MB/s; "
        f"{options.pace * 1e3:.0f} ms a batch of {BATCH}"
    )
    head = f"{'':30}{'first':>7}  {'steady, s an epoch':22}{'requests':>9}{'MB':>7}{'hit':>7}"
    print(f"{head}  mix: runs, labels")
    for arm in arms:
        first = statistics.median(epochs[0] for epochs in arm.seconds)
        steady = spread([statistics.median(epochs[1:]) for epochs in arm.seconds], ".2f")
        count = arm.counts[-1]
        asked = f"{count['storage_requests']:9,}{count['storage_bytes'] / 1e6:7.1f}{count['hit']:7,}"
        mix = ", ".join(f"{arm.notes[name]:.2f}" for name in ("mix_runs", "mix_labels") if name in arm.notes)
        print(f"{arm.name:30}{first:7.2f}  {steady:22}{asked}  {mix or '1, 1'}")
    print(f"{'every byte of the shards once':30}{'':7}  {whole / BANDWIDTH:.2f}")
    if options.json:
        options.json.write_text(json.dumps([vars(arm) for arm in arms], indent=1))


def _shards(folder: Path, count: int, size: int) -> list[bytes]:
    """Writes shards of samples in random order of their labels; the digest of each sample."""
    content, digests = random.Random(size), []
    folder.mkdir()
    shard, written = None, SHARD
    for number in range(count):
        if written >= SHARD:
            if shard:
                shard.close()
            shard, written = tarfile.open(folder / f"{number:06}.tar", "w"), 0  # noqa: SIM115
        data = content.randbytes(size)
        digests.append(hashlib.blake2b(data, digest_size=8).digest())
        for extension, part in (("bin", data), ("cls", str(content.randrange(LABELS)).encode())):
            header = tarfile.TarInfo(f"{number:06}.{extension}")
            header.size = len(part)
            assert shard
            shard.addfile(header, io.BytesIO(part))
            written += 1024 + len(part)
    assert shard
    shard.close()
    return digests


def _digest(view: memoryview) -> bytes:
    return hashlib.blake2b(view, digest_size=8).digest()


def _train(arm: Arm, place: Path, truth: list[bytes], options: argparse.Namespace, seed: int) -> None:
    slow = {
        "throttle.latency": f"{LATENCY}ms",
        "throttle.requests": str(REQUESTS),
        "throttle.bandwidth": f"{BANDWIDTH // 1_000_000}MB/s",
    }
    train = hotset.Shards(
        place, parts=("bin",), cache=options.cache, with_ids=True, decode=_digest, storage_options=slow
    )
    sampler = hotset.Sampler(train, seed=seed, settings=arm.settings)
    seconds = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        began, seen = time.perf_counter(), bytearray(len(truth))
        order = list(sampler)
        for first in range(0, len(order), BATCH):
            for found, _, number in train.__getitems__(order[first : first + BATCH]):
                seen[number] += 1
                if found != truth[number]:
                    raise UntrueError(f"{arm.name}: sample {number} came with other bytes")
            time.sleep(options.pace)
        if set(seen) != {1}:
            raise UntrueError(f"{arm.name}: not every sample came once")
        seconds.append(time.perf_counter() - began)
    stats = train.stats()
    counted = stats["epochs"][EPOCHS - 1]
    # What lay in memory still was not asked of the store.
    requests = counted["storage_requests"] + counted["joined_requests"]
    if arm.settings and (counted["single"] or requests != counted["package_reads"]):
        raise UntrueError(f"{arm.name}: {counted}")
    arm.seconds.append(seconds)
    arm.counts.append(counted)
    arm.notes = dict(stats["notes"])
    train.close()


if __name__ == "__main__":
    main()
