"""Nodes that are amiss (wrong bytes, no token, another time of day), and an etcd that lets in few."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotset
import pytest
from certificates import Authority
from hosts import NODES, Hosts
from members import Etcd
from nodes import PORT, Cluster
from processes import until
from readers import Reader, Readers
from trainings import numbered_files

SAMPLES = 1200
RELAY, CLOCK = (Path(__file__).with_name(name) for name in ("lying_relay.py", "other_clock.c"))
ASKED: dict[str, Any] = {"strategy": "iis", "policy": "icache", "seed": 3, "cache": "20%", "prefetch": True}
APART = ("--locality", "off")
"""So that ranks need most samples of other nodes."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """Files, and the digest of each."""
    place = tmp_path_factory.mktemp("hostile") / "tree"
    return place, numbered_files(place, SAMPLES, 2000)


def test_wrong_bytes_of_a_node_are_noticed_and_read_from_storage_instead(
    cluster: Cluster, tree: tuple[Path, dict[int, str]], measured: Callable[..., None], tmp_path: Path
) -> None:
    place, truth = tree
    honest = tmp_path / "honest"
    address = cluster.hosts.address("n2", NODES)
    listen, behind = f"{address}:{PORT}", f"{address}:{PORT + 1}"
    nodes = [cluster.add("n1", *APART), cluster.add("n3", *APART)]
    nodes.insert(1, cluster.add("n2", *APART, "--advertise", listen, listen=behind))
    command = [sys.executable, str(RELAY), listen, behind, *map(str, cluster.identity("n2")), str(honest)]
    with subprocess.Popen(cluster.hosts.within("n2", command), stdout=subprocess.PIPE) as relay:
        try:
            assert relay.stdout is not None and relay.stdout.readline() == b"listening\n"
            cluster.until_whole()
            readers = Readers([node.socket for node in nodes], place, "lied-to", **ASKED)
            for epoch in range(3):
                readers.epoch(epoch, truth)
            lied = sum(cluster.counted("recovery_reads").values())
            assert lied > 0
            honest.touch()
            epoch = 3

            def believed() -> bool:
                nonlocal epoch
                readers.epoch(epoch, truth)
                epoch += 1
                return readers.counted(epoch - 1, "recovery_reads") == [0]

            until("it is believed again", believed)
            measured(failure="a node sends wrong bytes", recovery_reads=lied)
            readers.close()
        finally:
            relay.kill()


def test_a_node_without_the_token_gets_nothing_and_harms_nobody(
    cluster: Cluster, tree: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    place, truth = tree
    wrong = tmp_path / "wrong"
    wrong.write_text(secrets.token_hex(16))
    wrong.chmod(0o600)
    nodes = [cluster.add(name, *APART) for name in ("n1", "n2")]
    stranger = cluster.add("n3", *APART, token=wrong)
    cluster.until_whole()
    readers = Readers([node.socket for node in nodes], place, "trusted", **ASKED)
    for epoch in range(3):
        readers.epoch(epoch, truth)
    assert readers.counted(2, "hit_peer")[0] > 0
    with pytest.raises(hotset.Error, match="token"):
        Reader(stranger.socket, place, "trusted", ASKED).begin(3)
    readers.close()


def test_a_time_of_day_that_differs_changes_nothing(
    cluster: Cluster, tree: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    place, truth = tree
    library = tmp_path / "other_clock.so"
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK)]
    subprocess.run(command, check=True)
    nodes = [cluster.add("n1", *APART)]
    for name, ahead in (("n2", 3600), ("n3", 12 * 3600)):
        nodes.append(cluster.add(name, *APART, LD_PRELOAD=str(library), OTHER_CLOCK=str(ahead)))
    cluster.until_whole()
    readers = Readers([node.socket for node in nodes], place, "clocks", **ASKED)
    for epoch in range(4):
        readers.epoch(epoch, truth)
        assert readers.counted(epoch, "recovery_reads") == [0]
    assert readers.counted(3, "hit_peer")[0] > 0
    assert sorted(cluster.members()) == ["n1", "n2", "n3"]
    readers.close()


def test_a_cluster_lives_in_an_etcd_with_tls_and_users_and_is_let_in_nowhere_else(
    hosts: Hosts, authority: Authority, tmp_path: Path, runtime: Path, tree: tuple[Path, dict[int, str]]
) -> None:
    place, truth = tree
    guarded = Etcd(hosts, tmp_path / "guarded", ("guarded",), authority)
    cluster = Cluster(hosts, guarded, authority, tmp_path / "nodes", runtime.parent)
    try:
        for command in (
            ("user", "add", "root:top"),
            ("user", "grant-role", "root", "root"),
            ("user", "add", "ada:secret"),
            ("role", "add", "cache"),
            ("role", "grant-permission", "cache", "--prefix=true", "readwrite", f"/hotset/{cluster.name}/"),
            ("user", "grant-role", "ada", "cache"),
            ("auth", "enable"),
        ):
            guarded.control(*command)
        guarded.password = "top"
        cluster.user = "ada"
        trusting = ("--etcd-authority", str(authority.certificate))
        nodes = [cluster.add(name, *trusting, HOTSET_ETCD_PASSWORD="secret") for name in ("n1", "n2")]
        cluster.until_whole()
        readers = Readers([node.socket for node in nodes], place, "guarded", **ASKED)
        readers.epoch(0, truth)
        readers.close()
        for options, password in ((trusting, "guessed"), ((), "secret")):
            done = subprocess.run(
                cluster.command("n3", *options),
                env={**os.environ, "HOTSET_ETCD_PASSWORD": password},
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode != 0 and "etcd" in done.stderr
            assert password not in done.stderr
    finally:
        cluster.close()
        guarded.stop()
