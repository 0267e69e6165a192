"""What a framework's checkpoint keeps of a sampler: its place, and what its strategy has learned.

The place is what `update` told. A loop that reports nothing is asked how many batches it has trained: what
the loader has drawn is ahead of it.
"""

from __future__ import annotations

from typing import Any

from .._sampler.batches import Batches
from .._sampler.sampler import Sampler


def save_sampler(sampler: Sampler, loader: Any, batches: int, last: bool) -> dict[str, Any]:
    """The sampler's state after `batches` of `loader` in this epoch, the `last` of it or not.

    Batches before the place that the epoch was begun at do not count.
    """
    state = sampler.state_dict()
    running = sampler.running
    if running is not None:
        trained = _trained(loader, running.start, batches)
        if trained is not None and not running.reported:
            state = sampler.state_dict(trained=min(trained, len(running)))
        # The loader may leave out an incomplete last batch, which the sampler does not know.
        state["left"] = state["left"] and not last
    if not sampler.follows_seed:
        state["learned"] = sampler.importance_state()
    return state


def load_sampler(sampler: Sampler, state: dict[str, Any]) -> None:
    """Goes on from `state`, with the next epoch if nothing was left of the one it was saved in."""
    learned = state.get("learned")
    # Past the server nothing is learned.
    if learned is not None and learned["importance"]:
        sampler.load_importance_state(learned)
    sampler.load_state_dict(state)
    if not state["left"]:
        sampler.set_epoch(int(state["epoch"]) + 1)


def draws_from(loader: Any, sampler: Sampler) -> bool:
    """Whether `loader` draws from `sampler`, by itself or through a sampler of batches."""
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    return sampler in (getattr(loader, "sampler", None), inner)


def _trained(loader: Any, start: int, count: int) -> int | None:
    """Slots trained after `count` batches of `loader` from slot `start` on, where its batches tell."""
    batches = getattr(loader, "batch_sampler", None)
    if batches is None:
        return None if loader is None else start + count
    if isinstance(batches, Batches):
        return batches.slots(start, count)
    size = getattr(batches, "batch_size", None)
    return start + count * size if isinstance(size, int) else None
