"""A verdict on a training, as Python has it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Diagnosis:
    """What a training waits for, and what would help. `print` shows all of it, the verdict first."""

    verdict: str
    """The verdict in a sentence or two."""
    bottleneck: str
    """`requests`, `bytes`, `waiting` or `tiny` where it is storage, else `preparing` or `computing`."""
    paste: str | None
    """The lines of Python that would help most without a change of what is trained."""
    report: dict[str, Any]
    """All figures, as `hotset doctor --json` has them."""
    text: str = field(repr=False)
    """The report as text."""
    page: str = field(repr=False)
    """The report as a page that needs nothing else to be read."""

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        from html import escape

        return f"<pre>{escape(self.text)}</pre>"

    @classmethod
    def of(cls, answer: tuple[str, str, str]) -> Diagnosis:
        """As the native part answers."""
        report = json.loads(answer[0])
        return cls(report["verdict"], report["bottleneck"], report["paste"], report, answer[1], answer[2])
