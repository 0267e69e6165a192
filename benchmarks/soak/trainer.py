"""One process of a job of the soak: checks every sample and every epoch, and says how far it is.

Every sample becomes its hash, which is compared with the file's own. An epoch trained to its end must have
had the ids that the sampler drew for it, in that order, and as many of each as its kind serves. An epoch of
which a worker was killed begins over, by the same plan. Now and then the job saves where it stands and what
it was served of the epoch; who goes on from there, or begins it over, must be served what was planned then.

It trains in a thread that is not the main one, where torch finds dead workers by looking for them every five
seconds. In the main thread its handler of SIGCHLD raises wherever that happens to be: inside the loader's own
queue it leaves a lock behind, and the loader waits for that lock for ever when it is dropped.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import hotset
import torch
from hotset import _core
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from benchmarks.soak.kinds import DATA, KINDS, Fate, Serves
from benchmarks.soak.order import BATCH, Order, ended

WIDTH = 16
"""Bytes of a hash."""
SAVED = 5
"""Batches between two checkpoints."""
WAIT = 60


@dataclass(frozen=True)
class Checkpoint:
    """Where a job stands, and what it was served of the epoch under way."""

    sampler: dict[str, Any]
    epoch: int
    ids: list[int]

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        partly = path.with_suffix(".partly")
        partly.write_text(json.dumps(vars(self)))
        partly.rename(path)


def hashed(data: bytes | memoryview) -> bytes:
    """The hash of a sample."""
    return hashlib.blake2b(data, digest_size=WIDTH).digest()


class Asking(Dataset[Any]):
    """A dataset that asks again when it is told of a change; each batch says how often that was.

    Nothing but plain bytes and numbers leaves a worker: a tensor would be fetched from it later, when it may
    have been killed, and a counter with a lock would stay locked.
    """

    def __init__(self, dataset: hotset.Dataset) -> None:
        self.dataset = dataset
        self.end: End | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: Sequence[int]) -> tuple[list[Any], int]:
        if self.end is None:
            self.end = End()
        told = 0
        while True:
            try:
                with self.end:
                    return self.dataset.__getitems__(indices), told
            except hotset.ChangedError:
                told += 1


class End:
    """Kills this worker, after a SIGUSR2, in the middle of a batch that it asks Hotset for.

    Not just anywhere: torch's loader shares locks with its workers, and one that is killed with such a lock
    leaves it locked; its trainer then waits for ever, whatever Hotset does. In a batch a worker has none of
    them itself, and the thread that sends what it made has none while it waits for more.
    """

    def __init__(self) -> None:
        self._inside = False
        self._woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGUSR2, lambda *_: None)
        # Written to by the signal itself, whatever this process does meanwhile.
        signal.set_wakeup_fd(wakes)
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self) -> None:
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False

    def _run(self) -> None:
        while signal.SIGUSR2 not in os.read(self._woken, 64):
            pass
        while True:
            if self._inside and not sending():
                os.write(2, b"%s\n" % ended(os.getpid()).encode())
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.001)


def sending() -> bool:
    """Whether a thread sends a batch to the trainer, or is about to."""
    frames = sys._current_frames()
    senders = [thread.ident for thread in threading.enumerate() if thread.name == "QueueFeederThread"]
    return any(frames[sender].f_code.co_name != "wait" for sender in senders if sender in frames)


class Drawn(Sampler[int]):
    """Hotset's sampler, and what was drawn from it in this iteration."""

    def __init__(self, sampler: hotset.Sampler) -> None:
        self.sampler, self.ids = sampler, list[int]()

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        self.ids = []
        for number in self.sampler:
            self.ids.append(int(number))
            yield number


class Training:
    """A training and what it saw."""

    def __init__(self, order: Order, line: Connection) -> None:
        self.order, self.line, self.kind = order, line, KINDS[order.kind]
        self.truth = [hashed(path.read_bytes()) for path in sorted(order.place.rglob("*.bin"))]
        self.seen = {"deaths": 0, "changes": 0, "refused": 0}
        self.dataset = self.opened(time.monotonic() + WAIT)
        packages: dict[str, Any] = {}
        if self.kind.packages:
            packages = {"packages": str(order.folder / "packages"), "package_size": "32KiB"}
        self.sampler = hotset.Sampler(
            self.dataset,
            self.kind.strategy,
            policy=self.kind.policy,
            settings=self.kind.settings,
            seed=order.seed,
            epochs=order.epochs,
            resume=order.before is Fate.RESUMED,
            **packages,
        )
        self.samples, self.drawn = Asking(self.dataset), Drawn(self.sampler)
        self.model = nn.Linear(WIDTH, 1)
        self.path = order.folder / "checkpoint.json"
        self.known = Checkpoint({}, -1, [])
        """The beginning of an epoch as it was served before this process."""
        self.start = 0
        """How much of it was trained before, and does not come again."""
        if order.before is not None and self.path.exists():
            self.known = Checkpoint(**json.loads(self.path.read_text()))
            if order.before is Fate.LOADED:
                self.sampler.load_state_dict(self.known.sampler)
                self.start = len(self.known.ids)
            assert self.sampler.epoch >= self.known.epoch, f"goes on in epoch {self.sampler.epoch}"

    def opened(self, until: float) -> hotset.Dataset:
        """The dataset; a server that is being started again is tried again, as a launcher would."""
        while True:
            try:
                return hotset.Dataset(
                    str(self.order.place),
                    cache="25%",
                    decode=hashed,
                    with_ids=True,
                    wait=WAIT,
                    job=self.order.job,
                    storage_options=DATA[self.kind.data].options(self.order.faults),
                )
            except hotset.UnavailableError:
                self.seen["refused"] += 1
                if time.monotonic() >= until:
                    raise

    def reevaluate(self) -> None:
        """Tells the strategy what it asks for before an epoch."""

        def collate(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
            inputs = [list(sample[0] if isinstance(sample, tuple) else sample) for sample in samples]
            return torch.tensor(inputs) / 255, torch.zeros(len(inputs))

        while True:
            try:
                self.sampler.reevaluate(self.model, lambda out, _: out.squeeze(1).abs(), collate=collate)
                return
            except hotset.ChangedError:
                self.seen["changes"] += 1

    def epoch(self, epoch: int) -> None:
        """One whole epoch, begun over as often as a worker is killed in it."""
        loader: DataLoader[Any] = DataLoader(
            self.samples,
            batch_size=BATCH,
            sampler=self.drawn,
            num_workers=self.order.workers,
            collate_fn=as_it_is,
            worker_init_fn=partial(end_without, os.getpid()),
            multiprocessing_context="fork",
        )
        while True:
            self.sampler.set_epoch(epoch)
            self.reevaluate()
            trained = self.known.ids[: self.start] if epoch == self.known.epoch else []
            before, alive = len(trained), True
            try:
                for batch, told in loader:
                    self.train(batch, epoch, trained)
                    self.seen["changes"] += told
            except RuntimeError as error:
                # What torch says of a worker that is gone, and nothing else.
                if "DataLoader worker" not in str(error):
                    raise
                alive = False
            planned = trained[:before] + self.drawn.ids
            same = min(len(planned), len(self.known.ids)) if epoch == self.known.epoch else 0
            assert planned[:same] == self.known.ids[:same], f"epoch {epoch} has another plan than before"
            if alive:
                self.check(epoch, trained, planned)
                self.line.send("epoch")
                return
            assert trained == planned[: len(trained)], f"not in the order of the plan, in epoch {epoch}"
            # Of an epoch that begins over all comes again.
            self.seen["deaths"] += 1
            self.known, self.start = Checkpoint({}, epoch, planned), 0

    def train(self, batch: list[Any], epoch: int, trained: list[int]) -> None:
        """Checks a batch, adds it to what was trained, and now and then says so on disk."""
        ids = [int(number) for _, number in batch]
        wrong = [number for sample, number in batch if sample != self.truth[number]]
        assert not wrong, f"wrong bytes of {wrong}"
        numbers = torch.tensor(ids)
        self.sampler.update(numbers, losses(numbers, epoch))
        trained += ids
        if len(trained) // BATCH % SAVED == 0:
            state = self.sampler.state_dict()
            assert state["position"] == len(trained), f"{state['position']} for {len(trained)} trained"
            Checkpoint(state, epoch, trained).save(self.path)
        self.line.send(len(ids))
        time.sleep(self.order.pace)

    def check(self, epoch: int, trained: list[int], planned: list[int]) -> None:
        """Whether a whole epoch was what its plan says, and its plan what its kind promises."""
        assert trained == planned, f"epoch {epoch} was not served as it was planned"
        assert len(trained) == len(self.sampler), f"{len(trained)} of {len(self.sampler)} in epoch {epoch}"
        samples = len(self.truth)
        if self.kind.serves is Serves.ALL:
            assert sorted(trained) == list(range(samples)), f"not every id once in epoch {epoch}"
        if self.kind.serves is Serves.SOME:
            assert len(set(trained)) == len(trained), f"an id twice in epoch {epoch}"
        if self.kind.strategy == "uniform":
            plan = _core.seed_plan("uniform", samples, self.order.seed, epoch, 0, 1, False)
            assert trained == plan.block(0, samples), f"another order than the seed's in epoch {epoch}"

    def run(self) -> dict[str, int]:
        """All epochs that are left; what was seen."""
        self.line.send(0)
        for epoch in range(self.sampler.epoch, self.order.epochs):
            self.epoch(epoch)
            self.sampler.end_epoch(accuracy=epoch / self.order.epochs)
        total = self.dataset.stats()["total"]
        counted = {name: total[name] for name in ("packed", "packages_lost", "rejected_scores")}
        if not self.order.doomed:
            self.dataset.close()
        return {**self.seen, **counted}


def as_it_is(batch: Any) -> Any:
    """Makes nothing of a batch."""
    return batch


def end_without(trainer: int, _: int) -> None:
    """Ends a worker whose trainer was killed before torch could look who that was: it would stay for ever."""
    if os.getppid() != trainer:
        os._exit(1)


def losses(ids: torch.Tensor, epoch: int) -> torch.Tensor:
    """Losses that fall, at another pace for every sample; now and then one is no number."""
    pace = (ids * 7919 % 101).float() / 101
    loss = 3 * torch.exp(-pace * epoch / 3) + (ids * 31 % 17).float() / 68
    loss[(ids + epoch) % 211 == 0] = float("nan")
    return loss


class Strict(logging.Handler):
    """Takes a place in another plan, which Hotset only warns of, for what it is here: a failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Remembers it."""
        if "the state is a place" in record.getMessage():
            self.said.append(record.getMessage())


def main(order: Order, line: Connection) -> None:
    """The process: trains, and says on `line` what came with each batch, when epochs end, and what it saw."""
    log = os.open(order.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    # Whoever finds it stuck asks it and its workers where they are.
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    # A worker that has not begun yet inherits this.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    if order.server is not None:
        os.environ["HOTSET_SERVER"] = order.server
    logging.getLogger("hotset").addHandler(strict := Strict())
    torch.set_num_threads(1)
    with ThreadPoolExecutor(1) as thread:
        seen = thread.submit(lambda: Training(order, line).run()).result()
    assert not strict.said, strict.said
    line.send(seen)
    while order.doomed:
        signal.pause()
