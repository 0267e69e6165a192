"""The ways of feeding the same training that the demo compares: `ARMS`, one line each.

Every arm reads the same throttled store with the same number of loader workers. Plain PyTorch reads it sample
by sample in its workers, through the same store code as Hotset's server; each worker throttles on its own and
gets its part of the bandwidth. Every arm is told the same after each batch (one loss a sample) and each epoch
(the accuracy); strategies that need neither let it pass.
"""

from __future__ import annotations

import io
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import hotset
import torch
from hotset import _core, stop_private
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler

from .data import Images

Transform = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class Setting:
    """What all arms have in common."""

    images: Images
    transform: Transform
    latency_ms: float
    # Bytes per second.
    bandwidth: int
    cache: str
    workers: int
    batch: int
    epochs: int
    seed: int

    def place(self) -> str:
        """The training images."""
        return str(Path(self.images.root, "train"))

    def package_bytes(self) -> int:
        """Two packages may take a quarter of the cache at most; a real cache has room for those of 1 MiB."""
        return int(min(1 << 20, _core.parse_size(self.cache, self.images.train_bytes) // 8))

    def store(self, readers: int) -> dict[str, str]:
        """The throttled store, as one of `readers` processes that share its bandwidth sees it."""
        latency, bandwidth = f"{self.latency_ms:g}ms", f"{self.bandwidth // readers}B/s"
        return {"throttle.latency": latency, "throttle.bandwidth": bandwidth}


@dataclass(frozen=True)
class EpochCounts:
    """How one epoch's samples came, and what it asked of storage."""

    served: int
    hit: int
    packed: int
    single: int
    # Samples fetched, those of a package that nobody was served included.
    storage_reads: int
    storage_requests: int
    storage_bytes: int
    coverage: float


class Feed(Protocol):
    """An arm that is ready to train. Its loader yields images, labels and ids."""

    loader: DataLoader[Any]

    def begin(self, epoch: int, model: nn.Module) -> None:
        """Called before each epoch, on its time."""

    def report(self, ids: Tensor, losses: Tensor) -> Tensor:
        """Called after each batch: the losses to go on with."""

    def end(self, accuracy: float) -> EpochCounts:
        """Called after each epoch: its counts."""


class Arm(Protocol):
    """One row of the comparison."""

    @property
    def name(self) -> str: ...
    def open(self, setting: Setting) -> Any:
        """A context with the arm's `Feed`; leaving it ends its processes."""


# --- plain PyTorch -----------------------------------------------------------------------------------------


class PlainImages(Dataset[tuple[Tensor, int, int]]):
    """An image folder on the throttled store, read in the process that asks."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.catalog, self.pid = self._open(), os.getpid()
        # How often each sample was read, in memory that all workers share.
        self.reads = torch.zeros(len(self.catalog), dtype=torch.int32).share_memory_()

    def _open(self) -> _core.Catalog:
        storage_options = self.setting.store(readers=max(self.setting.workers, 1))
        return _core.Catalog(self.setting.place(), layout="images", storage_options=storage_options)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"catalog": None, "pid": None}

    def __len__(self) -> int:
        return len(self.reads)

    def __getitem__(self, sample: int) -> tuple[Tensor, int, int]:
        if self.pid != os.getpid():
            self.catalog, self.pid = self._open(), os.getpid()
        content, label = self.catalog.read(sample), self.catalog.label(sample)
        self.reads[sample] += 1
        assert label is not None, "a catalog of images has labels"
        return self.setting.transform(Image.open(io.BytesIO(content)).convert("RGB")), label, sample


class PlainFeed:
    """PyTorch's own random sampler over the store."""

    def __init__(self, setting: Setting) -> None:
        self.dataset = PlainImages(setting)
        order = torch.Generator().manual_seed(setting.seed)
        self.loader = _loader(setting, self.dataset, RandomSampler(self.dataset, generator=order))

    def begin(self, epoch: int, model: nn.Module) -> None:
        self.dataset.reads.zero_()

    def report(self, ids: Tensor, losses: Tensor) -> Tensor:
        return losses

    def end(self, accuracy: float) -> EpochCounts:
        reads, size = self.dataset.reads, self.dataset.setting.images.train_bytes / len(self.dataset)
        made = int(reads.sum())
        return EpochCounts(
            served=made,
            hit=0,
            packed=0,
            single=made,
            storage_reads=made,
            storage_requests=made,
            storage_bytes=int(made * size),
            coverage=int((reads > 0).sum()) / len(reads),
        )


@dataclass(frozen=True)
class Plain:
    """Training without Hotset."""

    name: str = "plain PyTorch"

    @contextmanager
    def open(self, setting: Setting) -> Iterator[Feed]:
        yield PlainFeed(setting)


# --- Hotset ------------------------------------------------------------------------------------------------


class HotsetFeed:
    """Hotset's dataset and sampler in the same loader."""

    def __init__(self, setting: Setting, arm: Hotset, packages: str | None) -> None:
        self.train = hotset.ImageFolder(
            setting.place(),
            transform=setting.transform,
            cache=setting.cache,
            storage_options=setting.store(readers=1),
            with_ids=True,
        )
        self.sampler = hotset.Sampler(
            self.train,
            strategy=arm.strategy,
            policy=arm.policy,
            seed=setting.seed,
            settings=arm.settings,
            epochs=setting.epochs,
            packages=packages,
            package_size=f"{setting.package_bytes()}B",
        )
        self.loader = _loader(setting, self.train, self.sampler)
        self.epoch = 0

    def begin(self, epoch: int, model: nn.Module) -> None:
        self.epoch = epoch
        self.sampler.set_epoch(epoch)
        # Asks for nothing where the strategy needs nothing.
        self.sampler.reevaluate(model, _loss_of_each)

    def report(self, ids: Tensor, losses: Tensor) -> Tensor:
        weighted: Tensor = self.sampler.update(ids, losses)
        return weighted

    def end(self, accuracy: float) -> EpochCounts:
        self.sampler.end_epoch(accuracy=accuracy)
        (counted,) = (each for each in self.train.stats()["epochs"] if each["epoch"] == self.epoch)
        return EpochCounts(**{name: counted[name] for name in EpochCounts.__dataclass_fields__})


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hotset-demo-packages-")


def _loss_of_each(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


@dataclass(frozen=True)
class Hotset:
    """Training through Hotset; with `packs`, small samples that do not stay are packed together."""

    strategy: str
    policy: str
    settings: dict[str, object] = field(default_factory=dict)
    packs: bool = False

    @property
    def name(self) -> str:
        """As in the table."""
        pair = self.strategy if self.strategy == self.policy else f"{self.strategy}+{self.policy}"
        return f"{pair}, packed" if self.packs else pair

    @contextmanager
    def open(self, setting: Setting) -> Iterator[Feed]:
        """Opens the dataset, which starts a server if none runs, and closes it in the end."""
        with ExitStack() as held:
            packages = held.enter_context(_folder()) if self.packs else None
            feed = HotsetFeed(setting, self, packages)
            try:
                yield feed
            finally:
                # Workers hold the job open; and the next arm is to find a server that remembers nothing.
                del feed.loader
                feed.train.close()
                stop_private()


def _loader(setting: Setting, dataset: Dataset[Any], sampler: Sampler[int]) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=setting.batch,
        sampler=sampler,
        num_workers=setting.workers,
        persistent_workers=setting.workers > 0,
        worker_init_fn=_leave_interrupts_to_main,
    )


def _leave_interrupts_to_main(worker: int) -> None:
    """Ctrl-C reaches workers too; the training process ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


ARMS: list[Arm] = [
    Plain(),
    Hotset("uniform", "lru"),
    Hotset("uniform", "minio"),
    Hotset("iis", "icache", packs=True),
    # By itself it would go on with full epochs until its set is stable, at most thirty.
    Hotset("hybrid", "impact", settings={"warmup_max": 2}),
    Hotset("pads", "app"),
    Hotset("carousel", "carousel"),
]
