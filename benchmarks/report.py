"""What was measured: rates, ratios beside their goals, and all figures as JSON.

A ratio is taken within each round, where both arms ran one after the other, and its median decides: a slow
minute of the machine slows both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

WIDTH = 100


@dataclass(frozen=True)
class Spread:
    """The values of all rounds in short."""

    median: float
    lower: float
    upper: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Median, quartiles and range."""
        lower, middle, upper = quantiles(values, n=4, method="inclusive")
        return cls(middle, lower, upper, min(values), max(values))


@dataclass(frozen=True)
class Line:
    """One arm's figure, round by round."""

    name: str
    values: list[float]
    unit: str = "samples/s"

    def times(self, other: Line) -> list[float]:
        """This figure as a multiple of another's, round by round."""
        return [mine / others for mine, others in zip(self.values, other.values, strict=True)]


@dataclass(frozen=True)
class Ratio:
    """Two arms compared; without a goal it is there for the reader."""

    name: str
    values: list[float]
    goal: float | None = None
    at_most: bool = False

    @property
    def verdict(self) -> str:
        """Whether the median meets the goal."""
        if self.goal is None:
            return ""
        found = median(self.values)
        return "met" if (found <= self.goal if self.at_most else found >= self.goal) else "missed"


@dataclass
class Section:
    """One row of the goals: its arms, its ratios, and what could not be measured."""

    title: str
    lines: list[Line] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Both tables."""
        figures = [["", "median", "quartiles", "range", ""]]
        for line in self.lines:
            spread = Spread.of(line.values)
            form = _samples if line.unit == "samples/s" else "{:,.0f}".format
            figures.append([line.name, form(spread.median), *_ranges(spread, form), line.unit])
        ratios = [["", "median", "quartiles", "range", "goal", ""]]
        for ratio in self.ratios:
            spread = Spread.of(ratio.values)
            sign = "<= " if ratio.at_most else ">= "
            goal = "" if ratio.goal is None else f"{sign}{ratio.goal:g}x"
            cells = [f"{spread.median:.2f}x", *_ranges(spread, "{:.2f}".format), goal, ratio.verdict]
            ratios.append([ratio.name, *cells])
        skipped = [f"  skipped: {reason}" for reason in self.skipped]
        return "\n".join([self.title, "", *aligned(figures), "", *aligned(ratios), *skipped])


def spread(values: Sequence[float], form: str) -> str:
    """The median, and the least and the most, on one line."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _samples(rate: float) -> str:
    return f"{rate / 1e6:.3f}M" if rate >= 1e6 else f"{rate / 1e3:.1f}k"


def _ranges(spread: Spread, form: Any) -> list[str]:
    return [
        f"{form(spread.lower)}..{form(spread.upper)}",
        f"{form(spread.least)}..{form(spread.most)}",
    ]


def aligned(rows: list[list[str]]) -> list[str]:
    """The lines of a table: names on the left, all else on the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *cells in rows:
        *right, last = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join(["  " + name.ljust(widths[0]), *right, last.strip()]).rstrip())
    assert all(len(line) <= WIDTH for line in lines), "a table wider than a terminal"
    return lines


def summary(sections: list[Section]) -> str:
    """How many goals were met, and which were not."""
    ratios = [ratio for section in sections for ratio in section.ratios if ratio.goal is not None]
    missed = [ratio.name for ratio in ratios if ratio.verdict == "missed"]
    skipped = sum(len(section.skipped) for section in sections)
    said = f"{len(ratios) - len(missed)} of {len(ratios)} goals met"
    said += f"; missed: {', '.join(missed)}" if missed else ""
    return said + (f"; {skipped} comparisons skipped" if skipped else "")


def save(sections: list[Section], setting: dict[str, Any], path: Path) -> None:
    """All figures, round by round."""
    told = [
        {
            "title": section.title,
            "lines": [asdict(line) | {"spread": asdict(Spread.of(line.values))} for line in section.lines],
            "ratios": [
                asdict(ratio) | {"spread": asdict(Spread.of(ratio.values)), "verdict": ratio.verdict}
                for ratio in section.ratios
            ],
            "skipped": section.skipped,
        }
        for section in sections
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"setting": setting, "sections": told}, indent=2) + "\n")
