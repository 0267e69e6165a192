"""Hosts, an etcd and clusters for the tests. Hosts and etcd are made once for each process of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from hosts import ETCD, NODES, Hosts, why_not
from members import Etcd
from nodes import Cluster
from processes import Starter
from trainings import Training

NAMES = ("n1", "n2", "n3", "n4")
"""Hosts that nodes may run on."""


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Hosts for nodes; members of etcd add their own."""
    if reason := why_not():
        pytest.skip(reason)
    made = Hosts()
    try:
        for name in NAMES:
            made.add(name, NODES, ETCD)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def members(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """Three members of etcd, which a test may leave in any state."""
    made = Etcd(hosts, tmp_path_factory.mktemp("members") / "etcd")
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def etcd(members: Etcd) -> Etcd:
    """An etcd that is whole as the test begins."""
    members.mend()
    return members


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """What signs the certificates of nodes."""
    return Authority(tmp_path_factory.mktemp("authority") / "tls")


@pytest.fixture
def cluster(
    hosts: Hosts, etcd: Etcd, authority: Authority, tmp_path: Path, runtime: Path
) -> Iterator[Cluster]:
    """A cluster without nodes yet; hosts are whole again after it."""
    made = Cluster(hosts, etcd, authority, tmp_path / "nodes", runtime.parent)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Has figures shown when all tests have run."""

    def show(**figures: object) -> None:
        shown = {name: f"{each:.2f}" if isinstance(each, float) else each for name, each in figures.items()}
        record_property("measured", shown)

    return show


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    """Starts ranks in the time of a fork."""
    made = Starter()
    yield made
    made.stop()


@pytest.fixture
def trainings(starter: Starter) -> Iterator[Callable[..., Training]]:
    """Starts trainings; what is left of them is killed after the test."""
    started: list[Training] = []

    def start(out: Path, place: Path, servers: list[Path], *arguments: str) -> Training:
        started.append(Training(starter, out, place, servers, *arguments))
        return started[-1]

    yield start
    for training in started:
        training.close()
