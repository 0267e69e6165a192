"""Many ranks, one server: who gets what, and what happens to the others when one is late or dies."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hotset
import pytest
from hotset import _core
from processes import free_port, naming, until
from trees import equal_files, planned

RANKED = Path(__file__).with_name("ranked.py")

DEADLINE = 300.0
"""Seconds within which the ranks that are left must have gone on or ended; nothing here comes near it."""


class Launch:
    """A launch of `ranked.py` by torchrun."""

    def __init__(self, out: Path, world: int, *arguments: str | Path, threads: int = 1) -> None:
        self.out, self.world = out, world
        out.mkdir()
        self._log = out / "launch.log"
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world)),
            *("--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--no-python"),
            *(sys.executable, str(RANKED), str(out), *map(str, arguments)),
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            )

    def said(self, rank: int) -> list[dict[str, Any]]:
        """The lines of a rank so far."""
        path = self.out / f"{rank}.out"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def of(self, rank: int, place: Path, epoch: int, strategy: str = "uniform") -> list[dict[str, Any]]:
        """The lines of one epoch so far."""
        wanted = {"place": place.name, "epoch": epoch, "strategy": strategy}
        return [line for line in self.said(rank) if wanted.items() <= line.items()]

    def ids(self, rank: int, place: Path, epoch: int, strategy: str = "uniform") -> list[int]:
        """What a rank was given of an epoch so far."""
        return [number for line in self.of(rank, place, epoch, strategy) for number in line.get("ids", ())]

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return int(self.said(rank)[0]["pid"])

    def ended(self) -> int:
        """Waits until all are gone; the exit code of the launch."""
        code = self.process.wait(DEADLINE * 2)
        until("no rank is left", lambda: not naming(str(self.out)), DEADLINE)
        return code

    def ended_well(self) -> None:
        """Waits until all ended as they should."""
        assert self.ended() == 0, self._log.read_text()[-4000:]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_share_a_server_and_train_every_sample_once(tmp_path: Path, world: int) -> None:
    places = [equal_files(tmp_path / f"tree-{samples}", samples, 50) for samples in (101, 4, 18)]
    launch = Launch(tmp_path / "out", world, *places)
    launch.ended_well()
    servers = {line["server"] for rank in range(world) for line in launch.said(rank) if "server" in line}
    assert len(servers) == 1
    for place, samples in zip(places, (101, 4, 18), strict=True):
        left_out: set[int] = set()
        for epoch in range(3):
            parts = [launch.ids(rank, place, epoch) for rank in range(world)]
            together = [number for part in parts for number in part]
            assert {len(part) for part in parts} == {samples // world}, "equal steps"
            assert len(set(together)) == len(together), "no sample twice"
            assert left_out <= set(together), "what an epoch left out is in the next"
            left_out = set(range(samples)) - set(together)
            steps = math.ceil(samples // world / 4)
            for rank in range(world):
                said = [line["length"] for line in launch.of(rank, place, epoch) if "length" in line]
                assert said == [steps]
        if world == 1:
            assert launch.ids(0, place, 0) == planned(samples, 0)


REPEATING = {"pads", "batchloss", "carousel", "quiver"}
"""Strategies that may serve a sample twice in an epoch."""


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_make_equal_steps_with_every_strategy(tmp_path: Path, world: int) -> None:
    samples, epochs = 101, 4
    strategies = [each.name for each in _core.strategies() if not each.takes_order]
    place = equal_files(tmp_path / "tree", samples, 50)
    # Ranks share collectives: with unequal steps they would hang.
    launch = Launch(
        tmp_path / "out", world, place, "--strategies", ",".join(strategies), "--epochs", str(epochs)
    )
    launch.ended_well()
    for strategy in strategies:
        for epoch in range(epochs):
            parts = [launch.ids(rank, place, epoch, strategy) for rank in range(world)]
            assert len({len(part) for part in parts}) == 1, (strategy, epoch)
            together = [number for part in parts for number in part]
            if strategy not in REPEATING:
                assert len(set(together)) == len(together) > 0, (strategy, epoch)
            for rank in range(world):
                (said,) = [line for line in launch.of(rank, place, epoch, strategy) if "length" in line]
                assert said["length"] == math.ceil(len(parts[rank]) / 4), (strategy, epoch)


@pytest.mark.parametrize("length, expected", [("auto", 33), ("25", 25)])
def test_epochs_of_one_length_are_so_for_every_rank(tmp_path: Path, length: str, expected: int) -> None:
    samples, world, strategies = 101, 3, ["uniform", "iis", "hybrid", "infobatch"]
    place = equal_files(tmp_path / "tree", samples, 50)
    asked = ("--strategies", ",".join(strategies), "--epochs", "4", "--length", length)
    launch = Launch(tmp_path / "out", world, place, *asked)
    launch.ended_well()
    for strategy in strategies:
        parts = [[launch.ids(rank, place, epoch, strategy) for rank in range(world)] for epoch in range(4)]
        assert {len(part) for epoch in parts for part in epoch} == {expected}, strategy
    # Ranks take turns in one stream of permutations, which goes on over the edges of epochs.
    parts = [[launch.ids(rank, place, epoch, "uniform") for rank in range(world)] for epoch in range(4)]
    stream = [number for epoch in parts for turn in zip(*epoch, strict=True) for number in turn]
    for first in range(0, len(stream) - samples + 1, samples):
        assert sorted(stream[first : first + samples]) == list(range(samples))


def test_a_rank_that_dies_ends_the_launch_and_leaves_nothing(tmp_path: Path, runtime: Path) -> None:
    place = equal_files(tmp_path / "tree", 400, 50)
    launch = Launch(tmp_path / "out", 2, place, "--epochs", "50", "--pause", "0.02")
    until("both train", lambda: all(len(launch.said(rank)) > 5 for rank in range(2)), DEADLINE)
    os.kill(launch.pid(1), signal.SIGKILL)
    assert launch.ended() != 0, "torchrun says that a rank died"
    until("the server is gone", lambda: not naming(str(runtime)), DEADLINE)


@pytest.mark.parametrize("strategy", ["uniform", "iis"])
def test_a_rank_that_dies_does_not_stop_the_others(tmp_path: Path, strategy: str) -> None:
    # `iis` would plan from the losses of both: it waits for them, 10 s after the first asks, and no longer.
    place = equal_files(tmp_path / "tree", 101, 50)
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541"}
    out = tmp_path / "out"
    out.mkdir()
    # The one that dies would go on for long.
    ranks = [
        _alone(out, rank, environment, place, "--strategies", strategy, "--pause", "0.05", "--epochs", epochs)
        for rank, epochs in enumerate(("3", "1000"))
    ]
    until("both train", lambda: all(len(_lines(out, rank)) > 5 for rank in range(2)), DEADLINE)
    ranks[1].kill()
    ranks[1].wait()
    assert ranks[0].wait(DEADLINE) == 0
    said = _lines(out, 0)
    for epoch in range(3):
        ids = [number for line in said if line.get("epoch") == epoch for number in line.get("ids", ())]
        assert 25 < len(ids) == len(set(ids)) <= 50, "the part of the dead rank is nobody's"


def test_a_late_rank_keeps_nobody_waiting_and_gets_its_own_part(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 100, 50)
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29542"}
    out = tmp_path / "out"
    out.mkdir()
    ranks = [
        _alone(out, rank, environment, place, "--epochs", "1", "--late", "1", "--pause", "0.01")
        for rank in range(2)
    ]
    for rank in ranks:
        assert rank.wait(DEADLINE) == 0
    parts = [{number for line in _lines(out, rank) for number in line.get("ids", ())} for rank in range(2)]
    assert len(parts[0]) == len(parts[1]) == 50 and parts[0] | parts[1] == set(range(100))


@pytest.mark.parametrize("pad", [False, True])
def test_fewer_samples_than_ranks_are_refused_unless_padded(tmp_path: Path, pad: bool) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", 3, 50))
    sampler = hotset.Sampler(train, num_replicas=4, rank=0, pad=pad)
    if pad:
        assert len(list(sampler)) == 1
        return
    with pytest.raises(hotset.InvalidError, match=r"3 samples.*4 ranks.*pad=True"):
        list(sampler)


def _alone(
    out: Path, rank: int, environment: dict[str, str], *arguments: str | Path
) -> subprocess.Popen[bytes]:
    """A rank without torchrun or a process group: nobody ends it when another dies."""
    return subprocess.Popen(
        [sys.executable, str(RANKED), str(out), *map(str, arguments), "--alone"],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
    )


def _lines(out: Path, rank: int) -> list[dict[str, Any]]:
    path = out / f"{rank}.out"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
