"""Trees of files for datasets, whose bytes can be told from their names, and the plans over them."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from pathlib import Path

from hotset._core import seed_plan


def content(name: str, size: int) -> bytes:
    """Bytes that belong to `name` alone, and that no compression or zero page could stand in for."""
    return random.Random(name).randbytes(size)


def digest(data: bytes | memoryview) -> str:
    """A short hash of `data`; also a `decode=` or `loader=` that can be pickled."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def planned(samples: int, epoch: int, *, seed: int = 0) -> list[int]:
    """The ids of an epoch of `uniform`, in order."""
    plan = seed_plan("uniform", samples, seed, epoch, 0, 1, False)
    return plan.block(0, samples)


def equal_files(place: Path, count: int, size: int) -> Path:
    """`count` files of `size` bytes below `place`; their sorted order is that of their numbers."""
    for number in range(count):
        folder = place / f"{number // 256:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{number:06d}.bin"
        (folder / name).write_bytes(content(name, size))
    return place


def labelled_files(place: Path, count: int, *, largest: int = 40_000) -> dict[int, tuple[str, int]]:
    """`count` files of many sizes in five classes below `place`: the digest and label of every id.

    They end in `.jpg` and are no images: with a `loader=` of one's own nobody looks.
    """
    draw = random.Random(count)
    made = []
    for number in range(count):
        label = draw.randrange(5) if number >= 5 else number
        folder = place / f"class-{label}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number:06d}.jpg"
        path.write_bytes(content(path.name, draw.randint(1, largest)))
        made.append((str(path.relative_to(place)), path, label))
    made.sort()
    return {number: (digest(path.read_bytes()), label) for number, (_, path, label) in enumerate(made)}


def tar_shards(place: Path, *, shards: int, samples: int) -> dict[int, tuple[str, str, int]]:
    """`shards` tar files of `samples` each: the digests of `json` and `jpg`, and the label, of every id."""
    draw = random.Random(shards)
    place.mkdir(parents=True)
    truth: dict[int, tuple[str, str, int]] = {}
    for shard in range(shards):
        with tarfile.open(place / f"train-{shard:03d}.tar", "w") as tar:
            for _ in range(samples):
                number = len(truth)
                label = draw.randrange(5)
                image = content(f"{number}.jpg", draw.randint(1, 30_000))
                note = json.dumps({"number": number, "label": label}).encode()
                for extension, data in (("jpg", image), ("cls", str(label).encode()), ("json", note)):
                    header = tarfile.TarInfo(f"some/{number:06d}.{extension}")
                    header.size = len(data)
                    tar.addfile(header, io.BytesIO(data))
                truth[number] = (digest(note), digest(image), label)
    return truth
