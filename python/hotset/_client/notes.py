"""Warnings about what is no error: each once a run, by rank 0, as a `HotsetWarning`.

The server keeps what there is to say of a job and shows it as `note:` in `hotset stats`; what it says when a
job is opened or an epoch begins comes here. What only the client knows comes here alone.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from ..errors import HotsetWarning

_OWN = __name__.partition(".")[0]
_BETWEEN = {
    *(_OWN, "torch", "torchdata", "lightning", "pytorch_lightning", "accelerate", "transformers", "tqdm"),
    *sys.stdlib_module_names,
}
"""Packages whose code may stand between a user's program and what warns."""

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
    """The `stacklevel` at which `warn_once` finds the line of the user's program.

    A worker that was not forked has none; there the line is that of whoever called Hotset.
    """
    frame: FrameType | None = sys._getframe(1)
    depth, caller = 1, 0
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _BETWEEN:
            return depth
        if package != _OWN and not caller:
            caller = depth
        frame, depth = frame.f_back, depth + 1
    return caller or 1
