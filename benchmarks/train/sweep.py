"""Many runs, some at a time on one GPU, within a time that is given; what is already there is skipped.

    python -m benchmarks.train.sweep --archive cifar10-jpeg-q95.tar.xz --out results.jsonl --seconds 540

Runs go seed by seed, so that a sweep that was cut short has as many seeds of each. Each is a process of its
own, with a private Hotset server of its own, so that no run's counts depend on another's. One that could not
end in time, judged by those that did, is not begun; one that is still going when time is up is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .models import MODELS
from .pixels import decoded
from .plots import titled
from .run import Run
from .schedules import SCHEDULED
from .train import data_place

UNIFORM = Run("uniform", "minio")
FIVE_SEEDS = (
    UNIFORM,
    Run("iis", "icache"),
    Run("hybrid", "impact"),
    Run("pads", "app"),
    Run("infobatch", "minio"),
    Run("carousel", "carousel", {"fresh": 0.25}),
    Run("carousel", "carousel", {"fresh": 0.5}),
)
DEFAULT = Run("uniform", "lru")
"""The papers' Default: plans are those of `UNIFORM`, reads are not."""

# Of 50,000 images, 30 epochs and a cache of a fifth, as many reads as `carousel` at 0.25 makes (412,500) and,
# but for the first, as many steps (5,850). How they were worked out is in the README.
FEWER = replace(UNIFORM, epochs=10, warm=10 / 30)
ECHO = replace(UNIFORM, epochs=10, warm=10 / 30, echo=3.0)
SUBSET = replace(UNIFORM, epochs=110, warm=110 / 30, subset=13_667, cache="73.17%")
BLOCK = replace(UNIFORM, epochs=8, warm=8 / 30, echo=3.75, block=0.2, cache="0")
CONTROLS = (FEWER, ECHO, SUBSET, BLOCK, replace(BLOCK, block=0.4))

# Ways to lose less than `carousel` at 0.25 does, with as many reads: 45,000 + 29 x 11,250 of 45,000 images.
# Where full epochs at the end read 36,000 each, `fresh` is lower for it.
SCREENED = (
    UNIFORM,
    FIVE_SEEDS[5],
    replace(FIVE_SEEDS[5], transform="erase", repeats=True),
    replace(FIVE_SEEDS[5], floor=0.1),
    replace(FIVE_SEEDS[5], settings={"fresh": 0.23, "full_last": 0.034}),
    replace(UNIFORM, transform="erase"),
    replace(UNIFORM, floor=0.1),
    replace(FIVE_SEEDS[5], transform="warp", repeats=True),
    replace(UNIFORM, transform="warp"),
    replace(FIVE_SEEDS[5], settings={"fresh": 0.187, "full_last": 0.1}),
    replace(FIVE_SEEDS[5], transform="erase"),
    replace(FIVE_SEEDS[5], transform="warp"),
)

# A complete schedule each: the learning rate rises in a thirtieth of it and falls to 0 at its end.
LENGTHS = (30, 20, 16, 12, 8)

SUBSTITUTES = (Run("iis", "icache", {"substitute": "h"}), Run("iis", "icache", {"substitute": "off"}))
BASE = (Run("cis", "lru"),)
EVALUATION = tuple(
    Run(*named, identify=True) for named in (("iis", "icache"), ("hybrid", "impact"), ("realtime", "icache"))
)
SHADE = (Run("pads", "app", {"repeat": 3}), Run("batchloss", "minio"), Run("quiver", "quiver"))


def accuracy() -> Iterator[Run]:
    """Accuracy against storage reads: five seeds of all; `lru` once, for its reads."""
    yield from _five((*FIVE_SEEDS, *BASE))
    yield DEFAULT


def controls() -> Iterator[Run]:
    """Simpler ways to read as little as `carousel` at 0.25: five seeds."""
    yield from _five(CONTROLS)


def windows() -> Iterator[Run]:
    """`carousel` by the size of its window, and without augmentation: five seeds."""
    for seed in range(5):
        for cache in ("1%", "5%", "40%", "60%"):
            yield Run("carousel", "carousel", {"fresh": 0.25}, cache=cache, seed=seed)
        for run in (UNIFORM, FIVE_SEEDS[5]):
            yield replace(run, seed=seed, augment=False)


def screen() -> Iterator[Run]:
    """Ways for `carousel` to lose less, beside `uniform`, on held-out images: two seeds, best guess first."""
    for run in SCREENED:
        # A boarding period at 0.25 is four epochs.
        yield from (replace(run, seed=seed, held_out=5000, average=4.0) for seed in range(2))


def confirm() -> Iterator[Run]:
    """What screening chose, beside plain `carousel`: ten seeds that it did not see, on the test images."""
    for seed in range(10, 20):
        for run in (FIVE_SEEDS[5], replace(FIVE_SEEDS[5], transform="warp", repeats=True)):
            yield replace(run, seed=seed, average=4.0)


def treated() -> Iterator[Run]:
    """The same `warp` for others: for `uniform` on all images, for blocks on repeats; seeds of `confirm`."""
    for seed in range(10, 20):
        yield replace(UNIFORM, seed=seed, transform="warp", average=4.0)
        # One of its eight passes, each image 3.75 times, is about as long as four epochs.
        yield replace(BLOCK, seed=seed, transform="warp", repeats=True, average=1.0)


def schedules() -> Iterator[Run]:
    """Complete schedules of several lengths, the longest first: three seeds."""
    for epochs in LENGTHS:
        for seed in range(3):
            yield from (replace(run, seed=seed, epochs=epochs, warm=epochs / 30) for run in SCHEDULED)


def models() -> Iterator[Run]:
    """The other models, and `cis`: iCache's table I and ImPACT's table I; five seeds."""
    runs = (DEFAULT, *BASE, *FIVE_SEEDS[1:3])
    pairs = ((model, run) for model in MODELS for run in runs if model != "resnet18" or run in BASE)
    yield from _five(replace(run, model=model) for model, run in pairs)


def shufflenet() -> Iterator[Run]:
    """ShuffleNet alone, all that `accuracy` trains; five seeds."""
    yield from _five(replace(run, model="shufflenet") for run in FIVE_SEEDS)


def substitution() -> Iterator[Run]:
    """What takes the place of an easy sample that is missing: iCache's table III; five seeds."""
    others = (replace(run, model="shufflenet") for run in (DEFAULT, FIVE_SEEDS[1], *SUBSTITUTES))
    yield from _five((*SUBSTITUTES, *others))


def evaluation() -> Iterator[Run]:
    """History, hybrid and real time beside each other: ImPACT's figures 15 and 16; five seeds."""
    yield from _five(EVALUATION)


def shade() -> Iterator[Run]:
    """Hit ratios beside SHADE's: its figure 12; five seeds."""
    yield from _five(SHADE)


def _five(runs: Iterable[Run]) -> Iterator[Run]:
    """Five seeds of each, seed by seed."""
    every = list(runs)
    for seed in range(5):
        yield from (replace(run, seed=seed) for run in every)


_ACCURACY = (accuracy, controls, windows, screen, confirm, treated, schedules)
_PAPERS = (models, shufflenet, substitution, evaluation, shade)
SETS = {each.__name__: each for each in (*_ACCURACY, *_PAPERS)}


@dataclass
class _Going:
    run: Run
    process: subprocess.Popen[bytes]
    began: float


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description="Train many runs side by side; skip those already in --out.")
    parser.add_argument("sets", nargs="*", default=["accuracy"], help=f"of {', '.join(SETS)}, in this order")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "hotset-train")
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"))
    parser.add_argument(
        "--logs", type=Path, help="where each run's progress is written; standard error without it"
    )
    parser.add_argument("--at-once", type=int, default=6, help="runs side by side")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for everything")
    parser.add_argument("--seeds", type=int, default=5, help="seeds from 0 on, at most")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--images", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--model", choices=MODELS, help="instead of the sets' own")
    parser.add_argument("--dataset", help="the images' name in the results; else the archive's up to `-`")
    parser.add_argument("--held-out", type=int, help="training images to test on instead of the test images")
    parser.add_argument(
        "--only", action="append", help="runs that --list shows with this in their name; again for more"
    )
    parser.add_argument("--list", action="store_true", help="say what would be run, and end")
    options = parser.parse_args()
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        parser.error(f"there is no set {', '.join(unknown)}; known: {', '.join(SETS)}")
    changed = {
        name: getattr(options, name)
        for name in ("epochs", "images", "batch", "model", "held_out")
        if getattr(options, name)
    }
    place = options.archive or options.data
    changed["dataset"] = options.dataset or (place.name.partition("-")[0] if place else Run().dataset)
    wanted = [replace(run, **changed) for name in options.sets for run in SETS[name]()]
    there = done(options.out)
    runs = [run for run in dict.fromkeys(run.key for run in wanted) if run not in there]
    by_key = {run.key: run for run in wanted}
    chosen = [
        run
        for run in map(by_key.__getitem__, runs)
        if run.seed < options.seeds and any(only in titled(run) for only in options.only or [""])
    ]
    if options.list:
        for run in chosen:
            sys.stdout.write(f"{run.dataset} {run.model} {titled(run)} seed {run.seed}\n")
        return
    began = time.monotonic()
    place = data_place(options.data, options.archive, options.work)
    for split in ("train", "test"):
        decoded(place / split)
    failed = _all(chosen, place, options, began)
    sys.stderr.write(
        f"{len(chosen) - len(failed)} of {len(chosen)} runs done, {time.monotonic() - began:.0f} s\n"
    )
    for run in failed:
        sys.stderr.write(f"not done: {run.model} {titled(run)} seed {run.seed}\n")
    sys.exit(1 if failed else 0)


def done(out: Path) -> set[str]:
    """The keys of the runs whose lines are in `out`."""
    if not out.exists():
        return set()
    return {Run.of(json.loads(line)).key for line in out.read_text().splitlines()}


def _all(runs: list[Run], place: Path, options: argparse.Namespace, began: float) -> list[Run]:
    """Runs all, as many at once as was asked for; those that did not end well."""
    waiting, going, failed = list(runs), list[_Going](), list[Run]()
    longest: dict[str, float] = {}
    while waiting or going:
        left = options.seconds - (time.monotonic() - began)
        while waiting and len(going) < options.at_once and left > longest.get(waiting[0].model, 0.0):
            going.append(_start(waiting.pop(0), place, options))
        if waiting and not going:
            return failed + waiting
        time.sleep(0.2)
        for each in [each for each in going if each.process.poll() is not None]:
            going.remove(each)
            took = time.monotonic() - each.began
            if each.process.returncode:
                failed.append(each.run)
            else:
                longest[each.run.model] = max(longest.get(each.run.model, 0.0), took)
        if left <= 0:
            for each in going:
                each.process.terminate()
                each.process.wait()
            return failed + [each.run for each in going] + waiting
    return failed


def _start(run: Run, place: Path, options: argparse.Namespace) -> _Going:
    command = [
        sys.executable,
        "-m",
        "benchmarks.train.train",
        "--data",
        str(place),
        "--out",
        str(options.out),
    ]
    log = None
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
        told = (run.dataset, run.model, run.name, run.cache, run.epochs, run.seed)
        log = (options.logs / ("-".join(map(str, told)).replace("/", "_") + ".log")).open("wb")
    # Many runs on few processors: each needs one thread to queue work and one to ask ahead.
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")}
    process = subprocess.Popen([*command, *run.arguments()], stderr=log, env=environment)
    return _Going(run, process, time.monotonic())


if __name__ == "__main__":
    main()
