"""`Sampler`: what is trained in which order, planned by the server before each epoch.

It is a `DistributedSampler`, so that frameworks know to call `set_epoch` and leave it alone. What it yields
are the ids of this rank's plan with the epoch above them, so that a request tells its epoch even from workers
that outlive epochs. `update` sends the losses back, from which the next plans are made.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from . import _core
from .dataset import Dataset
from .errors import InvalidError
from .source import SAMPLE_MASK, Plan, Scheme

_log = logging.getLogger(__name__)

_BLOCK = 4096
"""Slots taken from the plan at a time, so that an epoch of millions starts at once."""

# Of strategies that look at losses none exists yet; the names are those that never will.
_NEEDS_NO_LOSSES = ("uniform", "quiver", "carousel")


class Sampler(DistributedSampler[int]):
    """Plans the epochs of `dataset`.

    - `strategy`: what is trained; `hotset strategies` lists them.
    - `policy`: what stays in the cache; the strategy's own without it.
    - `num_replicas`, `rank`: found at the first iteration where not given, from `torch.distributed` or from
      the launcher's `RANK` and `WORLD_SIZE`.
    - `prefetch`: read along the plan before samples are asked for.
    - `pad`: repeat some samples so that ranks get equal numbers, as `DistributedSampler` does, instead of
      leaving a remainder to the next epoch.
    """

    def __init__(
        self,
        dataset: Dataset,
        strategy: str = "uniform",
        *,
        policy: str | None = None,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        prefetch: bool = True,
        pad: bool = False,
    ) -> None:
        # Not DistributedSampler's own, which asks for a process group now; its attributes are all here.
        if not isinstance(dataset, Dataset):
            raise InvalidError(
                f"`Sampler` plans a `hotset.Dataset` or an `ImageFolder`, not a `{type(dataset).__name__}`"
            )
        _known("strategy", strategy, [name for name, *_ in _core.strategies()])
        if policy is not None:
            _known("policy", policy, [name for name, _ in _core.policies()])
        if not 0 <= seed < 1 << 64:
            raise InvalidError(f"`seed={seed}`: a whole number from 0 to 2^64 - 1 is needed")
        self.dataset = dataset
        self.strategy = strategy
        self.policy = policy
        self.seed = seed
        self.pad = pad
        self.shuffle = True
        self.drop_last = not pad
        self.epoch = 0
        self._fresh = True
        """Whether `epoch` was set and not yet iterated."""
        self._warned = False
        self._plan: Plan | None = None
        self._start = 0
        """Where the next iteration starts: beyond 0 only in a run that resumes."""
        self._position = 0
        self._reported = 0
        self._source = dataset.source
        self._source.attach(Scheme(strategy, policy or "", seed, prefetch, pad), rank, num_replicas)
        # Until the first iteration, as good as can be told now.
        self.rank, self.num_replicas = self._source.ranks()

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Samples this rank trains in this epoch."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Samples all ranks train in this epoch."""
        return len(self) * self.num_replicas

    def __len__(self) -> int:
        if self._plan is not None:
            return len(self._plan)
        samples, (_, world) = self._source.catalog.samples, self._source.ranks()
        return math.ceil(samples / world) if self.pad else samples // world

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is. Call it before each."""
        if not 0 <= epoch < 1 << 22:
            raise InvalidError(f"epoch `{epoch}`: a whole number from 0 to 2^22 - 1 is needed")
        if epoch != self.epoch:
            self._start = self._position = 0
        self.epoch = epoch
        self._fresh = True

    def __iter__(self) -> Iterator[int]:
        if not self._fresh:
            self.set_epoch(self.epoch + 1)
            if not self._warned:
                self._warned = True
                _log.warning(
                    "`set_epoch` was not called before an epoch; counting epochs from here: %d", self.epoch
                )
        self._fresh = False
        self.rank, self.num_replicas = self._source.ranks()
        start, self._start = self._start, 0
        plan = self._source.plan(self.epoch, start)
        self._plan, self._position, self._reported = plan, start, start
        return self._slots(plan, start)

    def _slots(self, plan: Plan, start: int) -> Iterator[int]:
        for first in range(start, len(plan), _BLOCK):
            for slot, index in enumerate(plan.block(first, first + _BLOCK), first):
                if self._plan is plan:
                    self._position = slot + 1
                yield index

    def total_steps(self, epochs: int, batch_size: int, drop_last: bool = False) -> int:
        """Batches of this rank in `epochs` epochs, for schedulers that want to know."""
        if epochs < 0 or batch_size < 1:
            raise InvalidError(f"`epochs={epochs}`, `batch_size={batch_size}`: both count things")
        steps = len(self) // batch_size if drop_last else math.ceil(len(self) / batch_size)
        return epochs * steps

    def update(self, ids: torch.Tensor | Sequence[int], loss: torch.Tensor) -> torch.Tensor:
        """Reports one non-negative loss for each sample of a batch; `loss`, to go on with.

        `ids` are those that `with_ids=True` gives.
        """
        numbers = [
            int(number) & SAMPLE_MASK for number in (ids.tolist() if isinstance(ids, torch.Tensor) else ids)
        ]
        _judge_loss(loss, len(numbers))
        if self._plan is None:
            raise InvalidError(
                "`update` came before the first epoch; iterate over the sampler's loader first"
            )
        if numbers:
            self._reported += len(numbers)
            scores: list[float] = loss.detach().float().cpu().tolist()
            self._source.report(self.epoch, self._reported, numbers, scores)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Where this rank stands: the slots handed out so far, those in a loader's queues included."""
        return {"epoch": self.epoch, "position": self._position, "seed": self.seed, "strategy": self.strategy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from `state` at the next iteration."""
        for name, own in (("seed", self.seed), ("strategy", self.strategy)):
            if state[name] != own:
                raise InvalidError(
                    f"the state was saved with `{name}={state[name]!r}`, this sampler has `{name}={own!r}`; "
                    "make the sampler with the same, or start afresh"
                )
        self.set_epoch(int(state["epoch"]))
        self._start = self._position = int(state["position"])


def _known(what: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise InvalidError(f"there is no {what} `{name}`; known: {_quoted(known)}")


def _judge_loss(loss: torch.Tensor, samples: int) -> None:
    if not isinstance(loss, torch.Tensor):
        raise InvalidError(
            f"`loss` is a `{type(loss).__name__}`; the tensor of the losses of a batch is needed"
        )
    if loss.dim() == 0:
        raise InvalidError(
            "`loss` is one number for the whole batch; one for each sample is needed: "
            'write `loss = F.cross_entropy(output, labels, reduction="none")`, and call `.mean().backward()` '
            f"on what `update` returns. Strategies that need no losses: {_quoted(_no_losses())}"
        )
    if loss.dim() > 1:
        raise InvalidError(
            f"`loss` has the shape {tuple(loss.shape)}; one number for each sample is needed: "
            "write `sampler.update(ids, loss.flatten(1).mean(1))`"
        )
    if len(loss) != samples:
        raise InvalidError(f"`loss` has {len(loss)} values for {samples} ids")


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _no_losses() -> list[str]:
    return [name for name, *_ in _core.strategies() if name in _NEEDS_NO_LOSSES]
