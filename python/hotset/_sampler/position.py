"""Where a rank stands in a run: in which epoch, and at which place of its plan the next iteration starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .. import _core
from .._client.source import Plan
from ..errors import InvalidError
from .epoch import marked


@dataclass(frozen=True)
class Position:
    """A place in an epoch; at its beginning unless the run resumes."""

    epoch: int = 0
    start: int = 0
    """Where the next iteration starts, in slots of all ranks."""
    length: int = 0
    """Slots of each rank in the plan that `start` is a place of; 0 where they are not known."""
    world: int = 1
    """The ranks of that plan."""
    mark: tuple[int, int] | None = None
    """One of these ranks, and the mark of its part."""
    order: dict[str, Any] | None = None
    """What tells the order of the user's own that the plan was made of, if it was."""
    begun: bool = False
    """Whether the epoch has been iterated since it was set."""
    loaded: bool = False
    """Whether a state set it and no iteration has resumed from it yet."""
    replays: bool = False
    """Whether the next iteration hands out the slots before `start` too, for loaders that skip them."""

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Position:
        """What `Sampler.state_dict` saved."""
        epoch, position, world = int(state["epoch"]), int(state["position"]), int(state["world"])
        if not 0 <= epoch <= _core.LAST_EPOCH or position < 0 or world < 1:
            raise InvalidError(
                f"the state is damaged: epoch `{epoch}`, position `{position}`, world `{world}`"
            )
        mark = state.get("mark")
        return cls(
            epoch,
            position * world,
            int(state.get("length", 0)),
            world,
            None if mark is None else (int(mark[0]), int(mark[1])),
            order=state.get("order"),
            loaded=True,
        )

    def at_epoch(self, epoch: int) -> Position:
        """The beginning of `epoch`; this place if it is one of that epoch."""
        return replace(self, begun=False) if epoch == self.epoch else Position(epoch)

    def iterated(self) -> Position:
        """What is left of it once its iteration has begun."""
        return Position(self.epoch, begun=True)

    def is_of(self, plan: Plan, rank: int, world: int) -> bool:
        """Whether it is a place of `plan`, the part of `rank`, as far as can be told."""
        if self.mark is not None and (self.mark[0], self.world) == (rank, world):
            return self.mark[1] == marked(plan)
        # Ranks get equal parts: another number of them makes a difference of less than that number.
        apart = abs(len(plan) * world - self.length * self.world)
        return self.length == 0 or apart < max(world, self.world)
