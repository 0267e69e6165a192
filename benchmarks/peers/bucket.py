"""The S3 server of the tests with the samples in it, in every layout that an arm reads.

What a library writes in a format of its own is written in its environment; where that fails, its arm says so.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import environments
from benchmarks.peers.samples import Kind, write_objects, write_shards

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python"))
from bucket import ACCESS, REGION, SECRET, Bucket  # type: ignore[import-not-found]

__all__ = ["ACCESS", "REGION", "SECRET", "Bucket", "fill"]

FORMATS = {"litdata": "litdata", "mds": "streaming"}
"""Where chunks lie, and the feed that writes them."""


def fill(bucket: Bucket, kind: Kind, feeds: set[str]) -> tuple[int, dict[str, int]]:
    """Writes the layouts that `feeds` read; how many shards there are, and the bytes of each layout."""
    sizes = {}
    with tempfile.TemporaryDirectory(prefix="hs-peers-") as top:
        for name, write in (("objects", write_objects), ("shards", write_shards)):
            folder = Path(top) / name
            write(kind, folder)
            sizes[name] = _put(bucket, folder, f"{kind.name}/{name}")
        shards = len(list((Path(top) / "shards").iterdir()))
        for name, feed in FORMATS.items():
            if feed in feeds and _converted(feed, kind, Path(top) / name):
                sizes[name] = _put(bucket, Path(top) / name, f"{kind.name}/{name}")
    return shards, sizes


def _put(bucket: Bucket, folder: Path, prefix: str) -> int:
    bucket.put_tree(folder, prefix)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _converted(feed: str, kind: Kind, folder: Path) -> bool:
    try:
        python = environments.python_of(feed)
    except environments.MissingError:
        return False
    command = [str(python), "-m", "benchmarks.peers.convert", feed, kind.name, str(folder)]
    done = subprocess.run(command, cwd=environments.ROOT, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.stderr.write(f"{feed} did not write its chunks: {done.stderr.strip().splitlines()[-1:]}\n")
    return done.returncode == 0
