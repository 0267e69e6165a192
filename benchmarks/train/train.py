"""Trains one model on a folder of images through Hotset and appends a line of what came of it.

    python -m benchmarks.train.train --archive cifar10-jpeg-q95.tar.xz --work /tmp/cifar10 \
        --strategy iis --policy icache --seed 1 --out results.jsonl

It needs torch, hotset and torchvision or Pillow, and no network. Pixels are decoded once (`pixels`); every
sample of every epoch is still asked for at a Hotset server (`feed`), which reads the files and counts. So
accuracies and counts are those of a training that decodes, and seconds are the GPU's alone.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import hotset
import torch
from torch import Tensor, nn

from . import controls, feed
from .averages import Averages, accuracy
from .models import MODELS
from .pixels import Pixels, decoded, unpacked
from .run import Run, add_options, from_options
from .step import Step, losses_of
from .trace import Trace
from .transforms import Visits

_COUNTS = (
    "planned",
    "served",
    "hit",
    "packed",
    "single",
    "substituted",
    "distinct",
    "storage_reads",
    "storage_requests",
    "storage_bytes",
    "other_reads",
    "pack_reads",
    "package_waste",
)
"""What is kept of an epoch's counters, those of them that the server has."""

# The others plan from what is known when an epoch ends.
_REEVALUATING = ("hybrid", "realtime")
_ACCURACY = ("pads", "batchloss")


def main() -> None:
    """One run, from the command line."""
    parser = argparse.ArgumentParser(description="Train through Hotset, once; append one line of results.")
    add_options(parser)
    parser.add_argument("--data", type=Path, help="a folder with `train` and `test` in it")
    parser.add_argument("--archive", type=Path, help="a tar file of that folder, unpacked into --work")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "hotset-train")
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--trace", type=Path, help="an .npz for each epoch's losses, for `hotset simulate`")
    options = parser.parse_args()
    place = data_place(options.data, options.archive, options.work)
    line = train(from_options(options), place, torch.device(options.device), options.graph, options.trace)
    append(options.out, line)


def data_place(data: Path | None, archive: Path | None, work: Path) -> Path:
    """The folder with `train` and `test` in it."""
    if data is not None:
        return data
    if archive is None:
        raise SystemExit("--data or --archive is needed")
    return unpacked(archive, work / "data")


def append(out: Path, line: dict[str, Any]) -> None:
    """Adds a line to `out`, whole, however many runs do so at a time."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(line) + "\n")


def train(
    run: Run, place: Path, device: torch.device, graph: bool | None = None, trace: Path | None = None
) -> dict[str, Any]:
    """Trains as `run` says; a line of results. Each epoch's losses are written to `trace`."""
    began = time.monotonic()
    cuda = device.type == "cuda"
    if cuda:
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(run.seed)
    whole, test = decoded(place / "train"), decoded(place / "test").on(device)
    dataset = hotset.ImageFolder(place / "train", loader=len, cache=run.cache, with_ids=True)
    if len(dataset) != len(whole):
        raise SystemExit(f"`{place}` has {len(dataset)} files and {len(whole)} decoded images")
    classes = int(whole.labels.max()) + 1
    if run.held_out:
        test = whole.part(controls.held_out(len(whole), run.held_out)).on(device)
    elif run.images and not cuda:
        # A try on a processor would spend its time on the test.
        few = controls.trained(replace(run, subset=0), test.labels)
        test = test if few is None else test.part(few)
    chosen = controls.trained(run, whole.labels)
    if chosen is not None:
        dataset, whole = dataset.select(chosen), whole.part(chosen)
    pixels = whole.on(device)
    with tempfile.TemporaryDirectory(prefix="hotset-packages-") as packages:
        sampler = sampler_of(dataset, run, packages)
        model = MODELS[run.model](classes, pixels.side).to(device)
        model = model.to(memory_format=torch.channels_last)
        step = Step(
            model, pixels, run.batch, cuda if graph is None else graph, cuda, run.augment, run.transform
        )
        traced = None if trace is None else Trace(trace, len(whole), device)
        progress = _Progress(run, dataset, sampler, step, pixels, test, traced)
        epochs = [progress.epoch(number) for number in range(run.epochs)]
        tested = progress.tested()
        if traced is not None:
            traced.write()
        sampler.flush()
        counted = {each["epoch"]: each for each in dataset.stats()["epochs"]}
        dataset.close()
        shutil.rmtree(packages, ignore_errors=True)
        Path(packages).mkdir()
    for number, epoch in enumerate(epochs):
        found = counted.get(number, {})
        epoch["counts"] = {name: found[name] for name in _COUNTS if name in found}
    return {
        "run": asdict(run),
        "name": run.name,
        "top1": epochs[-1]["top1"],
        "top5": epochs[-1]["top5"],
        "best": max(epoch["top1"] for epoch in epochs),
        **tested,
        "epochs": epochs,
        "samples": len(whole),
        "seconds": round(time.monotonic() - began, 2),
        "decoder": whole.decoder,
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "versions": {
            "hotset": hotset.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


class _Progress:
    """A run under way."""

    def __init__(
        self,
        run: Run,
        dataset: hotset.Dataset,
        sampler: hotset.Sampler,
        step: Step,
        pixels: Pixels,
        test: Pixels,
        trace: Trace | None = None,
    ) -> None:
        self._run, self._dataset, self._sampler, self._step = run, dataset, sampler, step
        self._pixels, self._test, self._trace = pixels, test, trace
        self._half = pixels.labels.device.type == "cuda"
        self._visits = Visits(run, len(pixels)) if run.transform else None
        self._averages = Averages(step, run.epochs, run.average, len(pixels)) if run.average else None
        self._known: tuple[Tensor, Tensor] | None = None
        """What was re-evaluated before this epoch, and its losses."""

    @property
    def _model(self) -> nn.Module:
        return self._step.model

    def epoch(self, number: int) -> dict[str, Any]:
        """Trains one epoch and tests the model; what came of it."""
        self._sampler.set_epoch(number)
        found: dict[str, Any] = {}
        began = time.monotonic()
        if self._run.strategy in _REEVALUATING:
            found["reevaluated"] = self._reevaluate(number)
            found["reevaluate_seconds"] = round(time.monotonic() - began, 4)
        if number and self._run.identify:
            # After re-evaluation, where there is one; the look itself is no part of the training's time.
            looked = time.monotonic()
            found["precision"] = self._precision()
            began += time.monotonic() - looked
        found["steps"], found["loss"] = self._trained(number)
        found["seconds"] = round(time.monotonic() - began, 4)
        if self._trace is not None:
            every = torch.arange(len(self._pixels), device=self._pixels.labels.device)
            self._trace.end_epoch(self._losses(every)[0])
        found |= accuracy(self._model, self._test, self._step, self._half)
        if self._run.strategy in _ACCURACY:
            self._sampler.end_epoch(accuracy=found["top1"] / 100.0)
        shown = {name: value for name, value in found.items() if not isinstance(value, dict)}
        sys.stderr.write(f"{self._run.name} seed {self._run.seed} epoch {number}: {shown}\n")
        return found

    def tested(self) -> dict[str, Any]:
        """The model at the end, tested with averaged weights too; nothing without `average`."""
        return {} if self._averages is None else {"tested": self._averages.tested(self._test, self._half)}

    def _trained(self, number: int) -> tuple[int, float]:
        """Trains all whole batches; how many, and their mean loss."""
        run, device = self._run, self._pixels.labels.device
        total, steps = torch.zeros((), device=device), 0
        served = feed.batches(self._dataset, self._sampler, run.batch)
        an_epoch = len(self._sampler) * run.echo
        for ids in controls.repeated(run, number, served, len(self._pixels)):
            numbers = torch.tensor(ids)
            done = number + steps * run.batch / an_epoch
            pinned = _pinned(numbers, device)
            chosen = None if self._visits is None else _pinned(self._visits(numbers), device)
            loss = self._step(pinned, self._sampler.weights(numbers), learning_rate(run, done), chosen)
            if self._averages is not None:
                self._averages.add(done, numbers)
            if self._trace is not None:
                self._trace.trained(pinned, loss)
            if run.echo == 1.0:
                # Controls train what they were served more than once, and no strategy looks at it.
                self._sampler.update(numbers, loss)
            total += loss.mean()
            steps += 1
        return steps, round(float(total) / max(steps, 1), 5)

    def _reevaluate(self, number: int) -> int:
        """Tells the server the losses that the current model has on what it asks for; how many."""
        source = self._dataset.source
        # The set that is asked for is chosen from all losses of the epoch before.
        self._sampler.flush()
        ids = list(source.reevaluation(number))
        self._known = None
        if ids:
            # What `sampler.reevaluate` does, with pixels that are decoded already.
            feed.read(self._dataset, number, ids)
            losses, _ = self._losses(torch.tensor(ids, device=self._pixels.labels.device))
            self._known = torch.tensor(ids), losses.cpu()
            source.reevaluated(number, ids, losses.tolist(), True)
        return len(ids)

    def _precision(self) -> float:
        """The share of the highest 1 % of scores that are among the hardest 1 % under the current model."""
        every = torch.arange(len(self._pixels), device=self._pixels.labels.device)
        true, _ = self._losses(every)
        scores = self._sampler.importance()
        scores = torch.where(scores.isnan(), torch.inf, scores)
        if self._known is not None:
            ids, losses = self._known
            # Re-evaluated losses are `realtime`'s scores; `hybrid` reorders the scores it has by them.
            realtime = self._run.strategy == "realtime"
            scores[ids[losses.argsort()]] = losses.sort().values if realtime else scores[ids].sort().values
        count = max(len(every) // 100, 1)
        hardest, guessed = true.cpu().topk(count).indices, scores.topk(count).indices
        return round(float(torch.isin(guessed, hardest).float().mean()), 4)

    def _losses(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return losses_of(self._model, self._pixels, self._step.scale, ids, self._half)


def sampler_of(dataset: hotset.Dataset, run: Run, packages: str) -> hotset.Sampler:
    """The sampler that `run` asks for, with its packages in that directory."""
    # Only what differs from the defaults is said.
    more: dict[str, Any] = {}
    if run.settings:
        more["settings"] = run.settings
    if run.policy_settings:
        more["policy_settings"] = run.policy_settings
    if run.packaged:
        more["packages"] = packages
    if run.strategy != "uniform":
        more["epochs"] = run.epochs
    return hotset.Sampler(dataset, run.strategy, policy=run.policy or None, seed=run.seed, **more)


def learning_rate(run: Run, done: float) -> float:
    """The learning rate after so many epochs."""
    if done < run.warm:
        return run.rate * (done + 0.01) / (run.warm + 0.01)
    left = (done - run.warm) / max(run.epochs - run.warm, 1e-9)
    return run.rate * max(0.5 * (1.0 + math.cos(math.pi * min(left, 1.0))), run.floor)


def _pinned(ids: Tensor, device: torch.device) -> Tensor:
    return ids.pin_memory() if device.type == "cuda" else ids


if __name__ == "__main__":
    main()
