"""Real processes for the tests: servers, trainers, and a look at who is alive."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
        from hotset._client import runtime

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


class StoreServer:
    """The server of a store, in a folder of its own, ended by its own id."""

    def __init__(self, prefix: str) -> None:
        self._top = Path(tempfile.mkdtemp(prefix=prefix))

    def _start(
        self,
        command: Sequence[str],
        answers: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it in its folder and waits until it `answers`, which may fail as connections do."""
        log = self._top / "log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=self._top,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

        def answered() -> bool:
            assert self.process.poll() is None, log.read_text()[-2000:]
            with contextlib.suppress(OSError):
                return answers()
            return False

        until(f"the store answers; see {log}", answered)

    def stop(self) -> None:
        """Ends it at once: nothing of it is kept."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self._top)


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nothing has.

    Not of those that the kernel gives to connections, nor of another process of the tests: one might be taken
    again before something listens on it.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = range(20_000 + process, 32_000, processes)
    draw = random.SystemRandom()
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            probe, port = held.enter_context(socket.socket()), draw.choice(own)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


class Starter:
    """Starts scripts that use torch, in the time of a fork; see `starter.py`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("starter.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What has been read is never more than was asked for, so `select` tells of all that there is.
            bufsize=0,
        )
        self._ended: dict[int, int] = {}

    def start(
        self, command: Sequence[str], errors: Path, environment: Mapping[str, str] | None = None
    ) -> Started:
        """Starts a script with its arguments and an environment, by default the present one."""
        assert self._process.stdin
        given = dict(os.environ if environment is None else environment)
        self._process.stdin.write(json.dumps([command, given, str(errors)]).encode() + b"\n")
        while (said := self._hear())[1] is not None:
            self._ended[said[0]] = said[1]
        return Started(self, said[0], errors)

    def has_ended(self, pid: int) -> bool:
        """Whether what was started as `pid` has ended."""
        while pid not in self._ended and select.select([self._process.stdout], [], [], 0)[0]:
            ended, code = self._hear()
            assert code is not None
            self._ended[ended] = code
        return pid in self._ended

    def wait(self, pid: int, seconds: float) -> int:
        """The exit code of what was started as `pid`, when it has ended."""
        until(f"process {pid} ends", lambda: self.has_ended(pid), seconds)
        return self._ended.pop(pid)

    def stop(self) -> None:
        """Ends it, but nothing that it started."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(b"\n")
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _hear(self) -> tuple[int, int | None]:
        assert self._process.stdout
        pid, code = json.loads(self._process.stdout.readline())
        return pid, code


@dataclass(frozen=True)
class Started:
    """A process that a `Starter` started."""

    starter: Starter
    pid: int
    errors: Path

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.starter.has_ended(self.pid)

    def wait(self, seconds: float = 300.0) -> tuple[int, str]:
        """Its exit code, when it has ended, and what it wrote to standard error."""
        return self.starter.wait(self.pid, seconds), self.errors.read_text()


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
            300.0,
        )
        assert self.process.poll() is None, self.complained()
        return self.said()[0]

    def ended(self, seconds: float = 600.0) -> list[dict[str, Any]]:
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
