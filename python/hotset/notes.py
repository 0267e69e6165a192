"""Warnings about what is no error: each once a run, by rank 0, as a `HotsetWarning`.

The server keeps what there is to say of a job and shows it as `note:` in `hotset stats`; what it says when a
job is opened or an epoch begins comes here. What only the client knows comes here alone.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from .errors import HotsetWarning

_PACKAGE = str(Path(__file__).parent)

_said: set[str] = set()


def warn_once(text: str, *, rank: int = 0, name: str = "") -> None:
    """Warns with `text`, unless that is another rank's to do or was done; texts of one `name` are one."""
    if rank != 0 or (name or text) in _said:
        return
    _said.add(name or text)
    warnings.warn(text, HotsetWarning, stacklevel=_depth())


def forget() -> None:
    """Lets everything be said again. For tests."""
    _said.clear()


def _depth() -> int:
    """The `stacklevel` at which `warn_once` finds the line of the user's program."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    return depth
