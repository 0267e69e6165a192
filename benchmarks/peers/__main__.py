"""Hotset beside the loaders that people use instead: the same samples, one slow store, counted at the store.

One S3 server on loopback behind one proxy (`proxy.py`) that all arms share: 20 ms to the first byte, 32
requests at a time, 20 MB/s. Each arm is a process of its own with four workers, trains batches of 64 and
sleeps 5 ms for each. It may keep a fifth of the samples' bytes, or all of them. Arms run one after the
other, in another order in each repetition.

    make bench-peers                                       # three repetitions, most of an hour
    make bench-peers ARGS=--quick                          # one, small samples, a fifth: under ten minutes
    python -m benchmarks.peers --kinds small --shares 20% --only litdata --only Hotset

An arm that cannot be installed or fails has a row that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers import bucket as store
from benchmarks.peers.arms import ARMS, Arm
from benchmarks.peers.proxy import Limits, Proxy
from benchmarks.peers.run import Outcome, run
from benchmarks.peers.samples import KINDS, Truth
from benchmarks.peers.setting import BATCH, PACE, WORKERS, Setting
from benchmarks.peers.table import table

SHARES = {"20%": 0.2, "120%": 1.2}


def main() -> None:
    """Measures, and prints a table for each dataset and cache."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one repetition of small samples at 20%%")
    parser.add_argument("--repeat", type=int, help="3, or 1 with --quick")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), help="all, or small with --quick")
    parser.add_argument("--shares", nargs="+", choices=list(SHARES), help="both, or 20%% with --quick")
    parser.add_argument("--only", action="append", help="arms whose name or layout has this in it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path("out/peers.json"))
    options = parser.parse_args()
    # Whoever ends it ends its server and its arm too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kinds = options.kinds or (["small"] if options.quick else list(KINDS))
    shares = options.shares or (["20%"] if options.quick else list(SHARES))
    repeat = options.repeat or (1 if options.quick else 3)
    arms = [
        arm
        for arm in ARMS
        if not options.only or any(word in f"{arm.name} {arm.layout}" for word in options.only)
    ]
    limits = Limits()
    began, outcomes = time.monotonic(), list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="hs-peers-") as top, ExitStack() as stack:
        server = store.Bucket(public=True)
        stack.callback(server.stop)
        proxy = Proxy(server.port, limits)
        stack.callback(proxy.stop)
        for name in kinds:
            outcomes += _measure(name, shares, arms, repeat, options.seed, server, proxy, Path(top))
    print(
        f"{limits.latency * 1e3:.0f} ms to the first byte, {limits.requests} requests at a time, "
        f"{limits.rate / 1e6:.0f} MB/s; {WORKERS} workers, batches of {BATCH}, {PACE * 1e3:.0f} ms each\n"
        f"repetitions: {repeat}; {os.cpu_count()} cores, load at the end {os.getloadavg()[0]:.1f}; "
        f"{(time.monotonic() - began) / 60:.0f} minutes"
    )
    for name in kinds:
        for share in shares:
            found = [one for one in outcomes if (one.kind, one.share) == (name, share)]
            found.sort(key=lambda one: [(arm.name, arm.layout) for arm in ARMS].index((one.arm, one.layout)))
            kind = KINDS[name]
            print(f"\n{kind.count:,} samples of {kind.least:,} to {kind.most:,} bytes, {share} may be kept\n")
            print(table(found, kind.count))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))


def _measure(
    name: str,
    shares: list[str],
    arms: list[Arm],
    repeat: int,
    seed: int,
    server: store.Bucket,
    proxy: Proxy,
    folder: Path,
) -> list[Outcome]:
    """Every arm of one dataset in every repetition."""
    kind = KINDS[name]
    truth = Truth.of(kind)
    truth.write(folder / f"{name}.json")
    arms = [arm for arm in arms if name in arm.kinds]
    shards, sizes = store.fill(server, kind, {arm.feed for arm in arms})
    sys.stderr.write(
        f"{name}: " + ", ".join(f"{key} {size / 1e6:.1f} MB" for key, size in sizes.items()) + "\n"
    )
    outcomes = []
    for repetition in range(repeat):
        turns = [(arm, share) for arm in arms for share in shares if arm.keeps or SHARES[share] < 1]
        random.Random(seed + repetition).shuffle(turns)
        for arm, share in turns:
            setting = Setting(
                feed=arm.feed,
                kind=name,
                endpoint=f"http://127.0.0.1:{proxy.port}",
                bucket=server.name,
                access=store.ACCESS,
                secret=store.SECRET,
                region=store.REGION,
                shards=shards,
                cache=int(truth.size * SHARES[share]),
                whole=SHARES[share] >= 1,
                folder="",
                truth=str(folder / f"{name}.json"),
                epochs=arm.epochs,
                seed=seed + repetition,
                options=arm.options,
            )
            outcome = Outcome(arm.name, arm.layout, name, share, repetition)
            run(arm, setting, proxy, outcome)
            outcomes.append(outcome)
            said = outcome.failed or " ".join(f"{epoch.seconds:.2f}" for epoch in outcome.epochs) + " s"
            sys.stderr.write(f"{name}, {share}, {repetition}: {arm.name}, {arm.layout}: {said}\n")
    return outcomes


if __name__ == "__main__":
    main()
