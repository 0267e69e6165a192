"""WebDataset: tar shards in shuffled order through a shuffle buffer in each worker.

The buffers hold together as many bytes as Hotset may keep. Where that is everything, shards are kept on disk
too, by `cache_dir`, and no limit is set for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webdataset

from benchmarks.peers.samples import KINDS, digest
from benchmarks.peers.setting import BATCH, WORKERS, Sample, Setting


def sample(found: dict[str, Any]) -> Sample:
    """Digest and label."""
    return digest(found["jpg"]), int(found["cls"])


class Reader:
    """Reads whole shards with curl, as `http://` is read there."""

    def __init__(self, setting: Setting) -> None:
        kind = KINDS[setting.kind]
        buffer = min(setting.cache // ((kind.least + kind.most) // 2), kind.count) // WORKERS
        urls = [f"{setting.endpoint}/{setting.bucket}/{key}" for key in setting.shard_keys()]
        kept: dict[str, Any] = {}
        if setting.whole:
            folder = Path(setting.folder) / "kept"
            folder.mkdir()
            kept = {"cache_dir": str(folder)}
        self.settings: dict[str, object] = {
            "shardshuffle": len(urls),
            "shuffle, a worker": buffer,
            "cache_dir": "unlimited" if kept else "none",
        }
        shards = webdataset.WebDataset(
            urls, shardshuffle=len(urls), seed=setting.seed, empty_check=False, **kept
        )
        batches = shards.shuffle(buffer, initial=buffer).map(sample).batched(BATCH, collation_fn=list)
        self._loader = webdataset.WebLoader(
            batches, batch_size=None, num_workers=WORKERS, persistent_workers=True
        )

    def epoch(self, number: int) -> Iterator[list[Sample]]:
        """The batches of an epoch."""
        return iter(self._loader)

    def close(self) -> None:
        """Ends the workers."""
        del self._loader
