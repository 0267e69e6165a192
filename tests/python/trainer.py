"""A training process for the tests: reads epochs of a labelled tree and says, line by line, what it got."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time

import hotset
from torch.utils.data import DataLoader
from trees import digest


def main() -> None:
    """Trains, as far as anybody can tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("place")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--cache", default="20%")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds for each step")
    arguments = parser.parse_args()
    # Also where the tests run in the background of a shell, which has its children ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.basicConfig()

    train = hotset.ImageFolder(arguments.place, loader=digest, cache=arguments.cache, with_ids=True)
    sampler = hotset.Sampler(train)
    loader = DataLoader(
        train, batch_size=arguments.batch, sampler=sampler, num_workers=arguments.workers, collate_fn=list
    )
    say(server=train.stats()["server"]["pid"], samples=len(train))
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            say(epoch=epoch, step=step, batch=batch)
            time.sleep(arguments.pause)
    say(stats=train.stats())


def say(**fields: object) -> None:
    """Writes one line."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
