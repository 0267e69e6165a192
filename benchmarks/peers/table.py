"""The tables: one for each dataset and cache, as Markdown, with medians over repetitions and later epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.peers.run import Epoch, Outcome

LATE = 0.05
"""The share of late answers from which on it is said."""
COLUMNS = {
    "": "---",
    "layout": "---",
    "first, s": "---:",
    "later, s (least to most)": "---",
    "different samples": "---:",
    "requests": "---:",
    "MB": "---:",
    "CPU, s": "---:",
    "memory, MB": "---:",
    "mix: runs, labels": "---",
}
"""Figures behind `first` are of a later epoch; memory is the most that there was."""


def table(outcomes: Sequence[Outcome], count: int) -> str:
    """A row for each arm, in the order of `outcomes`; `count` samples are in the dataset."""
    rows, notes = [_line(list(COLUMNS)), _line(list(COLUMNS.values()))], list[str]()
    for name in dict.fromkeys((one.arm, one.layout) for one in outcomes):
        found = [one for one in outcomes if (one.arm, one.layout) == name]
        rows.append(_line(_row(found)))
        notes.extend(_notes(found, count))
    return "\n".join([*rows, "", *notes])


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _row(found: list[Outcome]) -> list[str]:
    arm = found[0]
    name = arm.arm if arm.arm.startswith("Hotset") else f"{arm.arm} {arm.version}"
    whole = [one for one in found if not one.failed]
    if not whole:
        reason = found[-1].failed.replace("|", "/")
        return [name, arm.layout, "failed", reason, *[""] * (len(COLUMNS) - 4)]
    later = [median(epoch.seconds for epoch in one.epochs[one.steady :]) for one in whole]
    steady = [epoch for one in whole for epoch in one.epochs[one.steady :]]
    mixes = [median(epoch.figures.get(name, 0.0) for epoch in steady) for name in ("mix_runs", "mix_labels")]
    return [
        name,
        arm.layout,
        f"{median(one.epochs[0].seconds for one in whole):.2f}",
        f"{median(later):.2f} ({min(later):.2f} to {max(later):.2f})",
        f"{_of(steady, lambda epoch: epoch.figures['different']):,.0f}",
        f"{_of(steady, lambda epoch: epoch.counts['requests']):,.0f}",
        f"{_of(steady, lambda epoch: (epoch.counts['down'] + epoch.counts['up']) / 1e6):.1f}",
        f"{_of(steady, lambda epoch: epoch.cpu):.1f}",
        f"{median(one.epochs[-1].memory for one in whole) / 1e6:,.0f}",
        ", ".join(f"{mix:.2f}" for mix in mixes),
    ]


def _of(epochs: Sequence[Epoch], figure: Callable[[Epoch], float]) -> float:
    return median(figure(epoch) for epoch in epochs)


def _notes(found: list[Outcome], count: int) -> list[str]:
    """Settings, and what was not as in an epoch that has every sample once."""
    arm = next((one for one in found if one.settings), found[-1])
    settings = ", ".join(f"{name}={json.dumps(value)}" for name, value in arm.settings.items())
    notes = [f"- {arm.arm}, {arm.layout}: {settings or 'it failed before it was set'}"]
    other = [
        epoch.figures
        for one in found
        for epoch in one.epochs
        if epoch.figures["wrong"] or {epoch.figures["served"], epoch.figures["different"]} != {count}
    ]
    if other:
        served, different = ([figures[name] for figures in other] for name in ("served", "different"))
        notes.append(
            f"  - {len(other)} of its {sum(len(one.epochs) for one in found)} epochs had {min(served):,} to "
            f"{max(served):,} samples, {min(different):,} to {max(different):,} different ones of {count:,}; "
            f"wrong bytes: {sum(figures['wrong'] for figures in other):,}"
        )
    steady = [epoch.counts for one in found for epoch in one.epochs[one.steady :]]
    asked, late = (sum(counts[name] for counts in steady) for name in ("requests", "late"))
    if late > LATE * asked:
        notes.append(
            f"  - for {late / asked:.0%} of its requests the store itself took longer than the latency"
        )
    notes.extend(
        f"  - **repetition {one.repetition} failed** after {len(one.epochs)} epochs: {one.failed}"
        for one in found
        if one.failed
    )
    return notes
