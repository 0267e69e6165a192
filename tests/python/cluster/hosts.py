"""Hosts of a cluster: network namespaces of this machine, joined by two switches.

Nodes are on both switches, members of etcd on one, so that a node can be cut off from other nodes, from
etcd or from both. A switch is a bridge in a namespace of its own, so nothing of it is seen outside. A leg
that is pulled stays up and leads nowhere: packets are lost and nothing is refused, as when a network is
parted.

Names hold the id of this process. What a process has left that was killed is removed by the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

NODES, ETCD = "nodes", "etcd"
"""The two switches, and so the interfaces of a host that are on them."""

_NETWORKS = {NODES: "10.99.1", ETCD: "10.99.2"}
_NAMESPACES = Path("/run/netns")
_HUB = "hub"
_SHAPE = ("tbf", "burst", "16kb", "latency", "2s")


def why_not() -> str:
    """Why namespaces cannot be made here; nothing where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root (a container's, with CAP_SYS_ADMIN and CAP_NET_ADMIN, will do)"
    for command in ("etcd", "etcdctl", "ip", "tc", "openssl"):
        if shutil.which(command) is None:
            return f"`{command}` is missing: `make etcd` installs it, for root on Debian"
    name = f"{_namespace(_HUB)}-tried"
    tries = (
        ["ip", "netns", "add", name],
        ["ip", "-n", name, "link", "add", "switch", "type", "bridge"],
        ["ip", "-n", name, "link", "add", "leg", "type", "veth", "peer", "name", "end"],
        ["tc", "-n", name, "qdisc", "replace", "dev", "leg", "root", *_SHAPE, "rate", "64kbit"],
    )
    try:
        for tried in tries:
            done = subprocess.run(tried, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"networks of hosts cannot be made: `{' '.join(tried)}`: {done.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return ""


class Hosts:
    """Some hosts, which are removed when this is closed."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._pulled: set[tuple[str, str]] = set()
        self._slowed: set[tuple[str, str]] = set()
        _sweep()
        self._make(_HUB)
        for switch in _NETWORKS:
            self._ip(_HUB, "link", "add", switch, "type", "bridge")
            self._ip(_HUB, "link", "set", switch, "up")

    def add(self, name: str, *switches: str) -> None:
        """A host with a leg on each of the switches."""
        number = self._numbers[name] = len(self._numbers) + 1
        self._make(name)
        for switch in switches:
            leg = self._leg(name, switch)
            peer = ("peer", "name", switch, "netns", _namespace(name))
            self._ip(_HUB, "link", "add", leg, "type", "veth", *peer)
            self._ip(name, "address", "add", f"{_NETWORKS[switch]}.{number}/24", "dev", switch)
            self._ip(name, "link", "set", switch, "up")
            self._ip(_HUB, "link", "set", leg, "master", switch, "up")

    def address(self, name: str, switch: str) -> str:
        """Where a host is reached from the others on a switch."""
        return f"{_NETWORKS[switch]}.{self._numbers[name]}"

    def pull(self, name: str, switch: str) -> None:
        """Cuts a host off from those on a switch: what it sends and what is sent to it is lost."""
        self._ip(_HUB, "link", "set", self._leg(name, switch), "nomaster")
        self._pulled.add((name, switch))

    def plug(self, name: str, switch: str) -> None:
        """Joins it to them again."""
        self._ip(_HUB, "link", "set", self._leg(name, switch), "master", switch)
        self._pulled.discard((name, switch))

    def slow(self, name: str, switch: str, rate: str) -> None:
        """Lets a host send no more than a rate over a switch, such as `2mbit`."""
        self._run(
            "tc", "-n", _namespace(name), "qdisc", "replace", "dev", switch, "root", *_SHAPE, "rate", rate
        )
        self._slowed.add((name, switch))

    def unslow(self, name: str, switch: str) -> None:
        """Lets it send as fast as it can again."""
        self._run("tc", "-n", _namespace(name), "qdisc", "delete", "dev", switch, "root")
        self._slowed.discard((name, switch))

    def restore(self) -> None:
        """Undoes all that was done to hosts."""
        for pulled in list(self._pulled):
            self.plug(*pulled)
        for slowed in list(self._slowed):
            self.unslow(*slowed)

    def within(self, name: str, command: Sequence[str]) -> list[str]:
        """The command that runs another on a host. It becomes that other, so its process has the same id."""
        return ["ip", "netns", "exec", _namespace(name), *command]

    def close(self) -> None:
        """Removes all hosts and switches. Processes on them must have ended."""
        for name in (*self._numbers, _HUB):
            if (_NAMESPACES / _namespace(name)).exists():
                self._run("ip", "netns", "delete", _namespace(name))
        self._numbers.clear()

    def _leg(self, name: str, switch: str) -> str:
        """The other end of a host's leg, at the switch."""
        return f"{switch}-{self._numbers[name]}"

    def _make(self, name: str) -> None:
        self._run("ip", "netns", "add", _namespace(name))
        self._ip(name, "link", "set", "lo", "up")

    def _ip(self, host: str, *command: str) -> None:
        self._run("ip", "-n", _namespace(host), *command)

    def _run(self, *command: str) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise AssertionError(f"`{command[0]}` is missing: `make etcd` installs it") from None
        assert done.returncode == 0, f"`{' '.join(command)}`: {done.stderr.strip()}"


def _namespace(name: str) -> str:
    return f"hotset-{os.getpid()}-{name}"


def _sweep() -> None:
    """Removes what processes have left that are gone, and ends what still runs there."""
    for left in _NAMESPACES.glob("hotset-*"):
        named = re.fullmatch(r"hotset-(\d+)-\w+", left.name)
        if named is None or Path(f"/proc/{named[1]}").exists():
            continue
        within = subprocess.run(
            ["ip", "netns", "pids", left.name], capture_output=True, text=True, check=False
        )
        for pid in within.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        # Another process of the tests may have been faster.
        subprocess.run(["ip", "netns", "delete", left.name], capture_output=True, check=False)
