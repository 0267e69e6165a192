"""What the server counted in an epoch, as the numbers that frameworks log."""

from __future__ import annotations

from typing import Any


def epoch_counters(stats: dict[str, Any], epoch: int) -> dict[str, float]:
    """The counters of `epoch` by the names they are logged under; empty past the server.

    `hotset/wait/rank0` is the seconds that rank 0's readers waited for samples; `hotset/hit` the share of
    servings that needed no storage read; `hotset/storage_reads` the samples fetched.
    """
    found = next((each for each in stats.get("epochs", ()) if each["epoch"] == epoch), None)
    if found is None:
        return {}
    named = {
        "hotset/hit": found["hit"] / max(found["served"], 1),
        "hotset/storage_reads": float(found["storage_reads"]),
        "hotset/late": float(found["late"]),
    }
    for wait in found["waits"]:
        named[f"hotset/wait/rank{wait['rank']}"] = float(wait["sum"])
    return named
