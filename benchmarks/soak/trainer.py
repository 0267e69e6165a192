"""One training of the soak: checks every sample, and lives on when its workers are killed.

Every sample becomes its hash, which is compared with the file's own. An epoch whose worker was killed begins
over, as a trainer that restarts does. What it did stands in one JSON line at the end.

It trains in a thread that is not the main one, where torch finds dead workers by looking for them every five
seconds. In the main thread its handler of SIGCHLD raises wherever that happens to be: inside the loader's own
queue it leaves a lock behind, and the loader waits for that lock for ever when it is dropped.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hotset
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, WORKERS, WIDTH = 32, 2, 16
FAULTS = {
    "throttle.latency": "1ms",
    "fault.rate": "0.02",
    "fault.stall": "0.01",
    "fault.stall_for": "20ms",
    "fault.truncate": "0.002",
    "fault.swap": "0.002",
}
SCHEMES: dict[str, dict[str, Any]] = {
    "iis": {"strategy": "iis", "policy": "icache", "packages": True},
    "carousel": {"strategy": "carousel"},
    "hybrid": {"strategy": "hybrid", "policy": "impact", "packages": True, "settings": {"warmup_max": 2}},
}


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

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: Sequence[int]) -> tuple[list[Any], int]:
        told = 0
        while True:
            try:
                return self.dataset.__getitems__(indices), told
            except hotset.ChangedError:
                told += 1


def as_it_is(batch: Any) -> Any:
    """Makes nothing of a batch."""
    return batch


class Training:
    """A training and what it saw."""

    def __init__(self, place: Path, scheme: str, seed: int, packages: Path) -> None:
        files = sorted(path for path in place.rglob("*.bin"))
        self.truth = [hashed(path.read_bytes()) for path in files]
        self.dataset = hotset.Dataset(
            str(place),
            cache="25%",
            decode=hashed,
            with_ids=True,
            wait=60,
            storage_options={**FAULTS, "fault.seed": str(seed)},
        )
        asked = dict(SCHEMES[scheme])
        if asked.pop("packages", False):
            asked |= {"packages": str(packages), "package_size": "32KiB"}
        self.sampler = hotset.Sampler(self.dataset, seed=seed, **asked)
        self.samples = Asking(self.dataset)
        self.model = nn.Linear(WIDTH, 1)
        self.seen = {"epochs": 0, "servings": 0, "deaths": 0, "changes": 0}

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
            sampler=self.sampler,
            num_workers=WORKERS,
            collate_fn=as_it_is,
        )
        while True:
            self.sampler.set_epoch(epoch)
            self.reevaluate()
            served = 0
            try:
                for batch, told in loader:
                    wrong = [number for sample, number in batch if sample != self.truth[number]]
                    assert not wrong, f"wrong bytes of {wrong}"
                    ids = torch.tensor([number for _, number in batch])
                    self.sampler.update(ids, losses(ids, epoch))
                    self.seen["changes"] += told
                    served += len(batch)
            except RuntimeError as error:
                # What torch says of a worker that is gone, and nothing else.
                if "DataLoader worker" not in str(error):
                    raise
                self.seen["deaths"] += 1
                self.seen["servings"] += served
                continue
            assert served == len(self.sampler), f"{served} of {len(self.sampler)} samples in epoch {epoch}"
            self.seen["servings"] += served
            self.seen["epochs"] += 1
            return


def losses(ids: torch.Tensor, epoch: int) -> torch.Tensor:
    """Losses that fall, at another pace for every sample; now and then one is no number."""
    pace = (ids * 7919 % 101).float() / 101
    loss = 3 * torch.exp(-pace * epoch / 3) + (ids * 31 % 17).float() / 68
    loss[(ids + epoch) % 211 == 0] = float("nan")
    return loss


def main() -> None:
    """Trains, and says what it saw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("--scheme", choices=SCHEMES, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--epochs", type=int, default=0, help="at least as many, whatever the time")
    parser.add_argument("--packages", type=Path, required=True)
    arguments = parser.parse_args()
    # Whoever finds it stuck asks it and its workers where they are.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with ThreadPoolExecutor(1) as thread:
        json.dump(thread.submit(train, arguments).result(), sys.stdout)


def train(arguments: argparse.Namespace) -> dict[str, int]:
    """A training until the time is over and it has trained enough; what it saw."""
    training = Training(arguments.place, arguments.scheme, arguments.seed, arguments.packages)
    end, epoch = time.monotonic() + arguments.seconds, 0
    print("going", flush=True)
    while time.monotonic() < end or epoch < arguments.epochs:
        training.epoch(epoch)
        epoch += 1
    stats = training.dataset.stats()
    total = {name: stats["total"][name] for name in ("packed", "packages_lost", "rejected_scores")}
    training.dataset.close()
    return {**training.seen, **total}


if __name__ == "__main__":
    main()
