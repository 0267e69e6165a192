"""Hotset, with a server of this run, from objects or shards, by any strategy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hotset
import torch
from torch.utils.data import DataLoader

from benchmarks.peers.samples import digest
from benchmarks.peers.setting import BATCH, REQUESTS, WORKERS, Sample, Setting
from benchmarks.sources import isolate, served


class Reader:
    """`options` has the layout, and the words for the sampler."""

    def __init__(self, setting: Setting) -> None:
        self._stack = ExitStack()
        folder = Path(setting.folder)
        isolate(folder)
        self._stack.enter_context(served(folder, REQUESTS))
        layout = setting.options["layout"]
        storage = {
            "aws_endpoint": setting.endpoint,
            "aws_access_key_id": setting.access,
            "aws_secret_access_key": setting.secret,
            "aws_region": setting.region,
        }
        words: dict[str, Any] = dict(setting.options.get("sampler", {}))
        self.settings = {"cache": setting.cache, **words}
        if setting.options.get("packages"):
            self.settings["packages"] = words["packages"] = setting.url("packages") + f"-{setting.seed}"
        place = setting.url(layout)
        self._train: hotset.Dataset
        if layout == "objects":
            self._train = hotset.ImageFolder(
                place, loader=digest, cache=setting.cache, with_ids=True, storage_options=storage
            )
        else:
            self._train = hotset.Shards(
                place,
                parts=("jpg",),
                decode=digest,
                cache=setting.cache,
                with_ids=True,
                storage_options=storage,
            )
        self._sampler = hotset.Sampler(self._train, seed=setting.seed, epochs=setting.epochs, **words)
        self._loader = DataLoader(
            self._train,
            batch_size=BATCH,
            sampler=self._sampler,
            num_workers=WORKERS,
            collate_fn=list,
            persistent_workers=True,
        )
        self._losses = words.get("strategy") in ("iis", "hybrid")

    def epoch(self, number: int) -> Iterator[list[Sample]]:
        """The batches of an epoch; losses are told when a batch was trained."""
        self._sampler.set_epoch(number)
        for batch in self._loader:
            yield [(content, label) for content, label, _ in batch]
            if self._losses:
                ids = torch.tensor([sample[2] for sample in batch])
                self._sampler.update(ids, losses(ids, number))

    def close(self) -> None:
        """Ends the workers and the server."""
        del self._loader
        self._train.close()
        self._stack.close()


def losses(ids: torch.Tensor, epoch: int) -> torch.Tensor:
    """A loss that falls, at another pace for every sample, with some luck."""
    pace = (ids * 7919 % 1_009) / 1_009.0
    luck = ((ids * 31 + epoch * 17) * 104_729 % 997) / 997.0
    return 3.0 * torch.exp(-epoch * pace / 3.0) + luck / 4.0
