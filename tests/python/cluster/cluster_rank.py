"""A rank of a training on a cluster, for the tests: trains until it is told to stop, and says what it got.

    cluster_rank.py OUT PLACE --job NAME [--strategies S,S] [--epochs N] [--stop EPOCH:STEP] [--load OUT]

Lines of JSON go to `OUT/RANK.out`. Ranks meet before each epoch, as the collectives of a training have
them do; rank 0 says there whether they go on. Losses follow from sample and epoch, so what is learned does
not depend on who trains.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import hotset
import torch
from torch.utils.data import DataLoader
from trees import digest

Sample = tuple[int, str, int]
"""The number that a sample's bytes begin with, the digest of all of them, and its id."""


def main() -> None:
    """Trains as it is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("place", type=Path)
    parser.add_argument("--job")
    parser.add_argument("--strategies", default="uniform")
    parser.add_argument("--policy")
    parser.add_argument("--cache", default="20%")
    parser.add_argument("--epochs", type=int, default=1 << 20, help="else until `OUT/stop` is there")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds for each step")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--stop", default="", help="EPOCH:STEP after which it stops, and saves its state")
    parser.add_argument("--load", type=Path, help="the OUT of one that has stopped, to go on from")
    parser.add_argument("--in-turn", action="store_true", help="report step by step, rank after rank")
    parser.add_argument("--wait", type=float, default=120.0)
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    with (arguments.out / f"{rank}.out").open("a") as out:

        def say(**fields: Any) -> None:
            out.write(json.dumps({**fields, "at": time.monotonic()}) + "\n")
            out.flush()

        def told(message: Warning | str, *_: object) -> None:
            say(warned=str(message))

        warnings.showwarning = told  # type: ignore[assignment]
        say(pid=os.getpid())
        for strategy in arguments.strategies.split(","):
            train(arguments, rank, strategy, say)
        say(ended=True)
    # Taking torch apart takes longer than the training.
    os._exit(0)


def train(arguments: argparse.Namespace, rank: int, strategy: str, say: Any) -> None:
    """Trains with one strategy."""
    world = int(os.environ["WORLD_SIZE"])
    dataset = hotset.Dataset(
        arguments.place,
        cache=arguments.cache,
        decode=_seen,
        with_ids=True,
        job=arguments.job and f"{arguments.job}-{strategy}",
        wait=arguments.wait,
    )
    sampler = hotset.Sampler(
        dataset, strategy, policy=arguments.policy, seed=5, epochs=arguments.epochs, resume=arguments.resume
    )
    if arguments.load is not None:
        sampler.load_state_dict(json.loads((arguments.load / f"state.{strategy}.0").read_text()))
    loader = DataLoader(dataset, arguments.batch, sampler=sampler, collate_fn=list)
    say(strategy=strategy, epoch=sampler.epoch)
    for epoch in range(sampler.epoch, arguments.epochs):
        if not _meet(arguments.out, f"{strategy}.{epoch}", rank):
            break
        sampler.set_epoch(epoch)
        sampler.reevaluate(torch.nn.Identity(), partial(_reevaluated, epoch=epoch), collate=_numbers)
        batches, step = iter(loader), 0
        while True:
            began = time.monotonic()
            batch: list[tuple[tuple[int, str], int]] | None = next(batches, None)
            waited = time.monotonic() - began
            if batch is None:
                break
            ids = [number for _, number in batch]
            say(
                strategy=strategy, epoch=epoch, ids=ids, digests=[seen[1] for seen, _ in batch], waited=waited
            )
            turn = f"{strategy}.{epoch}.{step}"
            if arguments.in_turn and rank > 0:
                _await(arguments.out / f"reported.{turn}.{rank - 1}")
            reporting = time.monotonic()
            sampler.update(torch.tensor(ids), _loss(torch.tensor(ids), epoch))
            say(waited=time.monotonic() - reporting)
            if arguments.in_turn:
                (arguments.out / f"reported.{turn}.{rank}").touch()
                _await(arguments.out / f"reported.{turn}.{world - 1}")
            step += 1
            if arguments.stop == f"{epoch}:{step}":
                (arguments.out / f"state.{strategy}.{rank}").write_text(json.dumps(sampler.state_dict()))
                return
            time.sleep(arguments.pause)
        sampler.end_epoch(accuracy=0.1 * min(epoch, 9))


def _meet(out: Path, name: str, rank: int) -> bool:
    """Waits until all ranks are here; whether they go on."""
    places = [out / f"met.{name}.{each}" for each in range(int(os.environ["WORLD_SIZE"]))]
    partial_place = out / f"coming.{rank}"
    partial_place.write_text("stop" if (out / "stop").exists() else "go")
    partial_place.rename(places[rank])
    for place in places:
        _await(place)
    return places[0].read_text() == "go"


def _await(place: Path) -> None:
    while not place.exists():
        time.sleep(0.002)


def _seen(sample: memoryview) -> tuple[int, str]:
    return int.from_bytes(sample[:4], "big"), digest(sample)


def _loss(ids: torch.Tensor, epoch: int) -> torch.Tensor:
    return ((ids * 7919 + epoch * 104_729) % 1009).float() / 1009


def _reevaluated(numbers: torch.Tensor, _: torch.Tensor, epoch: int) -> torch.Tensor:
    return _loss(numbers, epoch)


def _numbers(samples: list[tuple[int, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.tensor([number for number, _ in samples])
    return numbers, torch.zeros_like(numbers)


if __name__ == "__main__":
    main()
