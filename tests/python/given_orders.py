"""Orders of a user's own, for the tests, and a rank of a launch that trains one.

    torchrun given_orders.py OUT PLACE KIND

writes what each rank was served to `OUT/RANK.out`, or the error that it got. With `hosts` in its name a kind
has each rank on a host of its own, as far as Hotset can tell.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import hotset
import torch
from torch import distributed
from torch.utils.data import DataLoader, Sampler, WeightedRandomSampler

EPOCHS = 3


class Weighted(Sampler[int]):
    """Draws with replacement, every tenth sample twenty times as often, from a seed and the epoch."""

    def __init__(self, samples: int, seed: int = 0) -> None:
        self._seed = seed
        self._generator = torch.Generator()
        weights = [20.0 if number % 10 == 0 else 1.0 for number in range(samples)]
        self._inner = WeightedRandomSampler(weights, samples, generator=self._generator)

    def set_epoch(self, epoch: int) -> None:
        """Seeds the draws of an epoch."""
        self._generator.manual_seed(1000 * self._seed + epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


class Buckets:
    """Batches of samples of about one length, shuffled; the last of a bucket is shorter."""

    def __init__(self, lengths: list[int], size: int, *, drop_last: bool = False) -> None:
        self._lengths, self._size, self._drop_last = lengths, size, drop_last
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Seeds the shuffling."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        draw = random.Random(self._epoch)
        buckets: dict[int, list[int]] = {}
        for number, length in enumerate(self._lengths):
            buckets.setdefault(length // 10, []).append(number)
        batches = []
        for bucket in buckets.values():
            draw.shuffle(bucket)
            batches += [bucket[at : at + self._size] for at in range(0, len(bucket), self._size)]
        if self._drop_last:
            batches = [batch for batch in batches if len(batch) == self._size]
        draw.shuffle(batches)
        return iter(batches)


class ClassesByK:
    """Batches of P classes with K samples of each, as metric learning trains them."""

    def __init__(self, labels: list[int], classes: int, each: int, batches: int) -> None:
        self._labels, self._classes, self._each, self._batches = labels, classes, each, batches
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Seeds the draws of an epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        draw = random.Random(self._epoch)
        members: dict[int, list[int]] = {}
        for number, label in enumerate(self._labels):
            members.setdefault(label, []).append(number)
        for _ in range(self._batches):
            chosen = draw.sample(sorted(members), self._classes)
            yield [number for label in chosen for number in draw.sample(members[label], self._each)]


def order_of(ids: Sampler[int], epoch: int) -> list[int]:
    """What an order gives for an epoch."""
    ids.set_epoch(epoch)  # type: ignore[attr-defined]
    return list(ids)


def ids_of(batch: list[tuple[bytes, int]]) -> list[int]:
    """The ids of a batch, in order."""
    return [number for _, number in batch]


def main() -> None:
    """Trains as a rank."""
    out, place, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    rank = int(os.environ["RANK"])
    if "hosts" in kind:
        os.environ["LOCAL_WORLD_SIZE"] = "1"
        os.environ["HOTSET_RUNTIME_DIR"] += f"-{rank}"
        Path(os.environ["HOTSET_RUNTIME_DIR"]).mkdir(mode=0o700)
        if "alone" not in kind:
            distributed.init_process_group("gloo")
    train = hotset.Dataset(place, with_ids=True)
    served: dict[str, object] = {"epochs": []}
    try:
        if kind == "batches":
            ids: object = Buckets([number % 30 for number in range(len(train))], 4, drop_last=True)
            sampler = hotset.Sampler(train, ids=ids)
            loader = DataLoader(train, batch_sampler=sampler.batches(), collate_fn=ids_of, num_workers=1)
        else:
            ids = Weighted(len(train), seed=rank if "unequal" in kind else 0)
            sampler = hotset.Sampler(train, ids=ids)
            loader = DataLoader(train, 4, sampler=sampler, collate_fn=ids_of, num_workers=1)
        epochs = []
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            epochs.append(list(loader))
        served = {"epochs": epochs, "length": len(loader), "server": train.stats()["server"]["pid"]}
    except hotset.InvalidError as error:
        served = {"error": str(error)}
    if distributed.is_initialized():
        distributed.destroy_process_group()
    (out / f"{rank}.out").write_text(json.dumps(served))


if __name__ == "__main__":
    main()
