"""Nodes that drain: what they owned is others'."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nodes import Cluster
from processes import until
from readers import Readers
from trainings import numbered_files

SAMPLES = 1200
ASKED: dict[str, Any] = {"strategy": "iis", "policy": "icache", "seed": 3, "cache": "20%", "prefetch": True}


def nodes_command(cluster: Cluster, *arguments: str) -> list[dict[str, Any]]:
    """What `hotset nodes` says on a host of the cluster."""
    command = [sys.executable, "-m", "hotset", "nodes", "--cluster", cluster.address, "--json", *arguments]
    done = subprocess.run(
        cluster.hosts.within("n1", command), capture_output=True, text=True, check=True, timeout=60
    )
    said: list[dict[str, Any]] = json.loads(done.stdout)
    return said


def test_a_node_that_drains_keeps_nothing_of_later_plans_until_it_takes_part_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    truth = numbered_files(tmp_path / "tree", SAMPLES, 1000)
    nodes = [cluster.add(name) for name in ("n1", "n2", "n3")]
    cluster.until_whole()
    readers = Readers([node.socket for node in nodes], tmp_path / "tree", "draining", **ASKED)
    epoch = 0

    def kept() -> list[int]:
        nonlocal epoch
        readers.epoch(epoch, truth)
        epoch += 1
        return [int(rank.stats()["resident_samples"]) for rank in readers.ranks]

    for _ in range(3):
        before = kept()
    assert all(count > 0 for count in before)
    home = cluster.home("draining")
    number, drained = next((at, node.name) for at, node in enumerate(nodes) if node.name != home)
    said = nodes_command(cluster, "--drain", drained)
    assert [(node["name"], node["draining"]) for node in said] == [
        (node.name, node.name == drained) for node in nodes
    ]
    assert [node["name"] for node in said if "draining" in node["jobs"]] == [home]
    until("it keeps nothing", lambda: kept()[number] == 0)
    nodes_command(cluster, "--undrain", drained)
    until("it keeps its part again", lambda: kept()[number] > 0)
    readers.close()
