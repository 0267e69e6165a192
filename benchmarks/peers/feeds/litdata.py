"""litdata: chunks of its own, kept on local disk up to `max_cache_size`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
from litdata.streaming import downloader

from benchmarks.peers.samples import KINDS, Kind, digest
from benchmarks.peers.setting import BATCH, WORKERS, Sample, Setting

# What reads chunks speaks no plain HTTP unless it is told to, and litdata has no setting for that.
downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True


class Chunks(litdata.StreamingDataset):  # type: ignore[misc]
    """Digests and labels."""

    def __getitem__(self, index: Any) -> Sample:
        found = super().__getitem__(index)
        return digest(found["image"]), int(found["label"])


class Reader:
    """Reads chunk after chunk, shuffled by litdata."""

    def __init__(self, setting: Setting) -> None:
        self.settings: dict[str, object] = {
            "max_cache_size": setting.cache,
            "chunk_bytes": KINDS[setting.kind].chunk,
            "shuffle": True,
        }
        chunks = Chunks(
            setting.url("litdata"),
            cache_dir=str(Path(setting.folder) / "kept"),
            shuffle=True,
            seed=setting.seed,
            max_cache_size=setting.cache,
            storage_options={
                "endpoint_url": setting.endpoint,
                "aws_access_key_id": setting.access,
                "aws_secret_access_key": setting.secret,
                "region_name": setting.region,
            },
        )
        self._loader = litdata.StreamingDataLoader(
            chunks, batch_size=BATCH, num_workers=WORKERS, collate_fn=list, persistent_workers=True
        )

    def epoch(self, number: int) -> Iterator[list[Sample]]:
        """The batches of an epoch."""
        return iter(self._loader)

    def close(self) -> None:
        """Ends the workers."""
        del self._loader


def convert(kind: Kind, folder: Path) -> None:
    """Writes the samples as chunks, in the order of their numbers."""
    found = [{"image": content, "label": label} for content, label in kind]
    litdata.optimize(
        fn=found.__getitem__,
        inputs=list(range(kind.count)),
        output_dir=str(folder),
        chunk_bytes=kind.chunk,
        num_workers=1,
    )
