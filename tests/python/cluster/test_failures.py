"""What goes wrong on a cluster: batches come with the right bytes and in time, and the cluster heals.

Two trainings of three ranks, one at each node, go on through each failure: `uniform`, of which every epoch is
to serve every sample once, and `iis`, whose plans come from losses. What was measured is shown at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hosts import ETCD, NODES
from members import Etcd
from nodes import Cluster, Node
from processes import until
from trainings import Training, numbered_files, wrong

SAMPLES = 1200
LEASE = 6.0
"""Seconds after which a node that says nothing is a member no more."""
LONGEST = 30.0
"""Seconds that a batch, or a report, may be waited for, whatever fails."""


@dataclass
class Stage:
    """Three nodes, and two trainings over them that are under way."""

    cluster: Cluster
    etcd: Etcd
    uniform: Training
    iis: Training
    home: str = ""
    """The node that plans `iis`."""
    follower: str = ""
    """A node that does not."""

    @property
    def trainings(self) -> tuple[Training, Training]:
        return self.uniform, self.iis

    def node(self, name: str) -> Node:
        return self.cluster.nodes[name]

    def until_without(self, name: str) -> None:
        """Waits until a node is a member no more."""
        until(f"{name} is out", lambda: name not in self.cluster.members(), 4 * LEASE)

    def until_next_epochs(self, *trainings: Training) -> None:
        """Waits until trainings have trained an epoch that they begin from now on."""
        for training, epoch in [(training, training.epoch()) for training in trainings]:
            training.until_epoch(epoch + 2)


def outlast_leases() -> None:
    """Lets as much time pass as leases would run out in; nothing tells of it from outside."""
    time.sleep(1.5 * LEASE)


def kill(role: str) -> Callable[[Stage], None]:
    """Kills a node and starts it again once it is missed."""

    def strike(stage: Stage) -> None:
        name = getattr(stage, role)
        stage.node(name).kill()
        stage.until_without(name)
        stage.node(name).start()

    return strike


def restart(role: str) -> Callable[[Stage], None]:
    """Kills a node and starts it again before it is missed."""

    def strike(stage: Stage) -> None:
        stage.node(getattr(stage, role)).kill()
        stage.node(getattr(stage, role)).start()

    return strike


def cut(role: str, *switches: str) -> Callable[[Stage], None]:
    """Cuts a node off, for longer than it is missed for."""

    def strike(stage: Stage) -> None:
        name = getattr(stage, role)
        for switch in switches:
            stage.cluster.hosts.pull(name, switch)
        if ETCD in switches:
            stage.until_without(name)
        else:
            outlast_leases()
        for switch in switches:
            stage.cluster.hosts.plug(name, switch)

    return strike


def freeze(role: str) -> Callable[[Stage], None]:
    """Stops a node until it is missed, so that it comes back with a view that is old."""

    def strike(stage: Stage) -> None:
        name = getattr(stage, role)
        stage.node(name).freeze()
        stage.until_without(name)
        stage.node(name).thaw()

    return strike


def kill_leader(stage: Stage) -> None:
    """Kills the member of etcd that leads, and starts it again once epochs have passed."""
    stage.etcd.kill(stage.etcd.leader())
    stage.until_next_epochs(*stage.trainings)
    stage.etcd.mend()


def kill_etcd(stage: Stage) -> None:
    """Kills all of etcd, for longer than leases last."""
    stage.etcd.stop()
    outlast_leases()
    stage.etcd.mend()


def slow_down(stage: Stage) -> None:
    """Lets a node send next to nothing to others."""
    stage.cluster.hosts.slow(stage.follower, NODES, "64kbit")
    stage.until_next_epochs(stage.uniform)
    stage.cluster.hosts.unslow(stage.follower, NODES)


FAILURES: dict[str, Callable[[Stage], None]] = {
    "a node is killed": kill("follower"),
    "a node is killed and is back at once": restart("follower"),
    "the home is killed": kill("home"),
    "etcd's leader is killed": kill_leader,
    "all of etcd is killed": kill_etcd,
    "a node is cut off from nodes": cut("follower", NODES),
    "a node is cut off from etcd": cut("follower", ETCD),
    "a node is cut off from both": cut("follower", NODES, ETCD),
    "the home is cut off from etcd": cut("home", ETCD),
    "the home is cut off from both": cut("home", NODES, ETCD),
    "a node comes back with an old view": freeze("follower"),
    "a node is slow": slow_down,
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """Files, and the digest of each."""
    place = tmp_path_factory.mktemp("failures") / "tree"
    return place, numbered_files(place, SAMPLES, 2000)


@pytest.fixture
def stage(
    cluster: Cluster,
    etcd: Etcd,
    trainings: Callable[..., Training],
    tree: tuple[Path, dict[int, str]],
    tmp_path: Path,
) -> Stage:
    """Both trainings, with caches that are full and peers that have been asked."""
    nodes = [cluster.add(name) for name in ("n1", "n2", "n3")]
    cluster.until_whole()
    sockets = [node.socket for node in nodes]
    arguments = ("--pause", "0.02", "--wait", "60")
    uniform = trainings(
        tmp_path / "a", tree[0], sockets, *arguments, "--strategies", "uniform", "--policy", "minio"
    )
    iis = trainings(tmp_path / "b", tree[0], sockets, *arguments, "--strategies", "iis")
    made = Stage(cluster, etcd, uniform, iis)
    for training in made.trainings:
        training.until_epoch(2)
    made.home = cluster.home("b-iis")
    made.follower = next(node.name for node in nodes if node.name != made.home)
    return made


@pytest.mark.parametrize("what", FAILURES)
def test_batches_come_in_time_with_the_right_bytes_and_the_cluster_heals(
    stage: Stage, tree: tuple[Path, dict[int, str]], measured: Callable[..., None], what: str
) -> None:
    truth = tree[1]
    began = time.monotonic()
    FAILURES[what](stage)
    mended = time.monotonic()
    before = stage.cluster.counted("hit_peer")

    def healed() -> bool:
        for training in stage.trainings:
            training.check()
        now = stage.cluster.counted("hit_peer")
        return stage.cluster.is_whole() and all(now[name] > before[name] for name in now)

    until("all nodes are members, and serve others", healed, 40)
    healed_after = time.monotonic() - mended
    stage.until_next_epochs(*stage.trainings)
    for training in stage.trainings:
        (training.out / "stop").touch()
    for training in stage.trainings:
        training.ended()
    for training in stage.trainings:
        assert wrong(training.steps(), truth) == []
    for epoch in range(stage.uniform.epoch() + 1):
        parts = stage.uniform.served(epoch)
        assert sorted(number for part in parts for number in part) == list(range(SAMPLES)), f"epoch {epoch}"
    for epoch in range(stage.iis.epoch() + 1):
        parts = stage.iis.served(epoch, "iis")
        together = [number for part in parts for number in part]
        assert len({len(part) for part in parts}) == 1 and len(set(together)) == len(together)
    waits = [training.longest_wait(began) for training in stage.trainings]
    measured(
        failure=what,
        longest_wait_uniform=waits[0],
        longest_wait_iis=waits[1],
        recovery_reads=sum(stage.cluster.counted("recovery_reads").values()),
        down_for=mended - began,
        healed_after=healed_after,
    )
    assert max(waits) <= LONGEST
