"""Nodes of 20 % each are one cache of the sum: nothing is held twice, and storage is read as by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
from nodes import Cluster
from processes import Server
from readers import Readers
from trainings import numbered_files

SAMPLES, FEW, EPOCHS = 8000, 1000, 4
PAIRS = [("uniform", "lru"), ("uniform", "minio"), ("iis", "icache")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """Files of equal size, and the digest of each."""
    place = tmp_path_factory.mktemp("equal") / "tree"
    return place, numbered_files(place, SAMPLES, 512)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """So few files that each can be asked for by itself."""
    place = tmp_path_factory.mktemp("few") / "tree"
    return place, numbered_files(place, FEW, 512)


@pytest.mark.parametrize("strategy, policy", PAIRS)
@pytest.mark.parametrize("count", [2, 4])
def test_storage_is_read_as_by_one_cache_of_the_sum_and_hits_are_local(
    cluster: Cluster,
    serve: Callable[..., Server],
    tree: tuple[Path, dict[int, str]],
    measured: Callable[..., None],
    count: int,
    strategy: str,
    policy: str,
) -> None:
    place, truth = tree
    asked: dict[str, Any] = {"strategy": strategy, "policy": policy, "seed": 3, "prefetch": True}
    many = Readers(cluster.sockets(count), place, "many", cache="20%", **asked)
    one = Readers([serve().socket] * count, place, "one", cache=f"{20 * count}%", **asked)
    for epoch in range(EPOCHS):
        parts, expected = many.epoch(epoch, truth), one.epoch(epoch, truth)
        assert sorted(chain(*parts)) == sorted(chain(*expected))
    read: list[tuple[int, int]] = []
    for epoch in range(EPOCHS):
        names = ("storage_reads", "served", "hit", "hit_peer", "recovery_reads")
        reads, served, hit, hit_peer, recovery = many.counted(epoch, *names)
        # Ranks of one server share its counters.
        reads_of_one, served_of_one = (each // count for each in one.counted(epoch, *names[:2]))
        assert (served, recovery) == (served_of_one, 0)
        # What `icache` keeps follows from losses, which come to nodes and to one server in another order.
        assert reads == pytest.approx(reads_of_one, rel=0.05)
        read.append((reads, reads_of_one))
        assert hit_peer <= 0.05 * hit
        measured(epoch=epoch, reads=reads, reads_of_one=reads_of_one, hits=hit, of_them_local=hit - hit_peer)
    together, alone = (sum(each) for each in zip(*read[1:], strict=True))
    assert together == pytest.approx(alone, rel=0.02)
    many.close()
    one.close()


@pytest.mark.parametrize("strategy, policy", PAIRS)
@pytest.mark.parametrize("placement", ["hash", "directory"])
@pytest.mark.parametrize("count", [2, 4])
def test_no_sample_is_held_by_two_nodes(
    cluster: Cluster, few: tuple[Path, dict[int, str]], count: int, placement: str, strategy: str, policy: str
) -> None:
    place, truth = few
    # Without prefetch nothing is in memory but what is kept.
    asked: dict[str, Any] = {"strategy": strategy, "policy": policy, "seed": 3, "prefetch": False}
    sockets = cluster.sockets(count, "--placement", placement)
    readers = Readers(sockets, place, "held", cache="20%", **asked)
    for epoch in range(3):
        readers.epoch(epoch, truth)
        held = [rank.residents() for rank in readers.ranks]
        assert all(not one & other for one, other in combinations(held, 2))
        assert [len(each) for each in held] == [rank.stats()["resident_samples"] for rank in readers.ranks]
        assert 0.9 * 0.2 * count * FEW < sum(map(len, held)) <= 0.2 * count * FEW
    readers.close()
