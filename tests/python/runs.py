"""A training that is stopped and started again, for the tests: says what it trains, line by line, to `OUT`.

With `--die EPOCH` it kills itself in the middle of that epoch; under torchrun only rank 1 does, in the first
attempt, when rank 0 has its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import hotset
import torch
from torch.utils.data import DataLoader

BATCH = 8


def main() -> None:
    """Trains as it is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--job")
    parser.add_argument("--strategy", default="iis")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--start", type=int, help="the first epoch; else where the sampler stands")
    parser.add_argument("--checkpoint", type=Path, help="where to save after the epoch `--save`")
    parser.add_argument("--save", type=int, default=-1)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--silent", action="store_true", help="report no losses")
    parser.add_argument("--die", type=int, default=-1)
    parser.add_argument("--hold", type=Path, help="wait in the first epoch until this is there")
    arguments = parser.parse_args()
    rank, attempt = (int(os.environ.get(name, "0")) for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"))
    launched = "RANK" in os.environ
    with (arguments.out / f"{rank}.{attempt}.{os.getpid()}").open("w") as out:

        def say(**fields: Any) -> None:
            out.write(json.dumps(fields) + "\n")
            out.flush()

        def told(message: Warning | str, *_: object) -> None:
            say(warned=str(message))

        warnings.showwarning = told  # type: ignore[assignment]
        train = hotset.Dataset(arguments.place, cache="30%", with_ids=True, job=arguments.job)
        packages = arguments.packages
        sampler = hotset.Sampler(
            train, arguments.strategy, seed=5, resume=arguments.resume, packages=packages, package_size="1KiB"
        )
        loader = DataLoader(train, BATCH, sampler=sampler, collate_fn=_ids)
        if arguments.load is not None and arguments.load.exists():
            sampler.load_state_dict(json.loads(arguments.load.read_text()))
        say(run=sampler.state_dict()["run"], epoch=sampler.epoch)
        start = sampler.epoch if arguments.start is None else arguments.start
        for epoch in range(start, arguments.epochs):
            if launched:
                # As the collectives of a training do: the server does not wait long for a rank that is late.
                _meet(arguments.out.with_suffix(".met"), f"{attempt}.{epoch}", rank)
            sampler.set_epoch(epoch)
            for step, ids in enumerate(loader):
                if not arguments.silent:
                    sampler.update(ids, ((ids * 7919 + epoch * 104_729) % 1009).float() / 1009)
                say(epoch=epoch, ids=ids.tolist())
                while arguments.hold is not None and not arguments.hold.exists():
                    time.sleep(0.02)
                if epoch == arguments.die and step == 1 and not launched:
                    os.kill(os.getpid(), signal.SIGKILL)
                if epoch == arguments.die and step == 1 and (rank, attempt) == (1, 0):
                    while not arguments.checkpoint.exists():
                        time.sleep(0.02)
                    sys.exit(1)
            if epoch == arguments.save and rank == 0:
                whole = {**sampler.state_dict(), "left": False}
                partial = arguments.checkpoint.with_suffix(".partial")
                partial.write_text(json.dumps(whole))
                partial.rename(arguments.checkpoint)
        say(scores=torch.nan_to_num(sampler.importance(), -1.0).tolist())


def _meet(place: Path, name: str, rank: int) -> None:
    """Waits until all ranks are here."""
    place.mkdir(exist_ok=True)
    (place / f"{name}.{rank}").touch()
    while len(list(place.glob(f"{name}.*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)


def _ids(batch: list[tuple[bytes, int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


if __name__ == "__main__":
    main()
