"""A real etcd, mostly of three members, each on a host of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from certificates import Authority
from hosts import ETCD, Hosts
from processes import until

MEMBERS = ("etcd1", "etcd2", "etcd3")
_CLIENT, _PEER = 2379, 2380


class Etcd:
    """The members, which are started when this is made. With an authority clients speak TLS with them."""

    def __init__(
        self,
        hosts: Hosts,
        folder: Path,
        names: Sequence[str] = MEMBERS,
        authority: Authority | None = None,
    ) -> None:
        self._hosts, self._folder, self._names, self._authority = hosts, folder, names, authority
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.password = ""
        """Of the user `root`, once there are users."""
        folder.mkdir()
        for member in names:
            hosts.add(member, ETCD)
        for member in names:
            self.start(member)
        self.until_whole()

    def endpoint(self, member: str) -> str:
        """Where clients reach a member."""
        return f"{self._hosts.address(member, ETCD)}:{_CLIENT}"

    def address(self, cluster: str) -> str:
        """A cluster in this etcd, as `--cluster` takes it."""
        return f"etcd://{','.join(map(self.endpoint, self._names))}/{cluster}"

    def start(self, member: str) -> None:
        """Starts a member, which goes on with what it had on disk."""
        client, peer = self._url(member, _CLIENT), self._url(member, _PEER)
        all_of_them = ",".join(f"{each}={self._url(each, _PEER)}" for each in self._names)
        command = [
            *("etcd", "--name", member, "--data-dir", str(self._folder / member)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", all_of_them, "--heartbeat-interval", "50", "--election-timeout", "500"),
        ]
        if self._authority:
            certificate, key = self._authority.sign(member, [self._hosts.address(member, ETCD)])
            command += ["--cert-file", str(certificate), "--key-file", str(key)]
        with (self._folder / f"{member}.log").open("ab") as log:
            self._processes[member] = subprocess.Popen(
                self._hosts.within(member, command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine},
            )

    def kill(self, member: str) -> None:
        """Ends a member as a crash does."""
        process = self._processes.pop(member)
        process.kill()
        process.wait()

    def mend(self) -> None:
        """Starts what was killed."""
        for member in self._names:
            if member not in self._processes:
                self.start(member)
        self.until_whole()

    def stop(self) -> None:
        """Ends all members."""
        for member in list(self._processes):
            self.kill(member)

    def until_whole(self) -> None:
        """Waits until every member answers and they agree who leads."""

        def whole() -> bool:
            statuses = self._statuses()
            return len(statuses) == len(self._names) and _agreed(statuses) is not None

        until(f"etcd is whole; see {self._folder}", whole)

    def leader(self, *, without: str = "") -> str:
        """The member that leads, once all that answer agree; one that is cut off is left out."""
        found: list[str] = []

        def agreed() -> bool:
            leader = _agreed({name: said for name, said in self._statuses().items() if name != without})
            found.extend([] if leader is None else [leader])
            return bool(found)

        until(f"a member leads; see {self._folder}", agreed)
        return found[0]

    def values(self, prefix: str) -> dict[str, str]:
        """Keys below a prefix, with what they hold: a line each."""
        lines = self.control("get", "--prefix", prefix).splitlines()
        return dict(zip(lines[::2], lines[1::2], strict=True))

    def put(self, key: str, value: str) -> None:
        """Writes a key."""
        self.control("put", key, value)

    def _statuses(self) -> dict[str, Any]:
        """What each member that answers says of itself."""
        found = {}
        for member in self._processes:
            with suppress(subprocess.CalledProcessError):
                (status,) = json.loads(self.control("endpoint", "status", "-w", "json", at=member))
                found[member] = status["Status"]
        return found

    def control(self, *command: str, at: str | None = None) -> str:
        """What `etcdctl` says to a command."""
        at = at or next(iter(self._processes))
        etcdctl = ["etcdctl", "--endpoints", self._url(at, _CLIENT), "--command-timeout", "1s", *command]
        etcdctl += ["--cacert", str(self._authority.certificate)] if self._authority else []
        etcdctl += ["--user", f"root:{self.password}"] if self.password else []
        done = subprocess.run(
            self._hosts.within(at, etcdctl),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        return done.stdout

    def _url(self, member: str, port: int) -> str:
        scheme = "https" if self._authority and port == _CLIENT else "http"
        return f"{scheme}://{self._hosts.address(member, ETCD)}:{port}"


def _agreed(statuses: dict[str, Any]) -> str | None:
    """The member that all who answer name as their leader, if it is one of them."""
    named = {status.get("leader", 0) for status in statuses.values()}
    leaders = [name for name, status in statuses.items() if named == {status["header"]["member_id"]}]
    return leaders[0] if leaders else None
