"""The tables: one for each dataset and cache, as Markdown, with medians over repetitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.peers.run import Epoch, Outcome

HEAD = [
    "| | layout | first, s | later, s (least to most) | served | requests | MB | CPU, s | memory, MB | mix: runs, labels |",
    "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |",
]


def table(outcomes: Sequence[Outcome], count: int) -> str:
    """A row for each arm, in the order of `outcomes`; `count` samples are in the dataset."""
    rows, notes = list(HEAD), []
    for name in dict.fromkeys((one.arm, one.layout) for one in outcomes):
        found = [one for one in outcomes if (one.arm, one.layout) == name]
        rows.append(_row(found))
        notes.extend(_notes(found, count))
    return "\n".join([*rows, "", *notes])


def _row(found: list[Outcome]) -> str:
    arm = found[0]
    whole = [one for one in found if not one.failed]
    name = f"| {arm.arm} {arm.version if not arm.arm.startswith('Hotset') else ''}".rstrip()
    if not whole:
        return f"{name} | {arm.layout} | failed | {found[-1].failed.replace('|', '/')} | | | | | | |"
    first = median(one.epochs[0].seconds for one in whole)
    later = [median(epoch.seconds for epoch in one.epochs[one.steady :]) for one in whole]
    steady = [epoch for one in whole for epoch in one.epochs[one.steady :]]
    mixes = [_of(steady, lambda epoch, mix=mix: epoch.figures.get(mix, 0.0)) for mix in ("mix_runs", "mix_labels")]
    cells = [
        name,
        arm.layout,
        f"{first:.2f}",
        f"{median(later):.2f} ({min(later):.2f} to {max(later):.2f})",
        f"{_of(steady, lambda epoch: epoch.figures['different']):,.0f}",
        f"{_of(steady, lambda epoch: epoch.counts['requests']):,.0f}",
        f"{_of(steady, lambda epoch: (epoch.counts['down'] + epoch.counts['up']) / 1e6):.1f}",
        f"{_of(steady, lambda epoch: epoch.cpu):.1f}",
        f"{median(one.epochs[-1].memory for one in whole) / 1e6:,.0f}",
        ", ".join(f"{mix:.2f}" for mix in mixes),
    ]
    return " | ".join(cells) + " |"


def _of(epochs: Sequence[Epoch], figure: Callable[[Epoch], float]) -> float:
    return median(figure(epoch) for epoch in epochs)


def _notes(found: list[Outcome], count: int) -> list[str]:
    """Settings, and what was not as it should be."""
    arm = found[-1]
    settings = ", ".join(f"{name}={json.dumps(value)}" for name, value in arm.settings.items())
    notes = [f"- {arm.arm}, {arm.layout}: {settings or 'no settings told'}"]
    for one in found:
        each = f"{one.arm}, {one.layout}, repetition {one.repetition}"
        if one.failed:
            notes.append(f"- **{each} failed** after {len(one.epochs)} epochs: {one.failed}")
        for number, epoch in enumerate(one.epochs):
            figures = epoch.figures
            if figures["wrong"] or (figures["served"], figures["different"]) != (count, count):
                notes.append(
                    f"- {each}, epoch {number}: {figures['served']:,} came, {figures['different']:,} different ones"
                    f" of {count:,}, {figures['wrong']:,} wrong"
                )
    return notes
