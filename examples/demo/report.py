"""What the demo found: a table, one sentence, a plot and the numbers as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .arms import EpochCounts
from .model import EpochTimes

# Okabe and Ito's colours, told apart with every kind of colour vision.
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"

# The first epoch fills the cache and tells strategies what samples cost; in the second packages are written.
WARM = 2


@dataclass(frozen=True)
class Row:
    """One arm's epochs; `failure` says why there are none."""

    name: str
    times: list[EpochTimes]
    counts: list[EpochCounts]
    accuracy: float
    failure: str | None = None

    def settled(self, field: str) -> float:
        """The median of a field over the epochs after those of `WARM`."""
        each = [asdict(times) | asdict(counts) for times, counts in zip(self.times, self.counts, strict=True)]
        return median(float(epoch[field]) for epoch in (each[WARM:] or each))

    def share(self, field: str) -> float:
        """Such servings among all of one epoch."""
        return self.settled(field) / max(self.settled("served"), 1)

    @property
    def seconds(self) -> float:
        """Of one epoch."""
        return self.settled("seconds")

    @property
    def waited(self) -> float:
        """Seconds of one epoch that the training loop waited for data."""
        return self.settled("waited")

    @property
    def reads(self) -> float:
        """Samples that one epoch fetched from storage."""
        return self.settled("storage_reads")

    @property
    def requests(self) -> float:
        """Requests that one epoch made to storage."""
        return self.settled("storage_requests")


def settled_epochs(epochs: int) -> str:
    """Which epochs the figures are of."""
    return f"medians of epochs {WARM + 1} to {epochs}" if epochs > WARM else "medians of all epochs"


def table(rows: list[Row]) -> str:
    """All rows, at most 100 columns wide; times are compared with the first row."""
    titles = ["", "s/epoch", "faster", "waiting"]
    titles += ["hits", "packed", "single", "reads", "requests", "cover", "accuracy"]
    lines = [titles]
    for row in rows:
        if row.failure is not None:
            lines.append([row.name, "failed", *[""] * (len(titles) - 2)])
            continue
        faster = "" if rows[0].failure is not None else f"{rows[0].seconds / row.seconds:.1f}x"
        lines.append(
            [
                row.name,
                f"{row.seconds:.2f}",
                faster,
                f"{row.waited:.2f} s",
                f"{row.share('hit'):.0%}",
                f"{row.share('packed'):.0%}",
                f"{row.share('single'):.0%}",
                f"{row.reads:,.0f}",
                f"{row.requests:,.0f}",
                f"{row.settled('coverage'):.0%}",
                f"{row.accuracy:.1%}",
            ]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    aligned = []
    for name, *cells in lines:
        right = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        aligned.append("  ".join([name.ljust(widths[0]), *right]))
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def sentence(rows: list[Row], workers: int) -> str:
    """What the fastest arms saved against the first, and why; empty if there is nothing to compare.

    An epoch that leaves samples out is no fair match for one that does not: the fastest of each is named.
    """
    good = [row for row in rows if row.failure is None]
    if len(good) < 2 or good[0] is not rows[0]:
        return ""
    plain = good[0]
    best = min(good[1:], key=lambda row: row.seconds)
    if best.seconds >= plain.seconds:
        return (
            f"Nothing was saved: {best.name} took {best.seconds:.1f} s, {plain.name} {plain.seconds:.1f} s."
        )
    whole = min(
        (row for row in good[1:] if row.settled("coverage") == 1), key=lambda row: row.seconds, default=best
    )
    why = (
        f"{_saved(whole, plain)}: it reads ahead along the plan with many reads in flight, where each of "
        f"{plain.name}'s {workers} workers waits for one at a time, and {whole.share('hit'):.0%} of the "
        f"samples came from memory."
    )
    if whole is best:
        return why
    return (
        f"{why} {_saved(best, plain)}, with {best.requests:,.0f} requests instead of {plain.requests:,.0f}; "
        f"its epochs train {best.settled('coverage'):.0%} of the samples."
    )


def _saved(row: Row, plain: Row) -> str:
    took = f"{row.seconds:.1f} s instead of {plain.seconds:.1f} s"
    return f"{row.name} trained an epoch in {took} ({plain.seconds / row.seconds:.1f} times as fast)"


def plot(rows: list[Row], subtitle: str, path: Path) -> None:
    """Seconds and storage requests per epoch as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    good = [row for row in rows if row.failure is None][::-1]
    names = [row.name for row in good]
    size = (11, 1.9 + 0.55 * len(good))
    figure, (left, right) = pyplot.subplots(1, 2, sharey=True, figsize=size, layout="constrained")
    worked = [row.seconds - row.waited for row in good]
    waited = [row.waited for row in good]
    left.barh(names, worked, color=BLUE, label="training")
    left.barh(names, waited, left=worked, color=ORANGE, hatch="//", edgecolor="white", label="waiting")
    _label(left, [row.seconds for row in good], "{:.1f} s")
    left.set_title("seconds per epoch", fontsize=11)
    left.legend(loc="lower right", frameon=False)
    right.barh(names, [row.requests for row in good], color=GREEN)
    _label(right, [row.requests for row in good], "{:,.0f}")
    right.set_title("storage requests per epoch", fontsize=11)
    right.xaxis.set_major_formatter("{x:,.0f}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.suptitle(f"The same training from the same slow storage\n{subtitle}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _label(axes: Any, values: list[float], form: str) -> None:
    """Writes each value at the end of its bar."""
    for position, value in enumerate(values):
        axes.text(value, position, " " + form.format(value), va="center")
    axes.set_xlim(0, max(values) * 1.18)


def save(rows: list[Row], setting: dict[str, Any], path: Path) -> None:
    """All numbers, epoch by epoch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"setting": setting, "arms": [asdict(row) for row in rows]}, indent=2) + "\n")
