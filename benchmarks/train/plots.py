"""One figure a dataset and model: top-1 against what storage gave, in reads, requests and bytes.

Strategies are coloured, controls are grey; bars are 95 % intervals over seeds. Bars that would hide each
other are drawn side by side, a little beside their place. What lies more than three points below the best is
off the axes, and the legend gives its value.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from .results import Group, Mean, for_accuracy
from .run import Run

# Okabe and Ito's colours, told apart with every kind of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_MARKS = "osD^vP*X"

_GREY = "#777777"

_SHOWN = 3.0
"""Points below the best that axes reach down to: what lies further below would press the rest together."""

_NEAR, _BESIDE = 0.02, 4.0
"""Bars nearer than this share of an axis that overlap are drawn side by side, so many points apart."""

_STORAGE = (
    ("storage_reads", 1e3, "reads, thousands"),
    ("storage_requests", 1e3, "requests, thousands"),
    ("storage_bytes", 1e6, "MB"),
)


def draw(groups: list[Group], out: Path, kind: str = "svg") -> list[Path]:
    """Draws what can be drawn; the files. Nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        sys.stderr.write("no plots: matplotlib is not here (pip install matplotlib)\n")
        return []
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hotset"
    from matplotlib import pyplot

    chosen = for_accuracy(groups)
    made = []
    for dataset, model in dict.fromkeys((group.run.dataset, group.run.model) for group in chosen):
        own = [group for group in chosen if (group.run.dataset, group.run.model) == (dataset, model)]
        looks = _looks(own)
        for name, columns, one in (("storage", len(_STORAGE), _draw_storage), ("epochs", 1, _draw_epochs)):
            # As high as the legend, or its last lines would be cut off.
            size = (4 * columns + 3.5, max(4.5, 0.18 * len(own) + 0.5))
            figure, axes = pyplot.subplots(
                1, columns, figsize=size, layout="constrained", sharey=True, squeeze=False
            )
            one(axes[0], own, looks)
            axes[0][0].set_title(f"{model}, {dataset}", loc="left", fontsize=10)
            # Beside the axes, where it can lie on no point.
            axes[0][-1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
            for each in axes[0]:
                each.spines[["top", "right"]].set_visible(False)
            made.append(out / f"{name}-{dataset}-{model}.{kind}")
            figure.savefig(made[-1], dpi=130, metadata={"Date": None} if kind == "svg" else None)
            pyplot.close(figure)
    return made


def titled(run: Run) -> str:
    """A run's name, with what differs from most: its epochs and its cache."""
    said = [run.name]
    said += [f"cache {run.cache}"] if run.cache != "20%" and not run.is_control else []
    said += [f"{run.epochs} epochs"] if run.epochs != 30 else []
    return ", ".join(said)


def _looks(groups: list[Group]) -> list[tuple[str, str]]:
    """A mark and a colour for each; controls are grey."""
    looks, strategies, controls = [], 0, 0
    for group in groups:
        if group.run.is_control or (group.run.strategy == "uniform" and group.run.epochs < 30):
            looks.append((_MARKS[controls % len(_MARKS)], _GREY))
            controls += 1
        else:
            # Seven colours and eight marks: no two of 56 runs share both.
            looks.append((_MARKS[strategies % len(_MARKS)], _COLOURS[strategies % len(_COLOURS)]))
            strategies += 1
    return looks


def _draw_storage(axes: Any, groups: list[Group], looks: list[tuple[str, str]]) -> None:
    from matplotlib.transforms import offset_copy

    lowest = max(group.top1.value for group in groups) - _SHOWN
    shown = [group.top1 for group in groups if group.top1.value >= lowest]
    bottom = min(top1.value - (top1.half or 0.0) for top1 in shown) - 0.2
    top = max(top1.value + (top1.half or 0.0) for top1 in shown) + 0.2
    for each, (name, unit, title) in zip(axes, _STORAGE, strict=True):
        places = [group.total(name).value / unit for group in groups]
        beside = _beside(
            places, [_bar(group.top1) if group.top1.value >= lowest else None for group in groups]
        )
        for group, (mark, colour), place, shift in zip(groups, looks, places, beside, strict=True):
            top1 = group.top1
            below = f", below: {top1.value:.2f}" if top1.value < lowest else ""
            each.errorbar(
                place,
                top1.value,
                yerr=top1.half,
                fmt=mark,
                color=colour,
                capsize=2,
                transform=offset_copy(each.transData, each.figure, x=shift, units="points"),
                label=f"{titled(group.run)} ({top1.seeds}){below}",
            )
        each.set_ylim(bottom, top)
        # Shifted marks do not widen an axis by themselves.
        each.set_xlim(0.0, 1.07 * max(places))
        each.set_xlabel(f"{title}, whole run")
    axes[0].set_ylabel("top-1 %, mean and 95 % interval (seeds)")
    axes[1].set_title("bars that would hide each other stand side by side", fontsize=8, color=_GREY)


def _bar(top1: Mean) -> tuple[float, float]:
    """From where to where a mark and its interval reach."""
    half = max(top1.half or 0.0, _SHOWN / 100)
    return top1.value - half, top1.value + half


def _beside(places: list[float], bars: list[tuple[float, float] | None]) -> list[float]:
    """By how many points each bar is drawn beside its place, so that none hides another."""
    near, shifts = _NEAR * max(places), [0.0] * len(places)
    put: list[int] = []
    for number, bar in enumerate(bars):
        if bar is None:
            continue
        hidden = {
            shifts[other]
            for other in put
            if abs(places[other] - places[number]) <= near and _overlap(bar, bars[other])
        }
        # 0, right, left, further right: the nearest that is free.
        steps = ((step + 1) // 2 * (1 if step % 2 else -1) for step in range(len(places)))
        shifts[number] = next(_BESIDE * step for step in steps if _BESIDE * step not in hidden)
        put.append(number)
    return shifts


def _overlap(one: tuple[float, float], other: tuple[float, float] | None) -> bool:
    return other is not None and one[0] <= other[1] and other[0] <= one[1]


def _draw_epochs(axes: Any, groups: list[Group], looks: list[tuple[str, str]]) -> None:
    for group, (_, colour) in zip(groups, looks, strict=True):
        length = min(len(line["epochs"]) for line in group.lines)
        axes[0].plot(
            # By the share of the run, since controls have other numbers of epochs.
            [100.0 * (epoch + 1) / length for epoch in range(length)],
            [fmean(line["epochs"][epoch]["top1"] for line in group.lines) for epoch in range(length)],
            color=colour,
            label=titled(group.run),
        )
    axes[0].set_xlabel("% of the run")
    axes[0].set_ylabel("top-1 %, mean")
