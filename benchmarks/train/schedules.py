"""Which complete schedule is the shortest that reaches an accuracy, and the seconds it took: tables of both.

    python -m benchmarks.train.schedules schedules.jsonl h200-cifar100.jsonl --seconds seconds.jsonl

A schedule is a training whose learning rate rises and falls over all of its epochs: a longer one that was
broken off would be another training. `sweep schedules` trains several lengths with three seeds and pixels in
memory, where accuracy and counts are those of a training that decodes; `seconds` trains the lengths that are
wanted once more, for real. Targets are so many points `BELOW` the mean of `uniform+minio` over 30 epochs, of
all its seeds, and a schedule reaches one if the mean of its first three seeds does, both to two digits.
`--list` says what `seconds` is still to train; `--decoded` names runs of `seconds` from storage that was not
slow, for their accuracy alone.

Plain PyTorch shuffles as `uniform` does, and its schedule is `uniform`'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .results import Group, Mean, read
from .run import Run

BELOW = (1.0, 3.0)
SEEDS = 3

PLAIN = "plain PyTorch"
_UNIFORM = Run("uniform", "minio")
SCHEDULED = (_UNIFORM, Run("iis", "icache"), Run("carousel", "carousel", {"fresh": 0.25}))
ARMS: dict[str, Run] = {PLAIN: Run("uniform"), **{run.name: run for run in SCHEDULED}}
"""What is compared, by name."""

Line = dict[str, Any]
Lengths = Mapping[int, Group]


def main() -> None:
    """Writes the tables to standard output."""
    parser = argparse.ArgumentParser(description="Shortest schedules that reach an accuracy, and seconds.")
    parser.add_argument("results", type=Path, nargs="+", help="of `sweep`")
    parser.add_argument("--seconds", type=Path, help="of `seconds`")
    parser.add_argument("--decoded", type=Path, help="of `seconds --latency 1us`")
    parser.add_argument("--list", action="store_true", help="say what `seconds` is still to train, and end")
    options = parser.parse_args()
    groups = read(options.results)
    base = {epochs: group for epochs, group in lengths(groups, _UNIFORM, None).items() if epochs == 30}
    if not base:
        parser.error("there is no run of `uniform+minio` over 30 epochs in the results")
    goals = [round(base[30].top1.value - below, 2) for below in BELOW]
    lines = [json.loads(line) for line in options.seconds.open()] if options.seconds else []
    if options.list:
        sys.stdout.write("".join(f"{epochs} {arm}\n" for arm, epochs in missing(groups, goals, lines)))
        return
    parts = [accuracies(groups), *(reached(groups, goal, lines) for goal in goals), trained(lines)]
    if options.decoded:
        parts.append(decoded(read([options.decoded])))
    sys.stdout.write("\n".join(part for part in parts if part))


def lengths(groups: Iterable[Group], run: Run, seeds: int | None = SEEDS) -> dict[int, Group]:
    """The schedules of `run` by their epochs, the shortest first, with their first seeds alone."""
    found = {}
    for group in groups:
        alike = replace(run, epochs=group.run.epochs, warm=group.run.epochs / 30, dataset=group.run.dataset)
        if alike != group.run:
            continue
        lines = tuple(line for line in group.lines if seeds is None or line["run"]["seed"] < seeds)
        if lines:
            found[group.run.epochs] = Group(group.run, lines)
    return dict(sorted(found.items()))


def of_arm(arm: str) -> Run:
    """The run that says how accurate an arm is: plain PyTorch shuffles as `uniform` does."""
    return _UNIFORM if arm == PLAIN else ARMS[arm]


def shortest(by_length: Lengths, goal: float) -> int | None:
    """The epochs of the shortest schedule whose mean reaches `goal`; none if none does."""
    return next((epochs for epochs, group in by_length.items() if round(group.top1.value, 2) >= goal), None)


def missing(groups: list[Group], goals: Iterable[float], lines: list[Line]) -> list[tuple[str, int]]:
    """The arms and lengths that are wanted and were not timed; of the lowest goal first."""
    there = {(line["arm"], line["run"]["epochs"]) for line in lines}
    wanted = [
        (arm, epochs)
        for goal in sorted(goals)
        for arm in reversed(ARMS)
        if (epochs := shortest(lengths(groups, of_arm(arm)), goal)) is not None
    ]
    return [each for each in dict.fromkeys(wanted) if each not in there]


def accuracies(groups: list[Group]) -> str:
    """Top-1 of every arm and length, with reads and requests of the whole run."""
    rows = []
    for run in SCHEDULED:
        for epochs, group in lengths(groups, run).items():
            rows.append(
                [
                    f"`{run.name}`",
                    str(epochs),
                    str(group.top1.seeds),
                    group.top1.text(),
                    f"{group.trained.value / 1e6:.2f}",
                    *(
                        f"{group.total(name).value / 1e3:,.0f}"
                        for name in ("storage_reads", "storage_requests")
                    ),
                ]
            )
    titles = ["run", "epochs", "seeds", "top-1 %", "trained, M", "reads, k", "requests, k"]
    return f"## Complete schedules\n\n{_table(titles, rows)}"


def reached(groups: list[Group], goal: float, lines: list[Line]) -> str:
    """How long each arm took to `goal`: its shortest schedule, timed."""
    rows, plain = list[list[str]](), None
    for arm in ARMS:
        by_length = lengths(groups, of_arm(arm))
        epochs = shortest(by_length, goal)
        if epochs is None:
            best = max((group.top1.value for group in by_length.values()), default=0.0)
            rows.append([f"`{arm}`", "", f"not reached: {best:.2f}", *[""] * 6])
            continue
        found, part = timed(lines, arm, epochs)
        top1 = by_length[epochs].top1.text()
        if found is None:
            rows.append([f"`{arm}`", str(epochs), top1, "not timed", *[""] * 5])
            continue
        seconds = sum(epoch["seconds"] for epoch in found)
        plain = seconds if arm == PLAIN else plain
        rows.append(
            [
                f"`{arm}`",
                str(epochs),
                top1,
                f"{seconds:,.1f}{part}",
                "" if plain is None else f"{plain / seconds:.2f}",
                f"{sum(epoch['waiting'] for epoch in found):,.1f}",
                *(_thousands(found, name) for name in ("storage_reads", "storage_requests")),
                f"{sum(epoch['counts']['storage_bytes'] for epoch in found) / 1e6:,.0f}",
            ]
        )
    titles = [
        *("arm", "epochs", "top-1 %, three seeds", "seconds", "plain's seconds over these"),
        *("waiting, s", "reads, k", "requests, k", "MB"),
    ]
    return f"## Seconds to {goal:.2f} % top-1\n\n{_table(titles, rows)}"


def timed(lines: list[Line], arm: str, epochs: int) -> tuple[list[Line] | None, str]:
    """The epochs of that schedule as timed, of the lowest seed, and a remark.

    Of `uniform` and plain PyTorch, whose plans know nothing of the schedule's length, the first epochs of a
    longer one will do; and where there is none, a shorter one whose middle epoch is counted again.
    """
    by_seed = sorted(lines, key=lambda line: -int(line["run"]["seed"]))
    own = {line["run"]["epochs"]: line["epochs"] for line in by_seed if line["arm"] == arm}
    if epochs in own:
        return own[epochs], ""
    if ARMS[arm].strategy != "uniform" or not own:
        return None, ""
    longest = max(own)
    if longest > epochs:
        return own[longest][:epochs], f" (of {longest} epochs)"
    # Epochs after the first are alike: the middle one by seconds stands for those that are missing.
    later = sorted(own[longest][1:], key=lambda epoch: float(epoch["seconds"]))
    usual = later[len(later) // 2]
    return own[longest] + [usual] * (epochs - longest), f" (worked out from {longest} epochs)"


def trained(lines: list[Line]) -> str:
    """What was trained for real: seconds of an epoch, and the accuracy that came of it."""
    rows = []
    for line in lines:
        each = Mean.of(epoch["seconds"] for epoch in line["epochs"][1:])
        spread = sorted(epoch["seconds"] for epoch in line["epochs"][1:])
        rows.append(
            [
                f"`{line['arm']}`",
                str(line["run"]["seed"]),
                str(line["run"]["epochs"]),
                f"{line['seconds']:,.1f}",
                f"{line['epochs'][0]['seconds']:.2f}",
                f"{each.value:.2f} ({spread[0]:.2f} to {spread[-1]:.2f})",
                f"{100.0 * sum(epoch['waiting'] for epoch in line['epochs']) / line['seconds']:.0f}",
                f"{line['top1']:.2f}",
                *(_thousands(line["epochs"], name) for name in ("storage_reads", "storage_requests")),
            ]
        )
    if not rows:
        return ""
    titles = [
        *("arm", "seed", "epochs", "seconds", "first epoch, s", "later ones, s (least to most)"),
        *("waiting, %", "top-1 %", "reads, k", "requests, k"),
    ]
    return f"## As timed, one run each\n\n{_table(titles, rows)}"


def decoded(groups: list[Group]) -> str:
    """Top-1 of trainings that decode, whatever their seconds were."""
    rows = [
        [f"`{group.lines[0]['arm']}`", str(group.run.epochs), str(group.top1.seeds), group.top1.text()]
        for group in groups
    ]
    return f"## Decoded by workers\n\n{_table(['arm', 'epochs', 'seeds', 'top-1 %'], rows)}"


def _thousands(epochs: list[Line], name: str) -> str:
    return f"{sum(epoch['counts'][name] for epoch in epochs) / 1e3:,.0f}"


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (titles, ["---"] * len(titles), *rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
