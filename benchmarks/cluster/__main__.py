"""Epoch times on one, two and four nodes that are one cache: the shape of figure 13 of iCache, live.

Nodes and an etcd of one member run on this machine, over loopback. All nodes read one storage, whose
bandwidth they share; each keeps a part of the dataset and has one rank, which takes a while for each batch.
More nodes train faster until storage is the bound, and keep more, so that less is read. Every byte is
compared with the files.

    python -m benchmarks.cluster                   # uniform + lru beside iis + icache
    python -m benchmarks.cluster --nodes 1,2,3,4
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import hotset
from hotset._dataset.numbers import numbers_of

from benchmarks.sources import Samples
from examples.cluster import hosts

PAIRS = (("uniform", "lru"), ("iis", "icache"))
BATCH = 64
WAIT = 120.0
SETTLED = 2
"""The first epoch that is as all later ones are."""


@dataclass(frozen=True)
class Row:
    """One strategy and policy on so many nodes: medians of its settled epochs."""

    strategy: str
    policy: str
    nodes: int
    seconds: float
    served: int
    reads: int
    hits: int
    hits_of_peers: int


class Rank:
    """A rank at its node's server."""

    def __init__(self, node: hosts.Node, place: Path, asked: dict[str, Any], options: dict[str, str]) -> None:
        self._client = hotset.Client(str(node.socket), main_pid=os.getpid(), timeout=WAIT)
        opened = self._client.open_dataset(str(place), layout="files", storage_options=options, wait=WAIT)
        self._client.open_job("figure", {**asked, "dataset": opened["dataset"], "prefetch": True}, wait=WAIT)

    def epoch(
        self, epoch: int, rank: int, world: int, pace: float, check: Callable[[int, memoryview], None]
    ) -> None:
        """Trains an epoch."""
        client = self._client
        plan = client.begin_epoch("figure", epoch, rank=rank, world=world, start=0, wait=WAIT)
        number = numbers_of(epoch)
        for first in range(0, len(plan), BATCH):
            ids = plan.block(first, first + BATCH)
            ready = time.monotonic() + pace
            batch = client.get_batch("figure", [number(id_) for id_ in ids], rank=rank, wait=WAIT)
            for id_, view in zip(ids, batch.views(), strict=True):
                check(id_, view)
            scores = [((id_ * 7919 + epoch * 104_729) % 1009) / 1009 for id_ in ids]
            client.report(
                "figure", epoch, rank=rank, upto=first + len(ids), ids=ids, scores=scores, wait=WAIT
            )
            time.sleep(max(ready - time.monotonic(), 0.0))
        client.end_epoch("figure", epoch, rank=rank, wait=WAIT)

    def close(self) -> None:
        """Leaves the job."""
        self._client.close()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", default="1,2,4", help="(%(default)s)")
    parser.add_argument("--samples", type=int, default=4000, help="(%(default)s)")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a sample (%(default)s)")
    parser.add_argument("--cache", default="20%", help="of each node, of the dataset (%(default)s)")
    parser.add_argument("--epochs", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--bandwidth", type=float, default=20.0, help="of the storage, in MB/s (%(default)s)")
    parser.add_argument(
        "--pace", type=float, default=0.05, help="seconds a batch of a rank takes (%(default)s)"
    )
    parser.add_argument("--json", type=Path, default=Path("out/cluster.json"), help="(%(default)s)")
    return parser.parse_args()


def main() -> int:
    """Measures, and prints one table."""
    asked = arguments()
    if asked.epochs <= SETTLED:
        print(f"error: `--epochs` is to be more than {SETTLED}", file=sys.stderr)
        return 2
    rows = []
    with tempfile.TemporaryDirectory(prefix="hotset-figure-") as folder:
        place = Samples.made(Path(folder, "samples"), asked.samples, asked.size).folder
        truth = [hashlib.blake2b(path.read_bytes()).digest() for path in sorted(place.rglob("*.bin"))]
        for strategy, policy in PAIRS:
            for nodes in map(int, asked.nodes.split(",")):
                rows.append(measured(asked, place, truth, strategy, policy, nodes))
                print(line(rows[-1]), flush=True)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    setting = {name: str(value) for name, value in vars(asked).items()}
    asked.json.write_text(json.dumps({"setting": setting, "rows": [asdict(row) for row in rows]}, indent=2))
    return 0


def measured(
    asked: argparse.Namespace, place: Path, truth: Sequence[bytes], strategy: str, policy: str, count: int
) -> Row:
    """Trains on so many nodes."""

    def check(id_: int, view: memoryview) -> None:
        if hashlib.blake2b(view).digest() != truth[id_]:
            raise RuntimeError(f"other bytes than those of file {id_}")

    job = {"strategy": strategy, "policy": policy, "seed": 1, "cache": asked.cache}
    options = {"throttle.bandwidth": f"{int(asked.bandwidth * 1e6 / count)}B/s"}
    seconds = []
    with tempfile.TemporaryDirectory(prefix="hotset-nodes-") as folder, ExitStack() as ending:
        nodes = hosts.start(Path(folder), count, ending)
        threads = ending.enter_context(ThreadPoolExecutor(count))
        ranks = list(threads.map(lambda node: Rank(node, place, job, options), nodes))
        for epoch in range(asked.epochs):
            began = time.monotonic()
            list(
                threads.map(
                    lambda rank, epoch=epoch: ranks[rank].epoch(epoch, rank, count, asked.pace, check),
                    range(count),
                )
            )
            seconds.append(time.monotonic() - began)
        said = [node.stats() or {"jobs": []} for node in nodes]
        for rank in ranks:
            rank.close()
    counted = [
        {
            name: sum(each[name] for each in of_epoch)
            for name in ("served", "storage_reads", "hit", "hit_peer")
        }
        for epoch in range(SETTLED, asked.epochs)
        for of_epoch in [
            [each for one in said for job in one["jobs"] for each in job["epochs"] if each["epoch"] == epoch]
        ]
    ]
    middle = {name: int(median(each[name] for each in counted)) for name in counted[0]}
    return Row(
        strategy=strategy,
        policy=policy,
        nodes=count,
        seconds=median(seconds[SETTLED:]),
        served=middle["served"],
        reads=middle["storage_reads"],
        hits=middle["hit"],
        hits_of_peers=middle["hit_peer"],
    )


def line(row: Row) -> str:
    """One row of the table."""
    local = f"{1 - row.hits_of_peers / row.hits:.0%} of them local" if row.hits else ""
    return (
        f"{f'{row.strategy} + {row.policy}':<14} {row.nodes} nodes  {row.seconds:6.2f} s an epoch  "
        f"{row.reads:>6,} reads  {row.hits:>6,} hits  {local}"
    )


if __name__ == "__main__":
    sys.exit(main())
