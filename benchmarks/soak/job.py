"""A job of the soak: its processes, one after the other, and what becomes of each."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks.soak.figures import Figures
from benchmarks.soak.kinds import Deck, Fate
from benchmarks.soak.order import BATCH, TRAINER, Order, ended, obey
from benchmarks.soak.processes import children_of, kill_watcher, runs, wait_for

_CONTEXT = get_context("forkserver")
# Each process begins as a copy of one that has imported torch.
_CONTEXT.set_forkserver_preload([TRAINER])

ORPHANED = 60.0
"""Seconds in which a loader's workers must find that their trainer is gone; torch looks every five."""
STUCK = 180.0
"""Seconds without a sample after which a job counts as stuck."""


class Job:
    """One name, trained by one process after the other."""

    def __init__(
        self, order: Order, samples: int, fates: Deck[Fate], draw: random.Random, figures: Figures
    ) -> None:
        self.order, self._samples, self._fates, self._draw = order, samples, fates, draw
        self._figures, self._counts = figures, figures.kinds[order.kind]
        self._counts["started"] += 1
        self._orphans: list[int] = []
        self._begin()

    def _begin(self) -> None:
        """Starts the next process."""
        self.fate = self._fates.deal()
        self.order = replace(self.order, doomed=self.fate.is_killed)
        self.line, theirs = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=obey, args=(self.order, theirs), name=self.order.job)
        self._process.start()
        theirs.close()
        # In the first epochs, so that there is something left to go on with.
        self._left = self._draw.randint(2, max(3, self._samples * (self.order.epochs - 1) // BATCH))
        """Batches until what its fate says happens."""
        self._struck: int | None = None
        self._heard = time.monotonic()

    @property
    def name(self) -> str:
        """For messages."""
        return f"job {self.order.job} ({self.order.kind}, process {self._process.pid}, {self.fate.value})"

    def hear(self) -> int:
        """Takes in what its process says; how many batches came."""
        batches = 0
        with contextlib.suppress(EOFError, OSError):
            while self.line.poll():
                said = self.line.recv()
                self._heard = time.monotonic()
                if isinstance(said, dict):
                    self._figures.seen.update(said)
                    self._left = 0
                elif said == "epoch":
                    self._counts["epochs"] += 1
                else:
                    self._counts["samples"] += said
                    batches += said > 0
        self._left -= batches
        return batches

    def act(self) -> bool:
        """Lets its fate come about when it is due, and goes on with what was killed; whether it is over."""
        if self._process.exitcode is None:
            if self._left <= 0 and self.fate is not Fate.ENDS:
                self._strike()
            assert time.monotonic() < self._heard + STUCK, f"{self.name} is stuck"
            return False
        self.hear()
        killed = self._process.exitcode == -signal.SIGKILL
        assert killed or self._process.exitcode == 0, f"{self.name} failed"
        if not killed:
            self._counts["finished"] += 1
            return self._over()
        if any(map(runs, self._orphans)):
            assert time.monotonic() < self._heard + ORPHANED, (
                f"workers of {self.name} outlive it: {self._orphans}"
            )
            return False
        if self.fate is Fate.LOST:
            self._counts["lost"] += 1
            return self._over()
        self._counts["resumed" if self.fate is Fate.RESUMED else "loaded"] += 1
        self._over()
        self.order = replace(self.order, before=self.fate, workers=self._draw.randint(1, 2))
        self._begin()
        return False

    def _strike(self) -> None:
        """Kills a worker, or the trainer."""
        trainer_id = self._process.pid
        assert trainer_id is not None
        workers = children_of(trainer_id)
        if self.fate.is_killed:
            self._orphans = workers
            self._process.kill()
            self._process.join()
            self._heard = time.monotonic()
            self._counts["killed"] += 1
        elif self._struck is not None and self._struck not in workers:
            # Its epoch may have been over before.
            if ended(self._struck) in (self.order.folder / "log").read_text():
                self._counts["workers"] += 1
                self.fate = Fate.ENDS
            self._struck = None
        elif workers:
            self._struck = self._struck or self._draw.choice(workers)
            with contextlib.suppress(ProcessLookupError):
                # It ends in the middle of a batch; said again while it has not heard of it.
                os.kill(self._struck, signal.SIGUSR2)

    def kill_private(self, directory: Path) -> bool:
        """Kills the private server that watches it, in that runtime directory; whether there was one."""
        return kill_watcher(self._process.pid or 0, directory)

    def describe(self) -> str:
        """Has it and its workers write down where they are; its log."""
        trainer_id = self._process.pid or 0
        log = self.order.folder / "log"
        for process in (trainer_id, *children_of(trainer_id)):
            with log.open("a") as out:
                print(f"process {process}:", file=out)
            _ask(process, log)
        return f"the log of {self.name}:\n" + "\n".join(log.read_text().splitlines()[-150:])

    def close(self) -> None:
        """Ends its process, whatever it does."""
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._over()

    def _over(self) -> bool:
        self.line.close()
        self._process.close()
        return True


def _ask(process: int, log: Path) -> None:
    """Has a process write its stack to the log, if it can."""
    before = log.stat().st_size
    with contextlib.suppress(ProcessLookupError, AssertionError):
        os.kill(process, signal.SIGUSR1)
        wait_for("it says where it is", lambda: log.stat().st_size > before, 3)
        # The rest of it follows at once.
        time.sleep(0.2)
