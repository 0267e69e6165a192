"""Plain PyTorch: a map-style dataset of objects that each worker reads with threads and boto3."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import torch
from botocore.config import Config
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.samples import digest
from benchmarks.peers.setting import BATCH, REQUESTS, WORKERS, Sample, Setting

THREADS = REQUESTS // WORKERS


class Objects(Dataset[Sample]):
    """The objects of a prefix; labels are their folders."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._opened: tuple[int, Any, ThreadPoolExecutor] | None = None
        pages = self._client().get_paginator("list_objects_v2")
        prefix = f"{setting.kind}/objects/"
        self._keys = [
            found["Key"]
            for page in pages.paginate(Bucket=setting.bucket, Prefix=prefix)
            for found in page["Contents"]
        ]

    def __len__(self) -> int:
        return len(self._keys)

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """A batch, many at a time."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self._client(), ThreadPoolExecutor(THREADS)
        return list(self._opened[2].map(self._read, indices))

    def _read(self, index: int) -> Sample:
        assert self._opened
        key = self._keys[index]
        body = self._opened[1].get_object(Bucket=self._setting.bucket, Key=key)["Body"].read()
        return digest(body), int(key.split("/")[-2])

    def _client(self) -> Any:
        setting = self._setting
        return boto3.session.Session().client(
            "s3",
            endpoint_url=setting.endpoint,
            aws_access_key_id=setting.access,
            aws_secret_access_key=setting.secret,
            region_name=setting.region,
            config=Config(max_pool_connections=THREADS, s3={"addressing_style": "path"}),
        )


class Reader:
    """A shuffle of all objects each epoch."""

    def __init__(self, setting: Setting) -> None:
        self.settings: dict[str, object] = {"threads a worker": THREADS, "cache": "none"}
        self._loader = DataLoader(
            Objects(setting),
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
