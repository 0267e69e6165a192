"""One arm in its own process, in its own environment: trains its epochs and tells what came of each.

    python -m benchmarks.peers.train SETTING.json FD

Each line on FD is JSON: `begun` when everything is imported, the settings when the library has been opened,
then one for each epoch. The first epoch has in it what comes before its first batch: listings, indexes,
workers.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.peers.samples import Truth
from benchmarks.peers.setting import PACE, Feed, Setting
from benchmarks.peers.tally import Tally


def main() -> None:
    """Trains."""
    setting = Setting.read(Path(sys.argv[1]))
    truth = Truth.read(Path(setting.truth))
    by_key = setting.options.get("layout") == "objects"
    tally = Tally(truth, truth.objects() if by_key else range(len(truth.labels)))
    module = importlib.import_module(f"benchmarks.peers.feeds.{setting.feed}")
    with os.fdopen(int(sys.argv[2]), "w", buffering=1) as out:

        def tell(**told: object) -> None:
            out.write(json.dumps(told) + "\n")

        tell(begun=True)
        began = time.perf_counter()
        feed: Feed = module.Reader(setting)
        tell(begun=True, settings=feed.settings)
        try:
            for epoch in range(setting.epochs):
                tally.begin()
                for batch in feed.epoch(epoch):
                    tally.add(batch)
                    time.sleep(PACE)
                seconds = time.perf_counter() - began
                tell(epoch=epoch, seconds=seconds, **tally.figures())
                began = time.perf_counter()
        finally:
            feed.close()


if __name__ == "__main__":
    main()
