"""What a strategy is told and asked beside losses: the part of `Sampler` that most trainings never call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _core
from .epoch import Epoch
from .errors import InvalidError
from .losses import quoted
from .reevaluation import Loss, losses_of
from .reports import Reports
from .source import Plan, Planning
from .wrapped import Planned

_AT_ONCE = 1 << 20
"""Losses told in one call."""


def judged_irreducible(
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


class Informed:
    """The importance of samples, their re-evaluation, and the accuracy of the model."""

    strategy: str
    _strategy: _core.Strategy
    epoch: int
    _what: Planned
    _source: Planning
    _reports: Reports
    _running: Epoch | None
    _planned: tuple[int, int, Plan] | None
    _fresh: bool
    _irreducible: torch.Tensor | None

    def importance(self) -> torch.Tensor:
        """The last score of every sample, by its number; NaN where none was reported. For the curious."""
        self._reports.flush()
        return torch.tensor(self._source.scores(), dtype=torch.float32)

    def reevaluate(
        self,
        model: torch.nn.Module,
        loss: Loss,
        *,
        transform: Callable[[Any], Any] | None = None,
        batch_size: int = 256,
        device: torch.device | str | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> int:
        """Tells the strategy what the samples it asks for cost the model now; returns how many they were.

        Call it between `set_epoch` and the epoch, before `len(loader)`, which needs the plan. Strategies that
        need no such thing ask for nothing.

        - `model`: put into evaluation mode for it; its mode and all random states are then as before.
        - `loss`: the loss of each sample, from the model's output and the labels.
        - `transform`: instead of the dataset's, to leave out what is random in it.
        - `device`: that of the model's parameters where it is not given.
        - `collate`: makes inputs and labels of a list of samples; torch's own without it.
        """
        if self._strategy.reevaluates and self._is_planned():
            raise InvalidError(
                f"`reevaluate` came after epoch {self.epoch} was planned, too late to change it; call "
                "`sampler.set_epoch(epoch)`, then `sampler.reevaluate(...)`, and only then `len(loader)`, as "
                "progress bars do, or the loop"
            )
        self._reports.flush()
        ids = list(self._source.reevaluation(self.epoch))
        if ids:
            losses: list[float] = []
            for first, dataset in self._what.datasets:
                losses += losses_of(
                    dataset,
                    self.epoch,
                    [number - first for number in ids if first <= number < first + len(dataset)],
                    model,
                    loss,
                    transform=transform,
                    batch_size=batch_size,
                    device=device,
                    collate=collate,
                )
            if self._irreducible is not None:
                losses = (torch.tensor(losses, dtype=torch.float64) - self._irreducible[ids]).tolist()
            for first in range(0, len(ids), _AT_ONCE):
                last = first + _AT_ONCE
                self._source.reevaluated(self.epoch, ids[first:last], losses[first:last], last >= len(ids))
        return len(ids)

    def _is_planned(self) -> bool:
        """Whether this process has the plan of the epoch that is next, or under way."""
        if self._planned is not None and self._planned[0] == self.epoch:
            return True
        # Whoever begins an epoch over, or goes on from a state, may have trained it before: its plan stays.
        return self._running is not None and self._running.number == self.epoch and not self._fresh

    def end_epoch(self, *, accuracy: float) -> None:
        """Says how good the model was after this epoch, to strategies that want to know (`pads`)."""
        if not math.isfinite(accuracy):
            raise InvalidError(
                f"`accuracy={accuracy}`: a number that grows as the model gets better is needed"
            )
        if self._running is None:
            raise InvalidError("`end_epoch` came before the first epoch")
        self._reports.flush()
        self._source.end_epoch(self._running.number, accuracy)

    def importance_state(self) -> dict[str, Any]:
        """All that the strategy knows of the samples, at most 24 bytes of each: once for a checkpoint.

        A server that is restarted keeps it by itself; this is for going on with another.
        """
        self._reports.flush()
        catalog = self._source.catalog
        return {
            "dataset": catalog.dataset,
            "samples": catalog.samples,
            "strategy": self.strategy,
            "importance": self._source.importance(),
        }

    def load_importance_state(self, state: dict[str, Any]) -> None:
        """Takes over what `importance_state` gave, before the first epoch."""
        self._judge_dataset(state)
        if state["strategy"] != self.strategy:
            raise InvalidError(
                f"the state was saved with `strategy={state['strategy']!r}`, this sampler has "
                f"`strategy={self.strategy!r}`; make the sampler with the same, or start afresh"
            )
        self._source.restore(state["importance"])

    def _judge_dataset(self, state: dict[str, Any]) -> None:
        catalog = self._source.catalog
        if state["dataset"] != catalog.dataset:
            raise InvalidError(
                f"the state is of the dataset `{state['dataset']}` of {state['samples']} samples, this "
                f"sampler's is `{catalog.dataset}` of {catalog.samples}; open the files it was saved with, "
                "or start afresh"
            )
