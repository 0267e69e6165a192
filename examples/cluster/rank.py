"""One rank of the demo: a training with `DistributedDataParallel`, at the server of its own host.

Nothing in it knows of a cluster. Lines of JSON on standard output say how it goes.
"""

from __future__ import annotations

import argparse
import json
import time

import hotset
import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torchvision import transforms

from ..demo.model import network


def main() -> None:
    """Trains as it is told."""
    parser = argparse.ArgumentParser(prog="examples.cluster.rank", description=__doc__)
    parser.add_argument("place")
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--size", type=int, required=True, help="of an image, in pixels")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--latency", required=True, help="of one storage read")
    asked = parser.parse_args()
    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    size = (asked.size, asked.size)
    pixels = transforms.Compose(
        [transforms.Resize(size), transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)]
    )
    slow = {"throttle.latency": asked.latency}
    train = hotset.ImageFolder(asked.place, pixels, cache=asked.cache, with_ids=True, storage_options=slow)
    sampler = hotset.Sampler(train, "iis")
    loader = DataLoader(train, asked.batch, sampler=sampler)
    model = DistributedDataParallel(network(asked.classes, seed=0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(asked.epochs):
        distributed.barrier()
        sampler.set_epoch(epoch)
        began = asking = time.monotonic()
        longest = total = 0.0
        for step, (images, labels, ids) in enumerate(loader):
            losses = functional.cross_entropy(model(images), labels, reduction="none")
            optimizer.zero_grad()
            sampler.update(ids, losses).mean().backward()
            optimizer.step()
            total += float(losses.detach().mean())
            longest = max(longest, time.monotonic() - asking)
            say(epoch=epoch, step=step, steps=len(loader))
            asking = time.monotonic()
        seconds = time.monotonic() - began
        say(epoch=epoch, seconds=seconds, longest=longest, loss=total / len(loader))
    distributed.barrier()
    distributed.destroy_process_group()


def say(**fields: object) -> None:
    """Writes one line."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main()
