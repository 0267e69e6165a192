"""Warnings about what is no error: each once a run, by rank 0, as a `HotsetWarning`.

The server keeps what there is to say of a job and shows it as `note:` in `hotset stats`; what it says when a
job is opened or an epoch begins comes here. What only the client knows comes here alone. From Python 3.12 on
a warning names the line of the user's program; before that, no line, since Python would show one of ours.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings

from ..errors import HotsetWarning

_OWN = __name__.partition(".")[0]
_FRAMEWORKS = (
    _OWN,
    "torch",
    "torchdata",
    "lightning",
    "pytorch_lightning",
    "accelerate",
    "transformers",
    "tqdm",
)
"""Packages whose code may stand between a user's program and what warns."""

_said: set[str] = set()


def warn_once(text: str, *, rank: int = 0, name: str = "") -> None:
    """Warns with `text`, unless that is another rank's to do or was done; texts of one `name` are one."""
    if rank != 0 or (name or text) in _said:
        return
    _said.add(name or text)
    if sys.version_info >= (3, 12):
        warnings.warn(text, HotsetWarning, skip_file_prefixes=_skipped())
    else:
        warnings.warn_explicit(text, HotsetWarning, filename=f"<{_OWN}>", lineno=1, module=_OWN)


def forget() -> None:
    """Lets everything be said again. For tests."""
    _said.clear()


def _skipped() -> tuple[str, ...]:
    """The folders of what may stand between: the library of Python, and the frameworks that are loaded."""
    # Packages of users may lie below the library, in `site-packages`.
    library = sysconfig.get_path("stdlib")
    files = [
        os.path.join(library, name) for name in ("concurrent", "contextlib", "multiprocessing", "threading")
    ]
    loaded = [getattr(sys.modules.get(name), "__file__", None) for name in _FRAMEWORKS]
    return (*files, *(os.path.dirname(file) + os.sep for file in loaded if file))
