"""Hugging Face `datasets`, streaming tar shards through a shuffle buffer in each worker; it keeps nothing.

Over `http://`: by `s3://` the library gives s3fs a `block_size`, which that refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets
from torch.utils.data import DataLoader

from benchmarks.peers.samples import KINDS, digest
from benchmarks.peers.setting import BATCH, WORKERS, Sample, Setting


def samples(found: list[dict[str, Any]]) -> list[Sample]:
    """Digests and labels of a batch."""
    return [(digest(each["jpg"]["bytes"]), int(each["cls"])) for each in found]


class Reader:
    """The loader `webdataset` of that library."""

    def __init__(self, setting: Setting) -> None:
        kind = KINDS[setting.kind]
        buffer = min(setting.cache // ((kind.least + kind.most) // 2), kind.count) // WORKERS
        self.settings: dict[str, object] = {"buffer_size, a worker": buffer, "cache": "none"}
        shards = [f"{setting.endpoint}/{setting.bucket}/{key}" for key in setting.shard_keys()]
        stream = datasets.load_dataset(
            "webdataset",
            data_files={"train": shards},
            split="train",
            streaming=True,
        )
        stream = stream.cast_column("jpg", datasets.Image(decode=False))
        self._stream = stream.shuffle(seed=setting.seed, buffer_size=buffer)
        self._loader = DataLoader(
            self._stream,
            batch_size=BATCH,
            num_workers=WORKERS,
            collate_fn=samples,
            persistent_workers=True,
        )

    def epoch(self, number: int) -> Iterator[list[Sample]]:
        """The batches of an epoch."""
        self._stream.set_epoch(number)
        return iter(self._loader)

    def close(self) -> None:
        """Ends the workers."""
        del self._loader
