"""Two models of different cost on one cache, live beside the simulator: iCache, figure 14.

A job of ShuffleNet and one of ResNet-18 train the same samples at once, through one server and one cache of a
fifth. Losses are those of recorded trainings, computing is a sleep, and storage answers every request after
5 ms, 16 at a time. What is told of an arm is how long it takes until both have ended, and what is read.

Four arms, by whose values say what stays: both jobs', one job's, the other's, nobody's (`lru`). Whose values
count follows from what a server measures, and there is no setting to leave a job out. So in the arms of one
job's values the other has none to tell: it trains `uniform`, in epochs of as many samples as `iis` selects,
through the same cache. That is not the paper's arm, in which both go by their losses; the simulator can have
that one (`benefit = 0.0`), and its figures for both stand beside.

    python -m benchmarks.live.two_models --traces shufflenet-cifar10.npz resnet18-cifar10.npz
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import hotset
import numpy
import torch

from benchmarks.report import aligned, spread
from benchmarks.sources import Samples, UntrueError, isolate, served

REQUESTS, LATENCY = 16, "5ms"
CACHE, FRACTION = "20%", 0.7
BATCH = 32
PACES = (0.0015, 0.00375)
"""Seconds of a batch: 12 and 30 ms for 256 samples, as in the simulator's figure."""
MODELS = ("shufflenet", "resnet18")
FIRST = 10
"""The first epoch of a trace that is used: losses of a model that has learned something."""
SIZE = 1_500


@dataclass
class Arm:
    """Whose values count, and what came of it."""

    name: str
    pairs: tuple[str, str]
    """Strategy and policy of each job."""
    ignored: int | None = None
    """The job whose values the paper's arm leaves out, as the simulator can."""
    seconds: list[float] = field(default_factory=list)
    """Until both have ended, by repetition."""
    reads: list[int] = field(default_factory=list)
    """Servings with a read of their own, as the plans have it and the simulator counts."""
    joined: list[int] = field(default_factory=list)
    """Of these, reads that the other job had under way, and storage saw once."""
    hits: list[list[float]] = field(default_factory=list)
    """The share of each job's servings, by repetition."""
    gains: list[list[float | None]] = field(default_factory=list)
    """What each job was measured to gain, where it was."""
    served: list[int] = field(default_factory=list)
    simulated: dict[str, float] = field(default_factory=dict)
    """The same by the simulator: `end`, `reads`, and `end_paper`, `reads_paper` where that is another arm."""


def main() -> None:
    """Measures, and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, nargs=2, required=True, help="of ShuffleNet and of ResNet-18")
    parser.add_argument("--samples", type=int, default=6_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()
    plain = f"uniform[epoch_length={int(options.samples * FRACTION)}]+icache"
    arms = [
        Arm("both models'", ("iis+icache", "iis+icache")),
        Arm("ShuffleNet's", ("iis+icache", plain), ignored=1),
        Arm("ResNet-18's", (plain, "iis+icache"), ignored=0),
        Arm("nobody's, lru", ("uniform+lru", "uniform+lru")),
    ]
    with tempfile.TemporaryDirectory(prefix="hs-live-") as top:
        folder = Path(top)
        isolate(folder)
        # That there is less than both ask for is the figure's set-up.
        warnings.simplefilter("ignore", hotset.HotsetWarning)
        losses = [_losses(path, options.epochs, options.samples) for path in options.traces]
        samples = Samples.made(folder / "files", options.samples, SIZE)
        for arm in arms:
            _simulate(arm, losses, folder)
        for repetition in range(options.repeat):
            for number, arm in enumerate(arms):
                _train(arm, losses, samples, folder / f"{repetition}-{number}", repetition)
                sys.stderr.write(f"repetition {repetition}: {arm.name}: {arm.seconds[-1]:.2f} s\n")
    _table(arms, options)
    if options.json:
        options.json.write_text(json.dumps([asdict(arm) for arm in arms], indent=1))


def _losses(path: Path, epochs: int, samples: int) -> torch.Tensor:
    """The losses of some epochs of a trace; NaN where a sample was not trained."""
    with numpy.load(path) as archive:
        table = archive["loss"][FIRST : FIRST + epochs, :samples]
    if table.shape != (epochs, samples):
        raise SystemExit(f"`{path}` has fewer than {FIRST + epochs} epochs or {samples} samples")
    return torch.from_numpy(table.astype("float32"))


def _train(arm: Arm, losses: Sequence[torch.Tensor], samples: Samples, folder: Path, seed: int) -> None:
    """Both jobs at once, on a server of their own."""
    (folder / "run").mkdir(parents=True, mode=0o700)
    # Both ask for a fifth, and there is a fifth for both; an eighth of memory is for samples on their way.
    memory = ("--memory", f"{-(-_capacity(samples) // 7) * 8}B")
    with served(folder, REQUESTS, "server.sock", *memory) as socket, ThreadPoolExecutor(2) as threads:
        os.environ["HOTSET_SERVER"] = str(socket)
        together = threading.Barrier(3)
        jobs = [
            threads.submit(_job, arm, number, losses[number], samples, seed, together) for number in range(2)
        ]
        together.wait()
        began = time.perf_counter()
        found = [job.result() for job in jobs]
        arm.seconds.append(max(end for end, *_ in found) - began)
        arm.reads.append(sum(reads for _, reads, *_ in found))
        arm.served.append(sum(count for _, _, count, *_ in found))
        arm.hits.append([hit for _, _, _, hit, *_ in found])
        arm.joined.append(sum(joined for *_, joined, _ in found))
        arm.gains.append([gain for *_, gain in found])


def _job(
    arm: Arm, number: int, losses: torch.Tensor, samples: Samples, seed: int, together: threading.Barrier
) -> tuple[float, int, int, float, int, float | None]:
    """One job; when it ended, its reads, servings, share of hits, joined reads, and what it gains."""
    slow = {"throttle.latency": LATENCY, "throttle.requests": str(REQUESTS)}
    strategy, _, policy = arm.pairs[number].partition("+")
    name, _, settings = strategy.rstrip("]").partition("[")
    train = hotset.Dataset(
        str(samples.folder),
        cache=CACHE,
        with_ids=True,
        decode=len,
        storage_options=slow,
        job=f"{MODELS[number]}-{seed}",
    )
    length = int(settings.partition("=")[2]) if settings else None
    sampler = hotset.Sampler(train, name, policy=policy, seed=2 * seed + number, epoch_length=length)
    together.wait()
    for epoch in range(len(losses)):
        sampler.set_epoch(epoch)
        batch: list[int] = []
        for index in sampler:
            batch.append(index)
            if len(batch) == BATCH:
                _step(train, sampler, batch, losses[epoch], PACES[number])
                batch.clear()
        if batch:
            _step(train, sampler, batch, losses[epoch], PACES[number])
    end = time.perf_counter()
    said = train.stats()
    counted = [each for each in said["epochs"] if each["epoch"] < len(losses)]
    names = ("planned", "served", "hit", "single", "joined")
    total = {key: sum(each[key] for each in counted) for key in names}
    if said["capacity"] // SIZE != _capacity(samples) // SIZE:
        raise UntrueError(f"{arm.name}: a cache of {said['capacity']:,} bytes")
    if total["served"] != total["planned"] or total["served"] != total["hit"] + total["single"]:
        raise UntrueError(f"{arm.name}, {MODELS[number]}: {total}")
    train.close()
    share = total["hit"] / total["served"]
    return end, total["single"], total["served"], share, total["joined"], said["benefit"]


def _capacity(samples: Samples) -> int:
    """The bytes of the cache that both jobs share."""
    return int(CACHE.rstrip("%")) * samples.count * SIZE // 100


def _step(
    train: hotset.Dataset, sampler: hotset.Sampler, batch: list[int], losses: torch.Tensor, pace: float
) -> None:
    """Has a batch, computes for as long as the model takes, and tells the losses."""
    ids = torch.tensor([number for _, number in train.__getitems__(batch)])
    time.sleep(pace * len(batch) / BATCH)
    sampler.update(ids, losses[ids])


def _simulate(arm: Arm, losses: Sequence[torch.Tensor], folder: Path) -> None:
    """What the simulator says of the same arm, and of the paper's."""
    for name, table in zip(MODELS, losses, strict=True):
        numpy.savez(folder / f"{name}.npz", loss=table.numpy().astype("float16"))
    arm.simulated["end"], arm.simulated["reads"] = _simulated(arm.pairs, None, folder)
    if arm.ignored is not None:
        ends, reads = _simulated(("iis+icache", "iis+icache"), arm.ignored, folder)
        arm.simulated |= {"end_paper": ends, "reads_paper": reads}


def _simulated(pairs: tuple[str, str], ignored: int | None, folder: Path) -> tuple[float, int]:
    """When the last of both ends, and what they read."""
    described = []
    for number, (name, pair, pace) in enumerate(zip(MODELS, pairs, PACES, strict=True)):
        described += ["[[job]]", f'name = "{name}"', f'trace = "{folder / name}.npz"', f'run = "{pair}"']
        described += [f"seed = {number}", f'batch_time = "{pace * 1000}ms"']
        described += ["benefit = 0.0"] if number == ignored else []
    (folder / "jobs.toml").write_text("\n".join(described))
    command = [sys.executable, "-m", "hotset", "simulate", "--jobs", str(folder / "jobs.toml")]
    command += ["--trace", str(folder / f"{MODELS[0]}.npz"), "--run", pairs[0], "--cache", CACHE]
    command += ["--batch", str(BATCH), "--latency", LATENCY, "--concurrency", str(REQUESTS)]
    command += ["--sample-size", f"{SIZE}B", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    (jobs,) = json.loads(done.stdout)
    return max(job["end"] for job in jobs), sum(job["reads"] for job in jobs)


def _table(arms: list[Arm], options: argparse.Namespace) -> None:
    shape = f"{options.samples:,} samples, {options.epochs} epochs, {options.repeat} repetitions"
    print(f"{shape}; storage {LATENCY} a request, {REQUESTS} at a time; cache {CACHE}\n")
    head = ["simulated", "simulated, paper's arm", ""]
    ends, reads = [["values that count", "last end", *head]], [["", "reads", *head]]
    for arm in arms:
        said = {"end_paper": arm.simulated["end"], "reads_paper": arm.simulated["reads"], **arm.simulated}
        modelled = [f"{said[name]:.1f} s" for name in ("end", "end_paper")]
        ends.append([arm.name, f"{spread(arm.seconds, '.1f')} s", *modelled, ""])
        counted = [f"{said[name]:,}" for name in ("reads", "reads_paper")]
        reads.append([arm.name, spread(arm.reads, ",.0f"), *counted, ""])
    print("\n".join([*aligned(ends), "", *aligned(reads), ""]))
    rows = [["", "served", "joined reads", *(f"hits, {model}" for model in MODELS), "gains", ""]]
    for arm in arms:
        hits = [spread([hit[number] * 100 for hit in arm.hits], ".1f") for number in range(2)]
        gains = " and ".join("-" if gain is None else f"{gain:.1f}" for gain in arm.gains[-1])
        rows.append(
            [
                arm.name,
                f"{arm.served[-1]:,}",
                f"{median(arm.joined):,.0f}",
                *(f"{hit} %" for hit in hits),
                gains,
                "",
            ]
        )
    print("\n".join(aligned(rows)))


if __name__ == "__main__":
    main()
