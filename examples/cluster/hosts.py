"""The demo's etcd and its nodes: processes of this machine that speak over loopback.

On hosts of their own nodes would have certificates and a token too (`docs/cluster.md`); on loopback they
need none.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import hotset

PATIENCE = 60.0
"""Seconds in which a process has to answer."""


class Process:
    """A process that is started again after it was killed."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._command, self._log, self._environment = command, log, {**os.environ, **environment}
        self.start()

    def start(self) -> None:
        """Starts it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        """Ends it as a crash does: `kill -9`."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends it as its user would."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def until(self, answers: Callable[[], bool]) -> None:
        """Waits until it answers."""
        end = time.monotonic() + PATIENCE
        while not answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"`{' '.join(self._command)}` does not answer:\n{self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-3000:]


class Node:
    """A host's server."""

    def __init__(self, name: str, cluster: str, folder: Path, port: int) -> None:
        self.name, self.socket = name, folder / f"{name}.sock"
        command = [sys.executable, "-m", "hotset", "serve", "--socket", str(self.socket)]
        command += ["--cluster", cluster, "--node", name, "--listen", f"127.0.0.1:{port}"]
        own = {"HOTSET_CACHE_DIR": str(folder / name), "HOTSET_RUNTIME_DIR": str(folder)}
        self.process = Process(command, folder / f"{name}.log", own)
        self.until_listening()

    def until_listening(self) -> None:
        """Waits until it answers its clients."""
        self.process.until(lambda: self.stats() is not None)

    def stats(self) -> dict[str, Any] | None:
        """What `hotset stats --json` shows of it; nothing if it does not answer."""
        with suppress(hotset.Error):
            client = hotset.Client(str(self.socket), main_pid=os.getpid(), timeout=2.0)
            try:
                said: dict[str, Any] = json.loads(client.stats(wait=10.0))
                return said
            finally:
                client.close()
        return None


def start(folder: Path, count: int, ending: ExitStack) -> list[Node]:
    """An etcd of one member and so many nodes, which end with `ending`."""
    client, peer, *ports = _free_ports(2 + count)
    url = f"http://127.0.0.1:{client}"
    etcd = ["etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", url]
    etcd += ["--advertise-client-urls", url, "--listen-peer-urls", f"http://127.0.0.1:{peer}"]
    try:
        process = Process(etcd, folder / "etcd.log", {"ETCD_UNSUPPORTED_ARCH": os.uname().machine})
    except FileNotFoundError:
        raise RuntimeError("etcd is missing: `make etcd` installs it on Debian") from None
    ending.callback(process.kill)
    process.until(lambda: _listens(client))
    nodes = []
    for number, port in enumerate(ports):
        nodes.append(Node(f"node-{number}", f"etcd://127.0.0.1:{client}/demo", folder, port))
        ending.callback(nodes[-1].process.stop)
    return nodes


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
