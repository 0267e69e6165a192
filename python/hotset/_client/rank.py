"""Which of how many ranks this process trains as.

Asked at the first iteration, not when objects are made: many programs make their data before they join a
process group. In order: what the user gave, `torch.distributed` if it is initialised (it stays so in forked
workers), what a parent found before it pickled the dataset to a spawned worker, `RANK` and `WORLD_SIZE`, else
one rank of one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from ..errors import InvalidError
from .settings import Settings


@dataclass(frozen=True)
class Ranks:
    """What is known about rank and world so far."""

    rank: int | None = None
    world: int | None = None
    found: tuple[int, int] | None = None
    """What `torch.distributed` said in the process that pickled this."""

    def resolve(self) -> tuple[int, int]:
        """The rank of this process, and how many there are."""
        if self.rank is not None and self.world is not None:
            return _check_rank(self.rank, self.world, "`rank=` and `num_replicas=`")
        rank, world, whence = _surroundings(self.found)
        return _check_rank(
            rank if self.rank is None else self.rank, world if self.world is None else self.world, whence
        )

    def settled(self) -> Ranks:
        """The same, carrying along what only this process can ask."""
        return replace(self, found=_process_group() or self.found)


def _surroundings(found: tuple[int, int] | None) -> tuple[int, int, str]:
    group = _process_group() or found
    if group is not None:
        return *group, "torch.distributed"
    settings = Settings.read()
    if settings.rank is None and settings.world is None:
        return 0, 1, "the defaults"
    return settings.rank or 0, 1 if settings.world is None else settings.world, "RANK and WORLD_SIZE"


def _process_group() -> tuple[int, int] | None:
    # A process that never imported torch.distributed is in no group; importing it costs a second.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _check_rank(rank: int, world: int, whence: str) -> tuple[int, int]:
    if not 0 <= rank < world:
        raise InvalidError(f"rank `{rank}` of `{world}`, from {whence}: a rank is 0 to {max(world - 1, 0)}")
    return rank, world
