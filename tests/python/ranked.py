"""A rank of a launch, for the tests: joins a process group, trains with gloo, and says what it got.

    torchrun ranked.py OUT PLACE [PLACE ...]

Each rank trains on every place with every strategy and writes lines to `OUT/RANK.out`. With `--alone` ranks
share no collective, so that what one waits for is Hotset's doing; `--late` is a rank that begins when rank 0
has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import hotset
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main() -> None:
    """Trains on each place in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("places", type=Path, nargs="+")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--strategies", default="uniform")
    parser.add_argument("--length", type=lambda text: text if text == "auto" else int(text))
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--pause", type=float, default=0.0)
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    with (arguments.out / f"{rank}.out").open("w") as out:

        def say(**fields: object) -> None:
            out.write(json.dumps(fields) + "\n")
            out.flush()

        say(pid=os.getpid())
        # Made before the process group, as many programs do: the rank is asked for when training begins.
        datasets = [hotset.Dataset(place, with_ids=True) for place in arguments.places]
        if not arguments.alone:
            distributed.init_process_group("gloo")
        torch.manual_seed(0)
        model: nn.Module = nn.Linear(1, 1)
        if not arguments.alone:
            model = DistributedDataParallel(model)
        if rank == arguments.late:
            first = arguments.out / "0.out"
            while not first.exists() or "ended" not in first.read_text():
                time.sleep(0.1)
        trainings = [
            (place, dataset, strategy)
            for place, dataset in zip(arguments.places, datasets, strict=True)
            for strategy in arguments.strategies.split(",")
        ]
        for place, dataset, strategy in trainings:
            sampler = hotset.Sampler(dataset, strategy, epoch_length=arguments.length)
            # CPython 3.11 may hang in a child forked while a thread of the process group enters Python.
            workers = 1 if arguments.alone else 0
            loader = DataLoader(
                dataset, arguments.batch, sampler=sampler, num_workers=workers, collate_fn=_ids
            )
            named = {"place": place.name, "strategy": strategy}
            for epoch in range(arguments.epochs):
                sampler.set_epoch(epoch)
                if strategy in ("hybrid", "realtime"):
                    sampler.reevaluate(model, _loss, collate=_pair)
                say(**named, epoch=epoch, length=len(loader))
                for ids in loader:
                    loss = (model(ids[:, None].float()) ** 2).flatten() / 1e4
                    sampler.update(ids, loss).mean().backward()
                    say(**named, epoch=epoch, ids=ids.tolist())
                    time.sleep(arguments.pause)
            say(**named, server=dataset.stats()["server"]["pid"], rank=sampler.rank)
        say(ended=time.time())
        if not arguments.alone:
            distributed.destroy_process_group()


def _pair(samples: list[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[float(sample[0])] for sample in samples]), torch.zeros(len(samples))


def _loss(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output.flatten().square()


def _ids(batch: list[tuple[bytes, int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


if __name__ == "__main__":
    main()
