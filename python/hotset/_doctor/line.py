"""What `doctor` is at, on one line of the terminal; a log line where there is no terminal."""

from __future__ import annotations

import logging
import shutil
import sys
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)


class Line:
    """One line, written over and in the end removed."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._width = 0

    def __enter__(self) -> Self:
        if self._shown:
            sys.stderr.write(f"{self._title}\n")
        else:
            _log.info("%s", self._title)
        return self

    def say(self, what: str) -> None:
        """Says what is done now."""
        if self._shown:
            text = what[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
