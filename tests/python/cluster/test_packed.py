"""Packages of a job over several nodes: made, read and removed by the nodes that own what is in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from nodes import Cluster
from processes import Server, until
from readers import Readers
from trainings import numbered_files
from trees import tar_shards

SAMPLES, EPOCHS = 8000, 6
ASKED: dict[str, Any] = {"strategy": "iis", "policy": "icache", "seed": 3, "prefetch": True}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """Small files of equal size, and the digest of each."""
    place = tmp_path_factory.mktemp("small") / "tree"
    return place, numbered_files(place, SAMPLES, 1024)


def packages(place: Path) -> set[str]:
    """The packages that lie at a place."""
    return {path.name for path in place.rglob("*.hotset")}


def test_packages_are_made_by_all_nodes_and_read_as_by_one_cache_of_the_sum(
    cluster: Cluster,
    serve: Callable[..., Server],
    tree: tuple[Path, dict[int, str]],
    tmp_path: Path,
    measured: Callable[..., None],
) -> None:
    place, truth = tree
    nodes = cluster.sockets(3)
    written = {name: tmp_path / name for name in ("many", "one")}
    sized: dict[str, Any] = {"package_bytes": 100_000, **ASKED}
    many = Readers(nodes, place, "many", cache="10%", packages=str(written["many"]), **sized)
    server = [serve().socket] * 3
    one = Readers(server, place, "one", cache="30%", packages=str(written["one"]), **sized)
    for epoch in range(EPOCHS):
        parts, expected = many.epoch(epoch, truth), one.epoch(epoch, truth)
        assert len(set(chain(*parts))) == len(list(chain(*parts))), "no sample is served twice"
        # What was not reported before the cut is trained for certain, and that is a matter of time.
        assert sum(map(len, parts)) == pytest.approx(sum(map(len, expected)), rel=0.02)
    names = ("served", "hit", "packed", "single", "storage_reads", "storage_requests", "packages_lost")
    for epoch in range(EPOCHS):
        of_one = one.counted(epoch, *names)
        served, hit, packed, single, reads, requests, lost = many.counted(epoch, *names)
        assert served == hit + packed + single
        (recovery,) = many.counted(epoch, "recovery_reads")
        assert lost == 0 and recovery <= 50, "next to nothing is read that no plan asks for"
        measured(epoch=epoch, packed=packed, reads=reads, reads_of_one=of_one[4] // 3, requests=requests)
    later = [many.counted(epoch, "packed", "storage_requests") for epoch in range(3, EPOCHS)]
    assert all(packed > 2000 and requests < 2000 for packed, requests in later), later
    counted = [rank.stats()["epochs"] for rank in many.ranks]
    writing = [sum(int(epoch["pack_bytes_written"]) for epoch in epochs) for epochs in counted]
    assert all(writing), f"every node writes some: {writing}"
    there = packages(written["many"])
    assert len(there) > 30
    many.close()
    one.close()
    # The name of the job was made up, so nothing can go on with them.
    until("all nodes have removed them", lambda: not packages(written["many"]))


def test_a_node_that_is_killed_takes_no_package_with_it(
    cluster: Cluster, tree: tuple[Path, dict[int, str]], tmp_path: Path, measured: Callable[..., None]
) -> None:
    place, truth = tree
    nodes = cluster.sockets(3)
    written = tmp_path / "packages"
    # The third has no rank, and owns a third of everything.
    readers = Readers(nodes[:2], place, "kill", cache="10%", packages=str(written), **ASKED)
    for epoch in range(4):
        readers.epoch(epoch, truth)
    assert cluster.nodes["n3"].stats()["jobs"][0]["total"]["package_reads"] > 0
    cluster.nodes["n3"].kill()
    cluster.nodes.pop("n3")
    before = time.monotonic()
    readers.epoch(4, truth)
    waited = time.monotonic() - before
    until("the node is missed", lambda: sorted(cluster.members()) == ["n1", "n2"])
    for epoch in range(5, 9):
        readers.epoch(epoch, truth)
    packed, failed, lost = readers.counted(8, "packed", "node_failed", "packages_lost")
    measured(seconds=waited, packed=packed, lost=lost)
    assert packed > 500 and failed == 0
    assert lost <= 5, "those that it had not written are known by now"
    readers.close()


def test_runs_of_shards_are_read_whole_by_their_owners(
    cluster: Cluster, tmp_path: Path, measured: Callable[..., None]
) -> None:
    place = tmp_path / "shards"
    truth = {number: image for number, (_, image, _) in tar_shards(place, shards=8, samples=200).items()}
    nodes = cluster.sockets(3)
    readers = Readers(nodes, place, "runs", "shards", ("jpg",), cache="20%", package_bytes=65_536, **ASKED)
    for epoch in range(4):
        readers.epoch(epoch, truth)
    packed, single, requests, lost = readers.counted(3, "packed", "single", "package_reads", "packages_lost")
    measured(packed=packed, single=single, package_reads=requests)
    assert packed > 0 and requests > 0 and lost == 0
    readers.close()
