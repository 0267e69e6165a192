"""`make demo-cluster`: three nodes and an etcd on this machine; a node is killed while they train."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..demo.data import DataError, Images, prepare
from . import hosts, report
from .hosts import Node


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="examples.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--train", type=int, default=3000, help="training images at most (%(default)s)")
    parser.add_argument("--epochs", type=int, default=6, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="of each rank (%(default)s)")
    parser.add_argument("--cache", default="20%", help="of each node, of the dataset (%(default)s)")
    parser.add_argument("--latency", default="5ms", help="of one storage read (%(default)s)")
    parser.add_argument(
        "--kill", type=int, default=3, help="the epoch in which a node is killed (%(default)s)"
    )
    parser.add_argument(
        "--away", type=float, default=1.0, help="seconds until it is started again (%(default)s)"
    )
    parser.add_argument("--cache-folder", type=Path, default=Path(".cache/demo"), help="(%(default)s)")
    return parser.parse_args()


class Ranks:
    """The training: a process for each node."""

    def __init__(self, asked: argparse.Namespace, images: Images, nodes: list[Node], folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        told = {"classes": images.classes, "size": images.size}
        told |= {name: getattr(asked, name) for name in ("epochs", "batch", "cache", "latency")}
        command = [sys.executable, "-m", "examples.cluster.rank", str(Path(images.root, "train"))]
        command += [text for name, value in told.items() for text in (f"--{name}", str(value))]
        self._said = [folder / f"rank-{rank}.out" for rank in range(len(nodes))]
        self._processes = []
        for rank, node in enumerate(nodes):
            place = {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(nodes)),
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
            }
            place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "HOTSET_SERVER": str(node.socket)}
            with self._said[rank].open("wb") as said:
                self._processes.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=said, env={**os.environ, **place}
                    )
                )

    def said(self, rank: int) -> list[dict[str, Any]]:
        """The lines of a rank so far."""
        lines = self._said[rank].read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def epochs(self, rank: int) -> list[dict[str, Any]]:
        """The epochs that a rank has ended."""
        return [line for line in self.said(rank) if "seconds" in line]

    def until_middle_of(self, epoch: int) -> None:
        """Waits until half of an epoch is trained."""
        while not any(
            (line["epoch"], line.get("step")) == (epoch, line.get("steps", 0) // 2) for line in self.said(0)
        ):
            self.check()
            time.sleep(0.02)

    def check(self) -> bool:
        """Whether some still train; an error if one has failed."""
        codes = [process.poll() for process in self._processes]
        if any(code not in (None, 0) for code in codes):
            raise RuntimeError("a rank has failed; what it said is above")
        return None in codes

    def stop(self) -> None:
        """Ends what is left."""
        for process in self._processes:
            process.kill()
            process.wait()


def main() -> int:
    """Runs the demo; the exit code says whether all went well."""
    asked = arguments()
    if not 0 < asked.kill < asked.epochs:
        print("error: `--kill` is to be an epoch after the first, and before the last ends", file=sys.stderr)
        return 2
    try:
        images = prepare(None, asked.cache_folder, asked.train, 0)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{images.name}: {images.train:,} images, {images.train_bytes / 1e6:.1f} MB")
    print(f"{asked.nodes} nodes, each with a cache of {asked.cache}; storage: {asked.latency} a read")
    with tempfile.TemporaryDirectory(prefix="hotset-cluster-") as name, ExitStack() as ending:
        folder = Path(name)
        nodes = hosts.start(folder, asked.nodes, ending)
        print(f"{asked.epochs} epochs of `iis` by {asked.nodes} ranks\n", flush=True)
        ranks = Ranks(asked, images, nodes, folder)
        ending.callback(ranks.stop)
        victim = nodes[1]
        ranks.until_middle_of(asked.kill)
        counted = [counts(node) for node in nodes]
        killed = time.monotonic()
        victim.process.kill()
        print(f"epoch {asked.kill}: {victim.name} is killed (kill -9)", flush=True)
        time.sleep(asked.away)
        victim.process.start()
        victim.until_listening()
        away = time.monotonic() - killed
        print(f"epoch {asked.kill}: {victim.name} runs again after {away:.1f} s\n", flush=True)
        while ranks.check():
            time.sleep(0.05)
        rows = [
            report.row(
                epoch,
                [ranks.epochs(rank)[epoch] for rank in range(asked.nodes)],
                [merged(before, counts(node), epoch) for before, node in zip(counted, nodes, strict=True)],
            )
            for epoch in range(asked.epochs)
        ]
    print(report.table(rows, asked.kill))
    print("\n" + textwrap.fill(report.sentence(rows, asked.kill, victim.name, away), 98))
    return 0


def counts(node: Node) -> dict[int, dict[str, Any]]:
    """What a node has counted, by epoch."""
    said = node.stats() or {"jobs": []}
    return {epoch["epoch"]: epoch for job in said["jobs"] for epoch in job["epochs"]}


def merged(before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]], epoch: int) -> dict[str, Any]:
    """An epoch's counts, of a node that may have lost some when it was killed."""
    return max(
        (counted.get(epoch, {}) for counted in (before, after)), key=lambda each: each.get("served", 0)
    )


if __name__ == "__main__":
    os.environ.pop("HOTSET", None)
    try:
        code = main()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        code = 130
    sys.exit(code)
