"""What a strategy exchanges with the trainer besides losses: importance, re-evaluation, accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import _core
from ..errors import InvalidError
from .losses import quoted
from .reevaluation import Evaluation
from .target import Target

_AT_ONCE = 1 << 20
"""Losses told in one call."""


def check_irreducible(
    given: torch.Tensor | Sequence[float] | None, strategy: _core.Strategy, samples: int
) -> torch.Tensor | None:
    """`irreducible=` as numbers by id, or an error that says what is wrong with it."""
    if given is None:
        return None
    if not strategy.takes_irreducible:
        those = [each.name for each in _core.strategies() if each.takes_irreducible]
        raise InvalidError(
            f"`irreducible=` is for the strategy {quoted(those)}, not for `{strategy.name}`: leave it out"
        )
    losses = torch.as_tensor(given, dtype=torch.float64, device="cpu").detach()
    if losses.shape != (samples,) or not bool(torch.isfinite(losses).all()):
        raise InvalidError(
            f"`irreducible=` has shape {tuple(losses.shape)}: give one finite loss for each of the "
            f"{samples} samples"
        )
    return losses


class Feedback:
    """What passes between a trainer and the strategy of its job."""

    def __init__(self, target: Target, strategy: _core.Strategy, irreducible: torch.Tensor | None) -> None:
        self._target, self._source = target, target.source
        self._strategy = strategy
        self._irreducible = irreducible

    def scores(self) -> torch.Tensor:
        """The last score of every sample; NaN where none was reported."""
        return torch.tensor(self._source.scores(), dtype=torch.float32)

    def reevaluate(self, epoch: int, evaluation: Evaluation) -> int:
        """Tells the losses of the samples that the plan of `epoch` needs; returns how many they were."""
        ids = list(self._source.reevaluation(epoch))
        if not ids:
            return 0
        losses: list[float] = []
        for first, dataset in self._target.datasets:
            own = [number - first for number in ids if first <= number < first + len(dataset)]
            losses += evaluation.losses(dataset, epoch, own)
        if self._irreducible is not None:
            losses = (torch.tensor(losses, dtype=torch.float64) - self._irreducible[ids]).tolist()
        for first in range(0, len(ids), _AT_ONCE):
            last = first + _AT_ONCE
            self._source.reevaluated(epoch, ids[first:last], losses[first:last], last >= len(ids))
        return len(ids)

    def end_epoch(self, epoch: int, accuracy: float) -> None:
        """Tells how good the model was after `epoch`."""
        if not math.isfinite(accuracy):
            raise InvalidError(
                f"`accuracy={accuracy}`: a number that grows as the model gets better is needed"
            )
        self._source.end_epoch(epoch, accuracy)

    def state(self) -> dict[str, Any]:
        """All that the strategy knows of the samples, with what it knows them of."""
        catalog = self._source.catalog
        return {
            "dataset": catalog.dataset,
            "samples": catalog.samples,
            "strategy": self._strategy.name,
            "importance": self._source.importance(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over what `state` gave."""
        self.check_dataset(state)
        if state["strategy"] != self._strategy.name:
            raise InvalidError(
                f"the state was saved with `strategy={state['strategy']!r}`, this sampler has "
                f"`strategy={self._strategy.name!r}`; make the sampler with the same, or start afresh"
            )
        self._source.restore(state["importance"])

    def check_dataset(self, state: dict[str, Any]) -> None:
        """Refuses a state of another dataset."""
        catalog = self._source.catalog
        if state["dataset"] != catalog.dataset:
            raise InvalidError(
                f"the state is of the dataset `{state['dataset']}` of {state['samples']} samples, this "
                f"sampler's is `{catalog.dataset}` of {catalog.samples}; open the files it was saved with, "
                "or start afresh"
            )
