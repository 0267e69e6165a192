"""What the soak saw, by kind of job: for people and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benchmarks.report import aligned
from benchmarks.soak.kinds import KINDS

COLUMNS = ("started", "finished", "killed", "resumed", "loaded", "workers", "epochs", "samples")
"""Jobs that began, and that trained to their end; trainers that were killed, and gone on with by
`resume=True` and by `load_state_dict`; workers that were killed; epochs trained to their end; samples that
were checked."""


@dataclass
class Figures:
    """Counts, and the server's memory."""

    kinds: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in KINDS})
    most: int = 0
    """Jobs that ran at once, at most."""
    server_kills: int = 0
    private_kills: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    """What trainers say of themselves."""
    memory: list[int] = field(default_factory=list)
    """Bytes of the server's own, whenever a job ended."""

    def total(self, name: str) -> int:
        """Of all kinds."""
        return sum(kind[name] for kind in self.kinds.values())

    def text(self) -> str:
        """Tables for people."""
        rows = [["", *COLUMNS, ""]]
        for name, kind in self.kinds.items():
            rows.append([name, *(f"{kind[column]:,}" for column in COLUMNS), ""])
        rows.append(["all", *(f"{self.total(column):,}" for column in COLUMNS), ""])
        memory = [round(size / (1 << 20)) for size in self.memory]
        most = f"at most {self.most} jobs at once"
        killed = f"servers killed {self.server_kills}, private ones {self.private_kills}"
        seen = ", ".join(f"{name} {count:,}" for name, count in self.seen.items())
        sizes = f"{min(memory)} to {max(memory)} MiB, at last {memory[-1]} MiB"
        return "\n".join(
            [*aligned(rows), "", f"{most}; {killed}", seen, f"server memory as jobs ended: {sizes}"]
        )

    def told(self) -> dict[str, Any]:
        """For programs."""
        totals = {name: self.total(name) for name in (*COLUMNS, "lost")}
        return {**vars(self), "total": totals}
