"""Real processes for the tests: servers, trainers, and a look at who is alive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRAINER = Path(__file__).with_name("trainer.py")


def until(what: str, true: Callable[[], bool], seconds: float = 120.0) -> None:
    """Waits until `true()`; fails with `what` if it does not come about."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def until_gone(leader: int, text: str, seconds: float) -> None:
    """Waits until no process is left of the session of `leader`, nor one that names `text`."""
    end = time.monotonic() + seconds
    while left := {**session(leader), **naming(text)}:
        assert time.monotonic() < end, f"left after {seconds} s: {left}"
        time.sleep(0.05)


def naming(text: str) -> dict[int, str]:
    """The processes, zombies left out, whose command line contains `text`; never this one."""
    return {
        pid: line
        for pid, line in ((pid, _file(pid, "cmdline").replace("\0", " ")) for pid in _pids())
        if text in line and pid != os.getpid()
    }


def session(leader: int) -> dict[int, str]:
    """The processes, zombies left out, of the session that `leader` started."""
    return {
        pid: _file(pid, "cmdline").replace("\0", " ") for pid in _pids() if _stat(pid)[3:4] == [str(leader)]
    }


def alive(pid: int) -> bool:
    """Whether `pid` runs."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


class Server:
    """A server that a user started: `hotset serve`."""

    def __init__(self, socket: Path, *arguments: str) -> None:
        self.socket = socket
        self._arguments = arguments
        self.start()

    def start(self) -> None:
        """Starts it and waits until it listens."""
        command = [sys.executable, "-m", "hotset", "serve", "--socket", str(self.socket), *self._arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        from hotset import runtime

        until("the server listens", lambda: runtime.listener(str(self.socket)) == self.process.pid)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends it as a user would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) in (0, -signal.SIGKILL)


class Trainer:
    """A training process of its own session; see `trainer.py`."""

    def __init__(self, place: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        # Not pipes: a private server holds its trainer's standard error open a little longer.
        self._out = place.parent / f"trainer-{time.monotonic_ns()}.out"
        self._err = self._out.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(TRAINER), str(place), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    def said(self) -> list[dict[str, Any]]:
        """The lines it wrote so far."""
        lines = self._out.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def complained(self) -> str:
        """What it wrote to its standard error so far."""
        return self._err.read_text()

    def until_going(self) -> dict[str, Any]:
        """Waits until it and all its workers are at it; its first line."""
        # A worker whose trainer dies before the worker has looked who that is would stay for ever, in torch's
        # own loop: so more steps than there are workers, in a first epoch that lasts.
        until(
            "the trainer trains",
            lambda: len(self.said()) > 5 or self.process.poll() is not None,
            60.0,
        )
        assert self.process.poll() is None, self.complained()
        return self.said()[0]

    def ended(self, seconds: float = 120.0) -> list[dict[str, Any]]:
        """Waits until it ends well; all its lines."""
        assert self.process.wait(seconds) == 0, self.complained()
        return self.said()


def _pids() -> list[int]:
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and alive(int(entry.name))
    ]


def _file(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and more of a process; nothing if there is none."""
    return _file(pid, "stat").rpartition(")")[2].split()
