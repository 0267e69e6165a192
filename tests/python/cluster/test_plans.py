"""Ranks on several hosts get the plans that ranks on one host get."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import NODES
from nodes import Cluster
from processes import Server
from trainings import PROGRAM, Training, numbered_files, wrong

SAMPLES, EPOCHS, WORLD, BLOCK = 4096, 5, 4, 256
STRATEGIES = ("iis", "hybrid", "pads")
ARGUMENTS = (
    "--strategies",
    ",".join(STRATEGIES),
    "--epochs",
    str(EPOCHS),
    "--batch",
    str(BLOCK),
    "--in-turn",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """Small files, and the digest of each."""
    place = tmp_path_factory.mktemp("small") / "tree"
    return place, numbered_files(place, SAMPLES, 64)


def blocks(parts: list[list[int]]) -> list[Counter[int]]:
    """What all ranks serve together, block by block."""
    longest = max(map(len, parts))
    return [
        Counter(number for part in parts for number in part[first : first + BLOCK])
        for first in range(0, longest, BLOCK)
    ]


def test_torchrun_over_two_hosts_plans_as_one_host_does_block_by_block(
    cluster: Cluster,
    serve: Callable[..., Server],
    trainings: Callable[..., Training],
    tree: tuple[Path, dict[int, str]],
    tmp_path: Path,
) -> None:
    place, _ = tree
    nodes = [cluster.add(name) for name in ("n1", "n2")]
    cluster.until_whole()
    out = tmp_path / "torchrun"
    out.mkdir()
    address = cluster.hosts.address("n1", NODES)
    launchers = []
    for number, node in enumerate(nodes):
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)),
            *("--nproc-per-node", "2", "--master-addr", address, "--master-port", "29500"),
            *(str(PROGRAM), str(out), str(place), *ARGUMENTS),
        ]
        environment = {
            **os.environ,
            "HOTSET_SERVER": str(node.socket),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(PROGRAM.parents[1]),
        }
        with (tmp_path / f"torchrun-{number}.log").open("wb") as log:
            launchers.append(
                subprocess.Popen(
                    cluster.hosts.within(node.name, command), env=environment, stdout=log, stderr=log
                )
            )
    one = trainings(tmp_path / "one", place, [serve().socket] * WORLD, *ARGUMENTS)
    one.ended()
    for number, launcher in enumerate(launchers):
        assert launcher.wait(120) == 0, (tmp_path / f"torchrun-{number}.log").read_text()[-4000:]
    many = Training.of(out, WORLD)
    for strategy in STRATEGIES:
        for epoch in range(EPOCHS):
            parts, expected = many.served(epoch, strategy), one.served(epoch, strategy)
            assert [len(part) for part in parts] == [len(part) for part in expected], (strategy, epoch)
            # `pads` ranks losses within mini-batches, which location changes: its later plans are its own.
            if strategy != "pads" or epoch == 0:
                assert blocks(parts) == blocks(expected), (strategy, epoch)


def test_without_locality_plans_are_those_of_one_host_rank_for_rank(
    cluster: Cluster,
    serve: Callable[..., Server],
    trainings: Callable[..., Training],
    tree: tuple[Path, dict[int, str]],
    tmp_path: Path,
) -> None:
    place, _ = tree
    nodes = [cluster.add(name, "--locality", "off") for name in ("n1", "n2")]
    cluster.until_whole()
    servers = [node.socket for node in nodes for _ in range(2)]
    many = trainings(tmp_path / "many", place, servers, *ARGUMENTS)
    one = trainings(tmp_path / "one", place, [serve().socket] * WORLD, *ARGUMENTS)
    many.ended()
    one.ended()
    for strategy in STRATEGIES:
        for epoch in range(EPOCHS):
            assert many.served(epoch, strategy) == one.served(epoch, strategy), (strategy, epoch)


def test_a_run_goes_on_on_another_number_of_hosts(
    cluster: Cluster,
    trainings: Callable[..., Training],
    tree: tuple[Path, dict[int, str]],
    tmp_path: Path,
) -> None:
    place, _ = tree
    nodes = [cluster.add(name) for name in ("n1", "n2", "n3")]
    cluster.until_whole()
    arguments = ("--strategies", "iis", "--batch", "64", "--resume", "--job", "resumed")
    two = trainings(tmp_path / "two", place, [node.socket for node in nodes[:2]], *arguments, "--epochs", "3")
    two.ended()
    three = trainings(tmp_path / "three", place, [node.socket for node in nodes], *arguments, "--epochs", "5")
    three.ended()
    assert next(line["epoch"] for line in three.lines(0) if "epoch" in line) == 3
    for epoch in (3, 4):
        parts = three.served(epoch, "iis")
        assert len({len(part) for part in parts}) == 1
        together = [number for part in parts for number in part]
        assert len(set(together)) == len(together)
        # What two hosts have learned is known to three: samples are left out from the first epoch on.
        assert len(together) < 0.8 * SAMPLES


@pytest.mark.parametrize("strategy, before, after", [("uniform", 2, 3), ("uniform", 3, 2), ("iis", 3, 2)])
def test_an_epoch_goes_on_on_another_number_of_hosts(
    strategy: str,
    before: int,
    after: int,
    cluster: Cluster,
    trainings: Callable[..., Training],
    tree: tuple[Path, dict[int, str]],
    tmp_path: Path,
) -> None:
    place, truth = tree
    nodes = [cluster.add(name) for name in ("n1", "n2", "n3")]
    cluster.until_whole()
    epoch, batch = 1, 48
    # As many steps as make slots that both numbers of ranks divide.
    arguments = ("--strategies", strategy, "--batch", str(batch), "--epochs", "3", "--job", "cut")
    steps = 24 // before
    servers = [node.socket for node in nodes]
    stop = ("--stop", f"{epoch}:{steps}")
    stopped = trainings(tmp_path / "stopped", place, servers[:before], *arguments, *stop)
    stopped.ended()
    load = ("--load", str(stopped.out))
    rest = trainings(tmp_path / "rest", place, servers[:after], *arguments, *load)
    rest.ended()
    assert not wrong([*stopped.steps(), *rest.steps()], truth)
    first, last = (training.served(epoch, strategy) for training in (stopped, rest))
    assert [len(part) for part in first] == [steps * batch] * before
    assert len({len(part) for part in last}) == 1
    together = [number for part in (*first, *last) for number in part]
    assert len(set(together)) == len(together), "no sample twice"
    # A remainder that is smaller than the number of ranks is left out.
    assert strategy != "uniform" or len(together) > SAMPLES - after
    assert strategy != "iis" or len(together) < 0.8 * SAMPLES, "what was learned is known"
    assert sum(len(part) for part in rest.served(epoch + 1, strategy)) > 0
