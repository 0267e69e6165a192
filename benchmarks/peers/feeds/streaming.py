"""MosaicML Streaming: MDS shards, kept on local disk up to `cache_limit`.

What all workers shuffle is half of what may be kept, so that it can stay there; they download as far ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streaming

from benchmarks.peers.samples import KINDS, Kind, digest
from benchmarks.peers.setting import BATCH, WORKERS, Sample, Setting


class Shards(streaming.StreamingDataset):  # type: ignore[misc]
    """Digests and labels."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return digest(found["image"]), int(found["label"])


class Reader:
    """Reads shards in the order of `py1e`."""

    def __init__(self, setting: Setting) -> None:
        kind = KINDS[setting.kind]
        each = (kind.least + kind.most) // 2
        block = min(setting.cache // each, kind.count) // (2 * WORKERS)
        self.settings: dict[str, object] = {
            "cache_limit": setting.cache,
            "size_limit of a shard": kind.chunk,
            "shuffle_algo": "py1e",
            "shuffle_block_size": block,
            "predownload": block,
            "num_canonical_nodes": 1,
        }
        shards = Shards(
            remote=setting.url("mds"),
            local=str(Path(setting.folder) / "kept"),
            cache_limit=setting.cache,
            predownload=block,
            shuffle=True,
            shuffle_algo="py1e",
            shuffle_seed=setting.seed,
            shuffle_block_size=block,
            num_canonical_nodes=1,
            batch_size=BATCH,
        )
        self._loader = streaming.StreamingDataLoader(
            shards, batch_size=BATCH, num_workers=WORKERS, collate_fn=list, persistent_workers=True
        )

    def epoch(self, number: int) -> Iterator[list[Sample]]:
        """The batches of an epoch."""
        return iter(self._loader)

    def close(self) -> None:
        """Ends the workers."""
        del self._loader


def convert(kind: Kind, folder: Path) -> None:
    """Writes the samples as MDS shards, in the order of their numbers."""
    columns = {"image": "bytes", "label": "int"}
    with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=kind.chunk) as out:
        for content, label in kind:
            out.write({"image": content, "label": label})
