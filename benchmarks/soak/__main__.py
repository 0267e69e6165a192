"""Jobs come, go and are killed, as is their server, while storage fails; looks for what is amiss.

Up to `--jobs` jobs of different strategies and policies, on two datasets, run at once. They begin at random
moments. Some train to their end, of some a worker is killed, some are killed themselves, and of these some go
on (`job.py`); another takes the place of each. Beside them runs one with a private server, which is killed
alone. Kinds, fates, moments and victims are drawn from one seed, in the order in which things happen.

It fails when a byte is wrong or an epoch is not what was planned (`trainer.py`), when a job is stuck, when
something is left of jobs and servers at the end, or when the server's memory grows beyond that of the first
round of kinds. In the last third of the time the server is left alone, so that what leaks adds up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from multiprocessing.connection import wait
from pathlib import Path

from benchmarks.soak.figures import Figures
from benchmarks.soak.job import Job
from benchmarks.soak.kinds import DATA, KINDS, Deck, Fate
from benchmarks.soak.order import BATCH, Order
from benchmarks.soak.processes import marked, wait_for
from benchmarks.soak.server import Server
from benchmarks.sources import isolate

GROWTH = 24 << 20
"""Bytes that the server may ever have more than in the first round."""
ARRIVAL = (0.0, 2.0)
"""Seconds until the next job takes a free place."""
DOWN = (0.0, 1.5)
"""Seconds until a killed server is started again."""
SHORT = (2, 3, 5)
"""Epochs of most jobs; the others have `--epochs`, enough to be measured for what they gain."""
PACES = (0.0, 0.004, 0.02)
"""Seconds that a batch takes to train."""


class Soak:
    """One soak, below a folder of its own."""

    def __init__(self, place: Path, asked: argparse.Namespace) -> None:
        self.place, self.asked = place, asked
        self.runtime = Path(os.environ["HOTSET_RUNTIME_DIR"])
        self.draw, self.figures = random.Random(asked.seed), Figures()
        self.kinds = Deck(tuple(KINDS), self.draw)
        self.fates = Deck(tuple(Fate), self.draw)
        self.folders = {name: data.made(place, asked.samples, asked.seed) for name, data in DATA.items()}
        # Less than all jobs ask for, so that they share it.
        self.server = Server(place, f"{asked.samples * 1500 * asked.jobs // 8}B")
        self.jobs: list[Job] = []
        self.alone: Job | None = None
        self.began = 0
        self.left = self.until_kill()

    def until_kill(self) -> int:
        """Batches until the server is killed."""
        epochs = self.draw.uniform(0.1, 1.5)
        return round(epochs * float(self.asked.jobs * self.asked.samples) / BATCH)

    def begin(self, *, private: bool = False) -> Job:
        """The next job."""
        kind = self.kinds.deal()
        self.began += 1
        folder = self.place / "jobs" / f"{self.began:04}"
        folder.mkdir(parents=True)
        order = Order(
            job=f"{kind.partition(',')[0].replace('+', '-')}-{self.began}",
            kind=kind,
            place=self.folders[KINDS[kind].data],
            folder=folder,
            seed=self.draw.randrange(1 << 30),
            faults=self.asked.seed,
            epochs=min(self.asked.epochs, self.draw.choice((*SHORT, self.asked.epochs))),
            pace=self.draw.choice(PACES),
            workers=self.draw.randint(1, 2),
            server=None if private else str(self.server.socket),
        )
        return Job(order, self.asked.samples, self.fates, self.draw, self.figures)

    def run(self) -> None:
        """Lets jobs come until the time is over and there were enough, and waits for the last."""
        start = time.monotonic()
        seconds = self.asked.minutes * 60
        arrival, private = start, start
        while True:
            now = time.monotonic()
            coming = now < start + seconds or self.began < self.asked.count
            if coming and len(self.jobs) < self.asked.jobs and now >= arrival:
                self.jobs.append(self.begin())
                self.figures.most = max(self.figures.most, len(self.jobs))
                arrival = now + self.draw.uniform(*ARRIVAL)
            if coming and self.asked.private and self.alone is None:
                self.alone = self.begin(private=True)
                private = now + self.draw.uniform(2, 10)
            if not coming and not self.jobs and self.alone is None:
                break
            going = [*self.jobs, *([self.alone] if self.alone else [])]
            wait([job.line for job in going], 0.1)
            self.left -= sum(job.hear() for job in going)
            self.look(going)
            if self.server.is_up and self.left <= 0 and (not seconds or now < start + seconds * 2 / 3):
                self.server.kill(self.draw.uniform(*DOWN))
                self.figures.server_kills += 1
                self.left = self.until_kill()
            if self.alone is not None and now >= private and self.alone.kill_private(self.runtime):
                self.figures.private_kills += 1
                private = now + self.draw.uniform(2, 10)
        self.judge()

    def look(self, going: list[Job]) -> None:
        """At what became of jobs and server."""
        self.server.look()
        for job in going:
            if not job.act():
                continue
            if job is self.alone:
                self.alone = None
            else:
                self.jobs.remove(job)
            if self.server.is_up:
                self.figures.memory.append(self.server.memory())

    def judge(self) -> None:
        """Whether the server has nothing left, and no more memory than after the first round."""
        if not self.server.is_up:
            time.sleep(DOWN[1])
            self.server.look()
        self.server.until_empty()
        memory = self.figures.memory
        memory.append(self.server.memory())
        warm = min(len(KINDS), len(memory) - 1)
        grown = max(memory[warm:]) - max(memory[:warm])
        assert grown <= GROWTH, f"the server's memory grew: {[size >> 20 for size in memory]} MiB"

    def show(self) -> None:
        """What jobs and server do and have said, for whoever looks for what went wrong."""
        for job in [*self.jobs, *([self.alone] if self.alone else [])]:
            print(job.describe(), file=sys.stderr)
        print(self.server.describe(), file=sys.stderr)

    def close(self) -> None:
        """Ends what is left, which must be the server alone if nothing was amiss."""
        for job in [*self.jobs, *([self.alone] if self.alone else [])]:
            job.close()
        self.server.close()


def soak(asked: argparse.Namespace) -> Figures:
    """A whole soak in a folder of its own, of which nothing stays."""
    with tempfile.TemporaryDirectory(prefix="hs-soak-") as folder:
        place = Path(folder)
        isolate(place)
        going = Soak(place, asked)
        try:
            going.run()
        except BaseException:
            going.show()
            raise
        finally:
            going.close()
        wait_for(lambda: f"no process is left: {marked(place)}", lambda: not marked(place), 30)
        left = sorted(path.name for path in going.runtime.iterdir())
        # A killed server leaves its socket, until the next one is started.
        assert len(left) <= min(going.figures.private_kills, 1), f"left in the runtime directory: {left}"
    return going.figures


def main() -> None:
    """Soaks, and prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=6, help="at once (%(default)s)")
    parser.add_argument("--count", type=int, default=1, help="jobs at least, whatever the time")
    parser.add_argument(
        "--no-private", dest="private", action="store_false", help="no job with its own server"
    )
    parser.add_argument("--epochs", type=int, default=24, help="of a long job (%(default)s)")
    parser.add_argument("--samples", type=int, default=1200, help="of the larger dataset (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="writes the figures there too")
    asked = parser.parse_args()
    began = time.monotonic()
    figures = soak(asked)
    print(f"soaked for {(time.monotonic() - began) / 60:.1f} minutes, seed {asked.seed}: nothing amiss\n")
    print(figures.text())
    if asked.json:
        asked.json.write_text(json.dumps(figures.told()))


if __name__ == "__main__":
    main()
