"""Tables and plots of what `train` and `sweep` wrote: ours beside the papers'.

    python -m benchmarks.train.tables results.jsonl --out out/train

Writes `tables.md`, and plots where matplotlib is there. A cell without a run stays empty. Where a row has
several seeds, values are means with their 95 % interval (Student's t), differences with Welch's. Seconds are
not shown: runs that share a GPU take each other's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from . import papers
from .plots import draw, titled
from .results import Group, Mean, baseline, for_accuracy, read
from .run import Run

_HISTORY, _HYBRID, _REALTIME = Run("iis", "icache"), Run("hybrid", "impact"), Run("realtime", "icache")
_DEFAULT, _BASE = Run("uniform", "lru"), Run("cis", "lru")
_DEFAULT_IS = (
    "`Default` is `uniform+lru`, or `uniform+minio` where that has more seeds, since their plans are the same"
)
_ANY: dict[str, Any] = {"epochs": 0, "batch": 0, "images": 0, "rate": 0.0, "warm": 0.0}
_BY_H, _BY_NONE = Run("iis", "icache", {"substitute": "h"}), Run("iis", "icache", {"substitute": "off"})


def main() -> None:
    """Makes them all, from the command line."""
    parser = argparse.ArgumentParser(description="Tables and plots of training runs.")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("out/train"))
    parser.add_argument("--target", type=float, help="top-1 that ImPACT's figure 16 waits for, in percent")
    parser.add_argument("--format", choices=("svg", "png"), default="svg", help="of the plots")
    options = parser.parse_args()
    groups = read(options.results)
    if not groups:
        parser.error("there is not one line in the results")
    options.out.mkdir(parents=True, exist_ok=True)
    parts = [
        accuracy(groups),
        screening(groups),
        confirmed(groups),
        icache_table_1(groups),
        icache_table_3(groups),
        impact_table_1(groups),
        impact_figure_15(groups),
        impact_figure_16(groups, options.target),
        shade_figure_12(groups),
    ]
    (options.out / "tables.md").write_text("\n".join(part for part in parts if part))
    for name in draw(groups, options.out, options.format):
        sys.stderr.write(f"{name}\n")
    sys.stderr.write(f"{options.out / 'tables.md'}\n")


def accuracy(groups: list[Group]) -> str:
    """Accuracy against what storage gave, of everything there is, by dataset and model."""
    groups = for_accuracy(groups)
    kinds = dict.fromkeys((group.run.dataset, group.run.model) for group in groups)
    return "\n".join(_accuracy(groups, dataset, model) for dataset, model in kinds)


def _accuracy(groups: list[Group], dataset: str, model: str) -> str:
    own = [group for group in groups if (group.run.dataset, group.run.model) == (dataset, model)]
    rows = []
    for group in sorted(own, key=lambda group: -group.top1.value):
        base = baseline(own, group.run)
        lost = None if base is None or base is group else base.top1.minus(group.top1)
        reads = group.total("storage_reads")
        rows.append(
            [
                f"`{titled(group.run)}`",
                str(group.top1.seeds),
                group.top1.text(),
                "" if lost is None else lost.text(),
                "" if lost is None or lost.half is None else f"{lost.value + lost.half:.2f}",
                f"{group.trained.value / 1e6:.2f}",
                f"{reads.value / 1e3:,.0f}",
                "" if base is None else f"{100.0 * reads.value / base.total('storage_reads').value:.0f}",
                f"{group.total('storage_requests').value / 1e3:,.0f}",
                f"{group.total('storage_bytes').value / 1e6:,.0f}",
                f"{group.share('hit').value:.1f}",
                f"{group.share('hit', 'packed').value:.1f}",
                f"{100.0 * group.count('distinct', settled=True).value / group.lines[0]['samples']:.1f}",
            ]
        )
    against = baseline(own, own[0].run)
    titles = [
        *("run", "seeds", "top-1 %", "lost, points", "at most", "trained, M"),
        *("reads, k", "% of baseline's", "requests, k", "MB", "hit %", "hit (paper's) %", "coverage, late %"),
    ]
    named = "nothing" if against is None else f"`{titled(against.run)}`"
    said = (
        f"Batch {own[0].run.batch}, cache 20 % and 30 epochs unless a row says otherwise; counts are of "
        f"whole runs. Lost: against {named}; at most: the upper end of its 95 % interval; late: in the "
        "second half of the epochs."
    )
    return f"## {dataset}, {model}: accuracy against storage\n\n{said}\n\n{_table(titles, rows)}"


def screening(groups: list[Group]) -> str:
    """Runs that were tested on held-out images, in several ways, beside `uniform` treated alike."""
    tested = [
        group for group in groups if group.run.held_out and all("tested" in line for line in group.lines)
    ]
    kinds = dict.fromkeys((group.run.dataset, group.run.model, group.run.held_out) for group in tested)
    return "\n".join(
        _screening(
            [
                group
                for group in tested
                if (group.run.dataset, group.run.model, group.run.held_out) == (dataset, model, held_out)
            ],
            f"{dataset}, {model}, {held_out:,} held-out images",
        )
        for dataset, model, held_out in kinds
    )


def _screening(groups: list[Group], title: str) -> str:
    ways = list(dict.fromkeys(way for group in groups for way in group.lines[0]["tested"]))
    rows = []
    for group in groups:
        base = baseline(groups, group.run)
        row = [f"`{titled(group.run)}`", str(len(group.lines))]
        for way in ways:
            row.append("")
            if all(way in line["tested"] for line in group.lines):
                top1 = _tested(group, way).value
                row[-1] = f"{top1:.2f}"
                if base is not None and base is not group:
                    row[-1] += f" ({top1 - _tested(base, way).value:+.2f})"
        rows.append([*row, f"{group.total('storage_reads').value / 1e3:,.0f}"])
    said = (
        "Top-1 in percent, means over seeds. All columns of a row are of the same trainings. In parentheses: "
        "points above `uniform` with the same transform and learning rate, tested in the same way. `window` "
        "and `all`: the images with which batch normalisation was estimated anew."
    )
    titles = ["run", "seeds", *ways, "reads, k"]
    return f"## Screening: {title}\n\n{said}\n\n{_table(titles, rows)}"


def confirmed(groups: list[Group]) -> str:
    """What was tested on the test images in several ways, with intervals, beside what had no transform."""
    tested = [
        group for group in groups if not group.run.held_out and all("tested" in line for line in group.lines)
    ]
    kinds = dict.fromkeys((group.run.dataset, group.run.model) for group in tested)
    return "\n".join(
        _confirmed(
            [group for group in tested if (group.run.dataset, group.run.model) == (dataset, model)],
            f"{dataset}, {model}",
        )
        for dataset, model in kinds
    )


def _confirmed(groups: list[Group], title: str) -> str:
    groups = sorted(groups, key=lambda group: (bool(group.run.transform), titled(group.run)))
    base, rows = _tested(groups[0], "plain"), []
    for group in groups:
        for way in ("plain", "window", f"averaged {group.run.average:g} window"):
            top1 = _tested(group, way)
            above = "" if group is groups[0] and way == "plain" else top1.minus(base).text()
            reads = f"{group.total('storage_reads').value / 1e3:,.0f}"
            rows.append([f"`{titled(group.run)}`", way, str(top1.seeds), top1.text(), above, reads])
    titles = ["run", "tested", "seeds", "top-1 %", "above the first row, points", "reads, k"]
    return f"## Confirmation: {title}\n\n{_table(titles, rows)}"


def _tested(group: Group, way: str) -> Mean:
    return group.mean(lambda line: float(line["tested"][way]["top1"]))


def icache_table_1(groups: list[Group]) -> str:
    """Table I of iCache."""
    return _beside(
        "iCache, table I",
        groups,
        papers.ICACHE_TABLE_1,
        {"Default": _DEFAULT, "iCache": _HISTORY},
        f"{_DEFAULT_IS}, `iCache` is `iis+icache`.",
    )


def icache_table_3(groups: list[Group]) -> str:
    """Table III of iCache."""
    return _beside(
        "iCache, table III",
        groups,
        papers.ICACHE_TABLE_3,
        {"Def": _BY_NONE, "ST_HC": _BY_H, "ST_LC": _HISTORY},
        "`iis+icache` with `substitute` off, h and l. The paper's Def has the numbers of its Default, which "
        "samples uniformly; ours is `iis` without substitution.",
    )


def impact_table_1(groups: list[Group]) -> str:
    """ImPACT's table I."""
    return _beside(
        "ImPACT, table I",
        groups,
        papers.IMPACT_TABLE_1,
        {"Default": _DEFAULT, "Base": _BASE, "ImPACT": _HYBRID},
        f"{_DEFAULT_IS}, `Base` is `cis+lru`, `ImPACT` is `hybrid+impact`.",
    )


def impact_figure_15(groups: list[Group]) -> str:
    """ImPACT's figure 15: how well, and at which cost, the hardest samples are known."""
    rows = []
    for name, run in (("history", _HISTORY), ("hybrid", _HYBRID), ("realtime", _REALTIME)):
        group = _found(groups, replace(run, identify=True))
        if group is None:
            continue
        rows.append(
            [
                f"{name} (`{run.name}`)",
                _percent(group, lambda epoch: 100.0 * epoch["precision"] if "precision" in epoch else None),
                _percent(group, lambda epoch: epoch.get("reevaluated", 0), digits=0),
                group.count("other_reads").text(0),
            ]
        )
    if not rows:
        return ""
    titles = ["", "precision, top 1 %", "re-evaluated an epoch", "reads of it"]
    return f"## ImPACT, figure 15\n\nThe paper: {papers.IMPACT_FIGURE_15}.\n\n{_table(titles, rows)}"


def impact_figure_16(groups: list[Group], target: float | None) -> str:
    """ImPACT's figure 16: what it takes to reach an accuracy."""
    chosen = []
    for name, run in (("history", _HISTORY), ("hybrid", _HYBRID), ("realtime", _REALTIME)):
        group = _found(groups, run) or _found(groups, replace(run, identify=True))
        if group is not None:
            chosen.append((name, group))
    if len(chosen) < 2:
        return ""
    # All must get there, and late enough that it says something.
    goal = min(group.top1.value for _, group in chosen) - 0.5 if target is None else target
    rows = []
    for name, group in chosen:
        reached = [_until(line, goal) for line in group.lines]
        if None in reached:
            rows.append([f"{name} (`{group.run.name}`)", str(len(group.lines)), "not reached", ""])
            continue
        each = [found for found in reached if found is not None]
        rows.append(
            [
                f"{name} (`{group.run.name}`)",
                str(len(group.lines)),
                *(
                    Mean.of(found[place] for found in each).text(digits)
                    for place, digits in enumerate((1, 0))
                ),
            ]
        )
    titles = ["", "seeds", "epochs", "storage reads"]
    said = f"To {goal:.2f} % top-1. The paper: {papers.IMPACT_FIGURE_16}."
    return f"## ImPACT, figure 16\n\n{said}\n\n{_table(titles, rows)}"


def shade_figure_12(groups: list[Group]) -> str:
    """SHADE's figure 12: hit ratios."""
    rows = []
    for name, run in (
        ("SHADE", Run("pads", "app", {"repeat": 3})),
        ("SHADE, each draw once", Run("pads", "app")),
        ("Emul_Coor", Run("batchloss", "minio")),
        ("Emul_Quiv", Run("quiver", "quiver")),
    ):
        group = _found(groups, run)
        if group is not None:
            paper = papers.SHADE_FIGURE_12.get(name)
            hit, coverage = group.share("hit"), group.count("distinct", settled=True)
            rows.append(
                [
                    name,
                    f"`{run.name}`",
                    "" if paper is None else f"{paper:.1f}",
                    hit.text(1),
                    f"{100.0 * coverage.value / group.lines[0]['samples']:.1f}",
                    group.top1.text(),
                ]
            )
    if not rows:
        return ""
    titles = ["", "run", "paper's hit %", "hit %", "coverage, second half %", "top-1 %"]
    return f"## SHADE, figure 12\n\n{_table(titles, rows)}"


def _beside(
    title: str,
    groups: list[Group],
    paper: dict[str, dict[str, tuple[float, float]]],
    runs: dict[str, Run],
    said: str,
) -> str:
    """A table of models by systems: the paper's accuracies, then ours, then what was lost in both."""
    rows = []
    names = list(runs)
    for model, theirs in paper.items():
        ours = {name: _found(groups, replace(run, model=model)) for name, run in runs.items()}
        if not any(ours.values()):
            continue
        for place, top in enumerate(("top-1", "top-5")):
            row = [model if not place else "", top, *(f"{theirs[name][place]:.2f}" for name in names)]
            values = [None if group is None else (group.top1, group.top5)[place] for group in ours.values()]
            row += ["" if value is None else value.text() for value in values]
            for name, value in zip(names[1:], values[1:], strict=True):
                lost = theirs[names[0]][place] - theirs[name][place]
                mine = "" if value is None or values[0] is None else values[0].minus(value).text()
                row.append(f"{lost:.2f} / {mine}")
            rows.append(row)
    if not rows:
        return ""
    titles = [
        *("model", "", *(f"paper: {name}" for name in names), *(f"ours: {name}" for name in names)),
        *(f"lost by {name}, paper / ours" for name in names[1:]),
    ]
    return f"## {title}\n\n{said}\n\n{_table(titles, rows)}"


def _found(groups: list[Group], run: Run) -> Group | None:
    """The group of that run, whatever its epochs, batch and number of images; the largest first.

    Of `uniform` also the one with `minio`, if it has more seeds: accuracy is the plan's alone.
    """
    wanted = [run]
    if (run.strategy, run.policy) == ("uniform", "lru"):
        wanted.append(replace(run, policy="minio"))
    same = [group for group in groups if any(_alike(group.run, each) for each in wanted)]
    return max(
        same,
        key=lambda group: (group.run.epochs, len(group.lines), group.run.policy == run.policy),
        default=None,
    )


def _alike(one: Run, other: Run) -> bool:
    return replace(one, **_ANY) == replace(other, **_ANY)


def _percent(group: Group, value: Callable[[dict[str, Any]], float | None], digits: int = 2) -> str:
    """The mean of a value of epochs, over those that have one."""

    def of_line(line: dict[str, Any]) -> float:
        found = [one for one in map(value, line["epochs"]) if one is not None]
        return fmean(found) if found else 0.0

    return group.mean(of_line).text(digits)


def _until(line: dict[str, Any], goal: float) -> tuple[float, float] | None:
    """Epochs and reads until the accuracy was reached; none if it never was."""
    reads = 0.0
    for number, epoch in enumerate(line["epochs"], 1):
        reads += epoch["counts"].get("storage_reads", 0)
        if epoch["top1"] >= goal:
            return float(number), reads
    return None


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (titles, ["---"] * len(titles), *rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
