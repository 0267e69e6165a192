"""Lines of results, grouped by what was run, with means and their 95 % intervals over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from .run import Run

# Student's t for 95 %, by degrees of freedom from 1 on; further on the normal distribution is near enough.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Mean:
    """A mean over seeds; `half` is half the width of its 95 % interval, unknown of one seed."""

    value: float
    half: float | None
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        """The mean of `values`, which must not be empty."""
        every = list(values)
        if len(every) == 1:
            return cls(every[0], None, 1)
        return cls(fmean(every), _student(len(every) - 1) * stdev(every) / math.sqrt(len(every)), len(every))

    def minus(self, other: Mean) -> Mean:
        """The difference of two means of independent runs, with Welch's interval if both have one."""
        value, seeds = self.value - other.value, min(self.seeds, other.seeds)
        if self.half is None or other.half is None:
            return Mean(value, None, seeds)
        squares = [(each.half / _student(each.seeds - 1)) ** 2 for each in (self, other) if each.half]
        freedoms = [each.seeds - 1 for each in (self, other) if each.half]
        if not squares:
            return Mean(value, 0.0, seeds)
        freedom = sum(squares) ** 2 / sum(
            square**2 / free for square, free in zip(squares, freedoms, strict=True)
        )
        # Rounded down, which makes the interval a little wider.
        return Mean(value, _student(max(int(freedom + 1e-9), 1)) * math.sqrt(sum(squares)), seeds)

    def text(self, digits: int = 2) -> str:
        """With its interval, if it has one."""
        shown = f"{self.value:,.{digits}f}"
        return shown if self.half is None else f"{shown} ± {self.half:,.{digits}f}"


def _student(freedom: int) -> float:
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96


@dataclass(frozen=True)
class Group:
    """The runs that differ in their seed alone."""

    run: Run
    lines: tuple[dict[str, Any], ...]

    def mean(self, value: Callable[[dict[str, Any]], float]) -> Mean:
        """The mean of `value` over the runs."""
        return Mean.of(value(line) for line in self.lines)

    @property
    def top1(self) -> Mean:
        """Accuracy after the last epoch, in percent."""
        return self.mean(lambda line: float(line["top1"]))

    @property
    def top5(self) -> Mean:
        """Share of test images whose class is among the model's first five choices, in percent."""
        return self.mean(lambda line: float(line["top5"]))

    def count(self, name: str, settled: bool = False) -> Mean:
        """A counter, by epoch: over all epochs, or over the second half of them."""
        return self.mean(lambda line: fmean(_counts(line, name, settled)))

    def total(self, name: str) -> Mean:
        """A counter over the whole run."""
        return self.mean(lambda line: sum(_counts(line, name)))

    @property
    def trained(self) -> Mean:
        """Samples that were trained, each as often as it was."""
        return self.mean(lambda line: self.run.batch * sum(epoch["steps"] for epoch in line["epochs"]))

    def share(self, *names: str) -> Mean:
        """Some of the servings of all epochs, in percent."""
        return self.mean(
            lambda line: (
                100.0
                * sum(sum(_counts(line, name)) for name in names)
                / max(sum(_counts(line, "served")), 1.0)
            )
        )


def read(paths: Iterable[Path]) -> list[Group]:
    """The groups of all lines of `paths`, in the order in which they first come.

    Runs that were looked at (`identify`) are groups of their own: on a GPU a seed does not give the same
    training twice, and a mean must not choose between two runs of one seed.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            found = json.loads(line)
            groups.setdefault(replace(Run.of(found), seed=0).key, []).append(found)
    made = []
    for lines in groups.values():
        # Of a run that was made twice the last counts.
        each = {line["run"]["seed"]: line for line in lines}
        made.append(Group(replace(Run.of(lines[0]), seed=0), tuple(each.values())))
    return made


def baseline(groups: list[Group], run: Run) -> Group | None:
    """What `run` is held against: `uniform` over all epochs, as often as it was run.

    Its policy changes reads, not accuracy: `minio`, which Hotset keeps by default, is taken before `lru`.
    """
    alike = ("dataset", "model", "batch", "images", "held_out", "augment", "transform", "floor")
    found = [
        group
        for group in groups
        if group.run.strategy == "uniform"
        and not group.run.is_control
        and all(getattr(group.run, name) == getattr(run, name) for name in alike)
    ]
    return max(
        found,
        key=lambda group: (group.run.epochs, group.run.policy == "minio", group.top1.seeds),
        default=None,
    )


def for_accuracy(groups: list[Group]) -> list[Group]:
    """The groups that were not looked at, and of the others those that were run in no other way."""
    plain = {group.run.key for group in groups if not group.run.identify}
    return [
        group
        for group in groups
        if not group.run.identify or replace(group.run, identify=False).key not in plain
    ]


def _counts(line: dict[str, Any], name: str, settled: bool = False) -> list[float]:
    epochs = line["epochs"]
    chosen = epochs[len(epochs) // 2 :] if settled else epochs
    return [float(epoch["counts"].get(name, 0)) for epoch in chosen]
