"""Trainings over the nodes of a cluster, and what came of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from processes import Started, Starter, until
from trees import content, digest

PROGRAM = Path(__file__).with_name("cluster_rank.py")


def numbered_files(place: Path, count: int, size: int) -> dict[int, str]:
    """`count` files of `size` bytes that begin with their number: the digest of each."""
    truth = {}
    for number in range(count):
        folder = place / f"{number // 256:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        data = number.to_bytes(4, "big") + content(f"{place.name}/{number}", size - 4)
        (folder / f"{number:06d}.bin").write_bytes(data)
        truth[number] = digest(data)
    return truth


class Training:
    """Ranks of one training, each at the server that it is given; killed when this is closed."""

    def __init__(
        self, starter: Starter, out: Path, place: Path, servers: Sequence[Path], *arguments: str
    ) -> None:
        self.out, self.world = out, len(servers)
        out.mkdir()
        self._ranks: list[Started] = []
        for rank, server in enumerate(servers):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(self.world)}
            environment["HOTSET_SERVER"] = str(server)
            errors = out / f"{rank}.err"
            command = [str(PROGRAM), str(out), str(place), *arguments]
            command += [] if "--job" in arguments else ["--job", out.name]
            self._ranks.append(starter.start(command, errors, environment))

    @classmethod
    def of(cls, out: Path, world: int) -> Training:
        """One that others have started, to be looked at."""
        found = cls.__new__(cls)
        found.out, found.world, found._ranks = out, world, []
        return found

    def stop(self) -> None:
        """Has it end with the epoch that it is in, and waits until it has ended well."""
        (self.out / "stop").touch()
        self.ended()

    def ended(self, seconds: float = 240.0) -> None:
        """Waits until all ranks have ended well. Fails as soon as one has not: the others wait for it."""
        until(f"all ranks end; see {self.out}", self._have_ended, seconds)

    def _have_ended(self) -> bool:
        for rank in [rank for rank in self._ranks if rank.has_ended()]:
            self._ranks.remove(rank)
            code, complaint = rank.wait()
            assert code == 0, f"{rank.errors}: {complaint[-4000:]}"
        return not self._ranks

    def close(self) -> None:
        """Kills what is left of it."""
        for rank in self._ranks:
            with suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)
        while self._ranks:
            self._ranks.pop().wait()

    def check(self) -> None:
        """Fails if a rank has ended with an error."""
        complaints = [rank.errors.read_text()[-2000:] for rank in self._ranks if rank.errors.exists()]
        assert not any("Traceback" in complaint for complaint in complaints), complaints

    def lines(self, rank: int) -> list[dict[str, Any]]:
        """What a rank has said so far."""
        path = self.out / f"{rank}.out"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def steps(self) -> list[dict[str, Any]]:
        """The batches of all ranks so far."""
        return [
            {**line, "rank": rank} for rank in range(self.world) for line in self.lines(rank) if "ids" in line
        ]

    def epoch(self) -> int:
        """The epoch that all ranks are in or behind; -1 before the first."""
        newest = [[line["epoch"] for line in self.lines(rank) if "ids" in line] for rank in range(self.world)]
        return min(max(epochs, default=-1) for epochs in newest)

    def until_epoch(self, epoch: int, seconds: float = 120.0) -> None:
        """Waits until every rank has had a batch of that epoch."""

        def there() -> bool:
            self.check()
            return self.epoch() >= epoch

        until(f"all ranks are in epoch {epoch}; see {self.out}", there, seconds)

    def served(self, epoch: int, strategy: str = "uniform") -> list[list[int]]:
        """The ids of an epoch, rank for rank."""
        parts: list[list[int]] = [[] for _ in range(self.world)]
        for step in self.steps():
            if (step["epoch"], step["strategy"]) == (epoch, strategy):
                parts[step["rank"]] += step["ids"]
        return parts

    def longest_wait(self, since: float = 0.0) -> float:
        """The longest that a rank waited for a batch, or to report one, that ended at `since` or later."""
        lines = [line for rank in range(self.world) for line in self.lines(rank)]
        return max(
            (line["waited"] for line in lines if "waited" in line and line["at"] >= since), default=0.0
        )


def wrong(steps: Iterable[Mapping[str, Any]], truth: Mapping[int, str]) -> list[int]:
    """The ids whose bytes were not those of their file."""
    return [
        number
        for step in steps
        for number, seen in zip(step["ids"], step["digests"], strict=True)
        if truth[number] != seen
    ]
