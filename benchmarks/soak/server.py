"""The server of the soak: killed and started again, as a supervisor does, and looked after at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hotset

from benchmarks.soak.processes import memory_of, threads_of, wait_for

LINGER = 3
"""Seconds for which the server keeps a job whose processes have gone."""


class Server:
    """`hotset serve`, at one socket for as long as the soak lasts."""

    def __init__(self, place: Path, memory: str) -> None:
        self.socket, self.log = place / "server.sock", place / "server.log"
        self._command = [sys.executable, "-m", "hotset", "serve", "--socket", str(self.socket)]
        self._command += ["--linger", str(LINGER), "--memory", memory]
        self._due: float | None = None
        self._start()
        wait_for("the server listens", self.socket.exists, 30)

    def _start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=log)
        self._due = None

    @property
    def is_up(self) -> bool:
        """Whether it was not killed just now."""
        return self._due is None

    def kill(self, pause: float) -> None:
        """Ends it as a crash does; it is started again after `pause` seconds."""
        self.process.kill()
        self.process.wait()
        self._due = time.monotonic() + pause

    def look(self) -> None:
        """Starts it again when that is due. It ends by nothing but kills."""
        if self._due is not None and time.monotonic() >= self._due:
            self._start()
        code = self.process.poll()
        assert code is None or not self.is_up, f"the server ended by itself, with {code}"

    def memory(self) -> int:
        """Bytes of its own."""
        return memory_of(self.process.pid)

    def asked(self) -> dict[str, Any]:
        """How many jobs it has, how many leases, and the bytes it keeps."""
        client = hotset.Client(str(self.socket), main_pid=os.getpid(), timeout=10)
        try:
            said = json.loads(client.stats(wait=10))
        finally:
            client.close()
        return {"jobs": [job["job"] for job in said["jobs"]]} | {
            name: said["server"][name] for name in ("leases", "occupied")
        }

    def until_empty(self) -> None:
        """Waits until nothing is left of jobs that have ended."""
        wait_for(lambda: f"nothing is left: {self.asked()}", lambda: not any(self.asked().values()), 60)

    def describe(self) -> str:
        """Where its threads are, and the last that it said, for whoever looks for what went wrong."""
        lines = ["the server's threads:", *threads_of(self.process.pid)]
        return "\n".join([*lines, "the server's log:", *self.log.read_text().splitlines()[-60:]])

    def close(self) -> None:
        """Ends it, which it must do by itself, with nothing left of it, unless it was killed just now."""
        if not self.is_up:
            return
        self.process.terminate()
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert code == 0, f"the server ended with {code}"
        assert not self.socket.exists(), "the server left its socket"
