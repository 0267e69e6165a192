"""Amazon S3 Connector for PyTorch, map style: a worker reads the objects of a batch one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import s3torchconnector
import torch
from torch.utils.data import DataLoader

from benchmarks.peers.samples import digest
from benchmarks.peers.setting import BATCH, WORKERS, Sample, Setting


def sample(reader: Any) -> Sample:
    """Digest and label."""
    return digest(reader.read()), int(reader.key.split("/")[-2])


class Reader:
    """A shuffle of all objects each epoch."""

    def __init__(self, setting: Setting) -> None:
        self.settings: dict[str, object] = {"cache": "none"}
        objects = s3torchconnector.S3MapDataset.from_prefix(
            setting.url("objects") + "/",
            region=setting.region,
            endpoint=setting.endpoint,
            transform=sample,
            s3client_config=s3torchconnector.S3ClientConfig(force_path_style=True),
        )
        self._loader = DataLoader(
            objects,
            batch_size=BATCH,
            shuffle=True,
            num_workers=WORKERS,
            collate_fn=list,
            persistent_workers=True,
            generator=torch.Generator().manual_seed(setting.seed),
        )

    def epoch(self, number: int) -> Iterator[list[Sample]]:
        """The batches of an epoch."""
        return iter(self._loader)

    def close(self) -> None:
        """Ends the workers."""
        del self._loader
