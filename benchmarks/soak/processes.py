"""A look at processes: whose they are, what they run, how much memory they have, what they wait for."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def children_of(parent: int) -> list[int]:
    """The processes that a process forked and that run."""
    return [pid for pid in _all() if _stat(pid)[1:2] == [str(parent)] and runs(pid)]


def kill_watcher(trainer: int, directory: Path) -> bool:
    """Kills the private server that watches a training; whether there was one.

    None while one is being started, which is under the lock of the runtime directory: whoever starts a server
    takes its end for that of a server that cannot run.
    """
    held = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for pid in _all():
            arguments = _bytes(pid, "cmdline").decode(errors="replace").split("\0")
            watched = [arguments[at + 1] for at, name in enumerate(arguments[:-1]) if name == "--watch"]
            if watched == [str(trainer)] and runs(pid):
                os.kill(pid, signal.SIGKILL)
                wait_for("the server is gone", lambda pid=pid: not runs(pid), 30)  # type: ignore[misc]
                return True
    except (BlockingIOError, ProcessLookupError):
        pass
    finally:
        os.close(held)
    return False


def marked(folder: Path) -> list[int]:
    """The processes whose environment names a folder, but this one and those that it started itself."""
    name, own = os.fsencode(folder), str(os.getpid())
    return [
        pid
        for pid in _all()
        if name in _bytes(pid, "environ") and str(pid) != own and _stat(pid)[1:2] != [own] and runs(pid)
    ]


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def memory_of(pid: int) -> int:
    """The bytes of a process that are its own: not the sealed memory it shares with its clients."""
    for line in _bytes(pid, "status").decode().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {pid} has no memory")


def threads_of(pid: int) -> list[str]:
    """The threads of a process: name, state, and the system call that each is in."""
    lines, tasks = [], Path(f"/proc/{pid}/task")
    for task in sorted(tasks.iterdir()) if tasks.exists() else ():
        said = [_bytes(pid, f"task/{task.name}/{name}").decode().strip() for name in ("comm", "wchan")]
        state = _bytes(pid, f"task/{task.name}/stat").decode().rpartition(")")[2].split()[:1]
        lines.append(f"{task.name} {said[0]} {' '.join(state)} {said[1]}")
    return lines


def wait_for(what: str | Callable[[], str], true: Callable[[], bool], seconds: float) -> None:
    """Waits until `true()`; fails with `what` if it does not come about."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what() if callable(what) else what}"
        time.sleep(0.05)


def _all() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _bytes(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    """State, parent and more of a process; nothing if there is none."""
    return _bytes(pid, "stat").decode(errors="replace").rpartition(")")[2].split()
