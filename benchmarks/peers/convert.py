"""Writes the samples in the format of one library, in its environment.

python -m benchmarks.peers.convert FEED KIND FOLDER
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benchmarks.peers.samples import KINDS


def main() -> None:
    """Converts."""
    feed, kind, folder = sys.argv[1:]
    importlib.import_module(f"benchmarks.peers.feeds.{feed}").convert(KINDS[kind], Path(folder))


if __name__ == "__main__":
    main()
