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
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)


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
        freedom = len(every) - 1
        student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96
        return cls(fmean(every), student * stdev(every) / math.sqrt(len(every)), len(every))

    def text(self, digits: int = 2) -> str:
        """With its interval, if it has one."""
        shown = f"{self.value:,.{digits}f}"
        return shown if self.half is None else f"{shown} ± {self.half:,.{digits}f}"


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
    """The groups of all lines of `paths`, in the order in which they first come."""
    groups: dict[str, list[dict[str, Any]]] = {}
    runs: dict[str, Run] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            found = json.loads(line)
            # Looking at what scores know changes nothing in the training.
            run = replace(Run.of(found), seed=0, identify=False)
            runs[run.key] = run
            groups.setdefault(run.key, []).append(found)
    made = []
    for key, lines in groups.items():
        # Of a run that was made twice the one that was looked at counts, else the last.
        each = {line["run"]["seed"]: line for line in sorted(lines, key=lambda line: line["run"]["identify"])}
        made.append(Group(runs[key], tuple(each.values())))
    return made


def _counts(line: dict[str, Any], name: str, settled: bool = False) -> list[float]:
    epochs = line["epochs"]
    chosen = epochs[len(epochs) // 2 :] if settled else epochs
    return [float(epoch["counts"].get(name, 0)) for epoch in chosen]
