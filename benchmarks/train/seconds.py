"""Trains one arm once, for real, and says how long it took: decoded from JPEG, from storage that is slow.

    python -m benchmarks.train.seconds --arm "uniform+minio" --epochs 20 --archive cifar100-jpeg-q90.tar.xz

Unlike `train`, every sample is decoded each time, by loader workers, and comes through a store that takes
5 ms for a request and works on 16 at a time. The limit is the same for every arm:

- Hotset's server reads through its own throttle of 5 ms and 16 requests, and has 16 threads that read, so
  that samples and packages together are no more than 16 requests.
- plain PyTorch reads the same files with the same code and the same 5 ms, a request for each sample, in its
  workers; a semaphore that all of them share lets 16 read at a time.

All arms have the same loader, as many workers, and the same steps on the GPU: crops, forward, backward.
Nothing else should run beside it. The clock starts before workers do and stops when the last step is done;
what is before it (listing the files, recording the graph) and the test of the model behind it are not in it.
Writing packages is, but writes are not throttled.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import hotset
import torch
from hotset import _core
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, get_worker_info

from benchmarks.sources import isolate, served

from .averages import accuracy
from .models import MODELS
from .pixels import decoded, decoder
from .run import Run
from .schedules import ARMS, PLAIN
from .step import FedStep
from .train import append, data_place, learning_rate, sampler_of

LATENCY = "5ms"
REQUESTS = 16
WORKERS = 16
_COUNTS = ("served", "hit", "packed", "single", "storage_reads", "storage_requests", "storage_bytes")

Decode = Callable[[bytes | memoryview], Tensor]


class Feed(Protocol):
    """An arm that is ready to train. Its loader yields images, labels and ids."""

    loader: DataLoader[Any]

    def begin(self, epoch: int) -> int:
        """Called before an epoch; how many samples it has."""

    def weights(self, ids: Tensor) -> Tensor | None:
        """What each sample of a batch weighs; all the same without it."""

    def report(self, ids: Tensor, losses: Tensor) -> None:
        """Called after each step."""

    def counts(self) -> list[dict[str, int]]:
        """What was asked of storage, by epoch."""


class PlainImages(Dataset[tuple[Tensor, int, int]]):
    """The files behind the throttle, read in the process that asks."""

    def __init__(self, place: Path, decode: Decode, workers: int, latency: str) -> None:
        slow = {"throttle.latency": latency}
        self.catalog = _core.Catalog(str(place), layout="images", storage_options=slow)
        self.turns = get_context("fork").Semaphore(REQUESTS)
        self.decode = decode
        self.read = torch.zeros((max(workers, 1), 2), dtype=torch.int64).share_memory_()
        """Samples and bytes that each worker has read: rows of their own, so that none is lost."""

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, sample: int) -> tuple[Tensor, int, int]:
        with self.turns:
            content = self.catalog.read(sample)
        worker = get_worker_info()
        row = self.read[0 if worker is None else worker.id]
        row[0] += 1
        row[1] += len(content)
        label = self.catalog.label(sample)
        assert label is not None, "a catalog of images has labels"
        return self.decode(content), label, sample


class PlainFeed:
    """PyTorch's own random sampler and loader, without Hotset's cache."""

    def __init__(self, place: Path, decode: Decode, run: Run, workers: int, latency: str) -> None:
        self._images = PlainImages(place, decode, workers, latency)
        order = torch.Generator().manual_seed(run.seed)
        self.loader = _loader(self._images, RandomSampler(self._images, generator=order), run, workers)
        self._until = list[Tensor]()

    def begin(self, epoch: int) -> int:
        self._until.append(self._images.read.sum(0))
        return len(self._images)

    def weights(self, ids: Tensor) -> Tensor | None:
        return None

    def report(self, ids: Tensor, losses: Tensor) -> None:
        pass

    def counts(self) -> list[dict[str, int]]:
        ends = [*self._until[1:], self._images.read.sum(0)]
        each = [(end - begin).tolist() for begin, end in zip(self._until, ends, strict=True)]
        return [
            dict(zip(_COUNTS, (reads, 0, 0, reads, reads, reads, length), strict=True))
            for reads, length in each
        ]


class HotsetFeed:
    """Hotset's dataset and sampler in the same loader."""

    def __init__(
        self, place: Path, decode: Decode, run: Run, workers: int, latency: str, packages: str
    ) -> None:
        slow = {"throttle.latency": latency, "throttle.requests": str(REQUESTS)}
        self._train = hotset.ImageFolder(
            place, loader=decode, cache=run.cache, with_ids=True, storage_options=slow
        )
        self._sampler = sampler_of(self._train, run, packages)
        self._epochs = run.epochs
        self.loader = _loader(self._train, self._sampler, run, workers)

    def begin(self, epoch: int) -> int:
        self._sampler.set_epoch(epoch)
        return len(self._sampler)

    def weights(self, ids: Tensor) -> Tensor | None:
        return self._sampler.weights(ids)

    def report(self, ids: Tensor, losses: Tensor) -> None:
        self._sampler.update(ids, losses)

    def counts(self) -> list[dict[str, int]]:
        self._sampler.flush()
        found = {each["epoch"]: each for each in self._train.stats()["epochs"]}
        return [{name: found[number][name] for name in _COUNTS} for number in range(self._epochs)]

    def close(self) -> None:
        """Ends the workers, which hold the job open, and the job."""
        del self.loader
        self._train.close()


def main() -> None:
    """One arm, from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--epochs", type=int, required=True, help="of a complete schedule")
    parser.add_argument("--model", choices=MODELS, default=Run().model)
    parser.add_argument("--batch", type=int, default=Run().batch)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--latency", default=LATENCY, help="of a request; 1us where accuracy alone is wanted")
    parser.add_argument("--data", type=Path, help="a folder with `train` and `test` in it")
    parser.add_argument("--archive", type=Path, help="a tar file of that folder, unpacked into --work")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "hotset-train")
    parser.add_argument("--dataset", help="the images' name in the results; else the archive's up to `-`")
    parser.add_argument("--out", type=Path, default=Path("seconds.jsonl"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    place = data_place(options.data, options.archive, options.work)
    named = options.dataset or (options.archive or options.data).name.partition("-")[0]
    run = replace(
        ARMS[options.arm],
        epochs=options.epochs,
        warm=options.epochs / 30,
        model=options.model,
        batch=options.batch,
        seed=options.seed,
        dataset=named,
    )
    device = torch.device(options.device)
    append(options.out, train(options.arm, run, place, device, options.workers, options.latency))


def train(
    arm: str, run: Run, place: Path, device: torch.device, workers: int, latency: str = LATENCY
) -> dict[str, Any]:
    """Trains as `run` says; a line of results."""
    cuda = device.type == "cuda"
    if cuda:
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(run.seed)
    # For the scale of the images and their classes alone: what is trained comes from the loader.
    whole, test = decoded(place / "train"), decoded(place / "test").on(device)
    classes, side, scale = int(whole.labels.max()) + 1, whole.side, whole.on(device).scale()
    name, decode = decoder(next((place / "train").glob("*/*")).read_bytes())
    del whole
    model = MODELS[run.model](classes, side).to(device).to(memory_format=torch.channels_last)
    step = FedStep(model, side, run.batch, cuda, cuda, scale)
    with _opened(arm, place / "train", decode, run, workers, latency) as feed:
        clock = _Clock(device)
        began = time.perf_counter()
        epochs = [_epoch(run, number, feed, step, clock) for number in range(run.epochs)]
        seconds = time.perf_counter() - began
        for epoch, counts in zip(epochs, feed.counts(), strict=True):
            epoch["counts"] = counts
    return {
        "arm": arm,
        "run": asdict(run),
        **accuracy(model, test, step, cuda),
        "seconds": round(seconds, 3),
        "epochs": epochs,
        "storage": {"latency": latency, "requests": REQUESTS},
        "workers": workers,
        "decoder": name,
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "versions": {
            "hotset": hotset.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


@contextmanager
def _opened(arm: str, place: Path, decode: Decode, run: Run, workers: int, latency: str) -> Iterator[Feed]:
    with tempfile.TemporaryDirectory(prefix="hs-seconds-") as top, ExitStack() as held:
        folder = Path(top)
        isolate(folder)
        if arm == PLAIN:
            yield PlainFeed(place, decode, run, workers, latency)
            return
        os.environ["HOTSET_SERVER"] = str(held.enter_context(served(folder, REQUESTS)))
        feed = HotsetFeed(place, decode, run, workers, latency, str(folder / "packages"))
        try:
            yield feed
        finally:
            feed.close()


def _epoch(run: Run, number: int, feed: Feed, step: FedStep, clock: _Clock) -> dict[str, Any]:
    """Trains all whole batches; how long that took, and how much of it no step was under way."""
    began, steps = time.perf_counter(), 0
    total = torch.zeros((), device=step.scale.mean.device)
    samples = feed.begin(number)
    for images, labels, ids in feed.loader:
        if len(ids) < run.batch:
            continue
        rate, weights = learning_rate(run, number + steps * run.batch / samples), feed.weights(ids)
        with clock:
            losses = step.train(images, labels, weights, rate)
        total += losses.mean()
        feed.report(ids, losses)
        steps += 1
    loss = float(total) / max(steps, 1)
    seconds, busy = time.perf_counter() - began, clock.taken()
    found = {"seconds": seconds, "waiting": seconds - busy, "loss": loss}
    rounded = {name: round(value, 4) for name, value in found.items()}
    sys.stderr.write(f"{run.name} of {run.epochs} epochs, epoch {number}: {rounded}\n")
    return {"steps": steps, **rounded}


class _Clock:
    """How long the steps of an epoch took, where they are made."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._spans = list[tuple[Any, Any]]()

    def __enter__(self) -> None:
        self._spans.append((self._now(), None))

    def __exit__(self, *_: object) -> None:
        self._spans[-1] = self._spans[-1][0], self._now()

    def taken(self) -> float:
        """Seconds of all spans since the last call; the device has come to their end."""
        spans, self._spans = self._spans, []
        if self._cuda:
            torch.cuda.synchronize()
            return float(sum(begin.elapsed_time(end) for begin, end in spans)) / 1000.0
        return float(sum(end - begin for begin, end in spans))

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _loader(dataset: Dataset[Any], sampler: Any, run: Run, workers: int) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=run.batch,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
        multiprocessing_context="fork" if workers else None,
    )


if __name__ == "__main__":
    main()
