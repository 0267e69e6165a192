"""Work of others that may fail or never end, done by a thread that can be left behind.

A loader's `next` cannot be broken off from outside. So it runs in a thread of its own, and after a time it is
no longer waited for; the thread ends with the process.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import Error, InvalidError, UnavailableError

_T = TypeVar("_T")


class Stop:
    """Says to work that is no longer waited for that it should end where it can."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._over = threading.Event()

    def __bool__(self) -> bool:
        """Whether it is time to end."""
        return self._over.is_set() or time.monotonic() >= self._until

    def set(self) -> None:
        """It is."""
        self._over.set()


def within(what: str, seconds: float, grace: float, work: Callable[[Stop], _T]) -> _T:
    """What `work` comes to, which should end after some seconds and is given up after `grace` more.

    A failure of its own names `what` failed.
    """
    stop = Stop(seconds)
    answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((True, work(stop)))
        except BaseException as error:
            answers.put((False, error))

    thread = threading.Thread(target=run, name="hotset-doctor", daemon=True)
    thread.start()
    end = time.monotonic() + seconds + grace
    while True:
        try:
            # In short waits, so that Ctrl-C comes through.
            done, answer = answers.get(timeout=0.2)
            break
        except queue.Empty:
            if time.monotonic() >= end:
                stop.set()
                raise UnavailableError(
                    f"{what} gave nothing in {seconds + grace:.0f} s: it hangs, or is slower than that; give "
                    "it longer with `seconds`"
                ) from None
        except BaseException:
            stop.set()
            raise
    if done:
        result: _T = answer
        return result
    if isinstance(answer, Error | KeyboardInterrupt):
        raise answer
    raise InvalidError(f"{what} failed: {type(answer).__name__}: {answer}") from answer
