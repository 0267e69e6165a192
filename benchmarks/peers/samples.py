"""The samples: random bytes between a JPEG's markers, random labels, and where they lie in the bucket.

Every process makes the same ones from their seed. Samples are numbered in the order in which shards and
chunks are written, which says nothing about their labels; as objects they lie in a folder for each label.
`Truth` is how an arm knows a sample again: by the digest of its bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LABELS = 100
SHARD = 4 << 20
"""Bytes of a tar shard, from which on the next begins."""


@dataclass(frozen=True)
class Kind:
    """A dataset."""

    name: str
    count: int
    least: int
    most: int
    """Bytes of a sample."""
    chunk: int
    """Bytes of a chunk of litdata and of an MDS shard: a fifth of all has several for each worker."""

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Bytes and label of each sample, in the order of their numbers."""
        draw = random.Random(self.name)
        for _ in range(self.count):
            size = draw.randint(self.least, self.most)
            yield b"\xff\xd8" + draw.randbytes(size - 4) + b"\xff\xd9", draw.randrange(LABELS)


KINDS = {
    "small": Kind("small", 12_000, 1_200, 1_500, 256 << 10),
    "large": Kind("large", 3_000, 110_000, 110_000, 2 << 20),
}


def digest(content: bytes | memoryview) -> bytes:
    """What a sample is known again by."""
    return hashlib.blake2b(content, digest_size=8).digest()


def key(number: int, label: int) -> str:
    """Of a sample as an object."""
    return f"{label:03}/{number:06}.jpg"


@dataclass(frozen=True)
class Truth:
    """What there is, by number."""

    digests: list[bytes]
    labels: list[int]
    size: int
    """Bytes of all samples."""

    @classmethod
    def of(cls, kind: Kind) -> Truth:
        """Of samples that are made for it."""
        digests, labels, size = [], [], 0
        for content, label in kind:
            digests.append(digest(content))
            labels.append(label)
            size += len(content)
        return cls(digests, labels, size)

    def write(self, path: Path) -> None:
        """For `read`."""
        told = {"digests": b"".join(self.digests).hex(), "labels": self.labels, "size": self.size}
        path.write_text(json.dumps(told))

    @classmethod
    def read(cls, path: Path) -> Truth:
        """What was written."""
        told = json.loads(path.read_text())
        flat = bytes.fromhex(told["digests"])
        return cls([flat[at : at + 8] for at in range(0, len(flat), 8)], told["labels"], told["size"])

    def objects(self) -> list[int]:
        """Numbers in the order in which their objects are listed."""
        return sorted(range(len(self.labels)), key=lambda number: key(number, self.labels[number]))


def write_objects(kind: Kind, folder: Path) -> None:
    """A file for each sample."""
    for label in range(LABELS):
        (folder / f"{label:03}").mkdir(parents=True)
    for number, (content, label) in enumerate(kind):
        (folder / key(number, label)).write_bytes(content)


def write_shards(kind: Kind, folder: Path) -> None:
    """Tar shards, as WebDataset has them."""
    folder.mkdir(parents=True)
    numbered = enumerate(kind)
    shard, left = 0, kind.count
    while left:
        with tarfile.open(folder / f"{shard:06}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            while left and tar.offset < SHARD:
                number, (content, label) = next(numbered)
                for extension, part in (("jpg", content), ("cls", str(label).encode())):
                    header = tarfile.TarInfo(f"{number:06}.{extension}")
                    header.size = len(part)
                    tar.addfile(header, io.BytesIO(part))
                left -= 1
        shard += 1
