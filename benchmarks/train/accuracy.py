"""What strategies cost in accuracy, for `hotset doctor`: the runs of `results`, in short.

    python -m benchmarks.train.accuracy            # writes crates/sim/src/doctor/accuracy.json
    python -m benchmarks.train.accuracy --check    # fails where that file is stale

Means over seeds with their 95 % interval, as in docs/results.md, of runs of ResNet-18 with five seeds or more
over 30 epochs that are no controls and have no treatment of their own. Other models are left out, since the
doctor names one model for all that it shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .results import Group, baseline, for_accuracy, read

ROOT = Path(__file__).parents[2]
RESULTS = [Path(__file__).parent / "results" / f"h200-{name}.jsonl" for name in ("cifar10", "cifar100")]
FILE = ROOT / "crates" / "sim" / "src" / "doctor" / "accuracy.json"
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
MODEL, MODEL_NAME = "resnet18", "ResNet-18"
LEAST_SEEDS, EPOCHS = 5, 30


def main() -> int:
    """Writes the file, or says whether it is what would be written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, and fail where the file is stale"
    )
    wanted = text()
    if not parser.parse_args().check:
        FILE.write_text(wanted)
        return 0
    if FILE.exists() and FILE.read_text() == wanted:
        return 0
    sys.stderr.write(f"{FILE} is stale: run `python -m benchmarks.train.accuracy`\n")
    return 1


def text() -> str:
    """The file, one line for each row."""
    rows = [row for path in RESULTS for row in _rows(for_accuracy(read([path])))]
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _rows(groups: list[Group]) -> list[dict[str, Any]]:
    rows = []
    for group in (group for group in groups if group.run.model == MODEL):
        run, base = group.run, baseline(groups, group.run)
        treated = run.transform or run.floor or run.average or run.held_out
        if base is None or base is group or run.is_control or treated or run.strategy == "uniform":
            continue
        lost = base.top1.minus(group.top1)
        if group.top1.seeds < LEAST_SEEDS or run.epochs != EPOCHS or lost.half is None:
            continue
        rows.append(
            {
                "pair": run.name.removesuffix(", not augmented"),
                "cache": run.cache,
                "dataset": DATASETS[run.dataset],
                "model": MODEL_NAME,
                "epochs": run.epochs,
                "seeds": group.top1.seeds,
                "augmented": run.augment,
                "baseline": base.run.name.removesuffix(", not augmented"),
                "baseline_top1": round(base.top1.value, 2),
                "lost": round(lost.value, 2),
                "half": round(lost.half, 2),
            }
        )
    return sorted(rows, key=lambda row: (row["pair"], row["cache"], not row["augmented"]))


if __name__ == "__main__":
    sys.exit(main())
