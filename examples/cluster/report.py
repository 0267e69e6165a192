"""What the demo found: a row for each epoch, and what the kill cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One epoch of all ranks on all nodes."""

    epoch: int
    seconds: float
    longest: float
    """The longest that a step of a rank took, from asking for its batch to the end of its report."""
    loss: float
    served: int
    hit: int
    hit_peer: int
    """Hits of them that went to another node."""
    reads: int
    """Samples that were read from storage, those that a plan did not foresee among them."""
    unforeseen: int
    """Reads of a rank itself, in place of a node that did not answer."""


def row(epoch: int, ranks: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> Row:
    """An epoch, as ranks have said and nodes have counted."""

    def counted(name: str) -> int:
        return sum(int(node.get(name, 0)) for node in nodes)

    return Row(
        epoch=epoch,
        seconds=max(rank["seconds"] for rank in ranks),
        longest=max(rank["longest"] for rank in ranks),
        loss=sum(rank["loss"] for rank in ranks) / len(ranks),
        served=counted("served"),
        hit=counted("hit"),
        hit_peer=counted("hit_peer"),
        reads=counted("storage_reads") + counted("recovery_reads"),
        unforeseen=counted("recovery_reads"),
    )


def table(rows: Sequence[Row], killed: int) -> str:
    """All rows."""
    lines = [
        ["epoch", "seconds", "loss", "served", "hits", "local", "from peers", "reads", "longest step", ""]
    ]
    for each in rows:
        lines.append(
            [
                str(each.epoch),
                f"{each.seconds:.1f}",
                f"{each.loss:.2f}",
                f"{each.served:,}",
                f"{each.hit:,}",
                _share(each.hit - each.hit_peer, each.hit),
                _share(each.hit_peer, each.hit),
                f"{each.reads:,}",
                f"{each.longest * 1000:.0f} ms",
                "killed here" if each.epoch == killed else "",
            ]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def sentence(rows: Sequence[Row], killed: int, name: str, away: float) -> str:
    """What the kill cost, beside the epoch before it."""
    before, hit = rows[killed - 1], rows[killed]
    return (
        f"{name} was killed in epoch {killed} and away for {away:.1f} s. The longest step then took "
        f"{hit.longest:.1f} s, where it took {before.longest:.1f} s in the epoch before. "
        f"{hit.reads:,} samples were read from storage, {before.reads:,} before; {hit.unforeseen:,} of them "
        "in place of a node that did not answer."
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
