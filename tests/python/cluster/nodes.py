"""Nodes of a cluster: `hotset serve --cluster`, each on a host of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hotset
from certificates import Authority
from hosts import NODES, Hosts
from hotset._client import runtime
from members import Etcd
from processes import until

PORT = 7070


class Node:
    """One server, with directories of its own."""

    def __init__(
        self, name: str, folder: Path, socket: Path, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.name, self.socket, self.log = name, socket, folder / "log"
        folder.mkdir()
        directories = {"HOTSET_RUNTIME_DIR": str(folder), "HOTSET_CACHE_DIR": str(folder / "cache")}
        self._environment = {**os.environ, **directories, **environment}
        self._command = [*command, "--socket", str(self.socket)]
        self.start()

    def start(self, **environment: str) -> None:
        """Starts it and waits until it listens."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environment, **environment},
            )

        def listens() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            return runtime.listener(str(self.socket)) == self.process.pid

        until(f"node {self.name} listens; see {self.log}", listens)

    def kill(self) -> None:
        """Ends it as a crash does."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stops all its threads where they are, as a machine does that hangs."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on, with what it knew."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Asks it to end, as a user would."""
        if self.process.poll() is None:
            self.thaw()
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ends it as a user would."""
        self.terminate()
        assert self.process.wait(60) in (0, -signal.SIGKILL), self.log.read_text()[-2000:]

    def stats(self) -> dict[str, Any]:
        """What `hotset stats --json` says of it."""
        client = hotset.Client(str(self.socket), main_pid=os.getpid(), timeout=10)
        try:
            said: dict[str, Any] = json.loads(client.stats(wait=10))
        finally:
            client.close()
        return said


class Cluster:
    """Nodes that are one cache, whose `name` is in etcd. Sockets lie in a folder with a short path."""

    def __init__(self, hosts: Hosts, etcd: Etcd, authority: Authority, folder: Path, sockets: Path) -> None:
        self.hosts, self.etcd, self._authority = hosts, etcd, authority
        self._folder, self._sockets, self.name = folder, sockets, f"tests-{secrets.token_hex(4)}"
        self.nodes: dict[str, Node] = {}
        self.user = ""
        """The user of etcd that nodes are, if any."""
        self._token = folder / "token"
        folder.mkdir()
        self._token.write_text(secrets.token_hex(16))
        self._token.chmod(0o600)

    def add(
        self,
        name: str,
        *options: str,
        listen: str | None = None,
        token: Path | None = None,
        **environment: str,
    ) -> Node:
        """Starts a node on the host of its name."""
        command = self.command(name, *options, listen=listen, token=token)
        socket = self._sockets / f"{name}.sock"
        self.nodes[name] = Node(name, self._folder / name, socket, command, environment)
        return self.nodes[name]

    def sockets(self, count: int, *options: str) -> list[Path]:
        """Starts so many nodes, and waits until they know each other; their sockets."""
        nodes = [self.add(f"n{number + 1}", *options) for number in range(count)]
        self.until_whole()
        return [node.socket for node in nodes]

    def command(
        self, name: str, *options: str, listen: str | None = None, token: Path | None = None
    ) -> list[str]:
        """What starts a node."""
        certificate, key = self.identity(name)
        command = [
            *(sys.executable, "-m", "hotset", "serve", "--cluster", self.address),
            *("--node", name, "--listen", listen or f"{self.hosts.address(name, NODES)}:{PORT}"),
            *("--peer-certificate", str(certificate), "--peer-key", str(key)),
            *("--peer-authority", str(self._authority.certificate)),
            *("--peer-token-file", str(token or self._token)),
        ]
        return self.hosts.within(name, [*command, *options])

    @property
    def address(self) -> str:
        """The cluster, as `--cluster` takes it."""
        hosts = self.etcd.address(self.name)
        return hosts.replace("://", f"://{self.user}@") if self.user else hosts

    def identity(self, name: str) -> tuple[Path, Path]:
        """The certificate of a host, and its key."""
        return self._authority.sign(name, [self.hosts.address(name, NODES)])

    def members(self) -> dict[str, Any]:
        """The nodes by their keys in etcd, read past Hotset."""
        prefix = f"/hotset/{self.name}/nodes/"
        return {key.removeprefix(prefix): json.loads(said) for key, said in self.etcd.values(prefix).items()}

    def until_whole(self) -> None:
        """Waits until every node is a member, and knows that all others are."""
        until(f"the cluster is whole: {sorted(self.nodes)}", self.is_whole)

    def is_whole(self) -> bool:
        """Whether every node is a member."""
        return sorted(self.members()) == sorted(self.nodes)

    def home(self, job: str) -> str:
        """The node that makes the plans of the job whose name begins so; nothing while there is none."""
        found = self.etcd.values(f"/hotset/{self.name}/jobs/{job}")
        return next(iter(found.values()), "")

    def counted(self, counter: str) -> dict[str, int]:
        """A counter of all jobs, by node."""
        return {
            name: sum(int(job["total"][counter]) for job in node.stats()["jobs"])
            for name, node in self.nodes.items()
        }

    def close(self) -> None:
        """Ends all nodes."""
        for node in self.nodes.values():
            node.terminate()
        for node in self.nodes.values():
            node.stop()
