"""`Sampler`: what is trained in which order, planned by the server before each epoch.

It is a `DistributedSampler`, so that frameworks call `set_epoch` and otherwise leave it alone. It yields the
numbers of this rank's samples in plan order, marked with their epoch (`numbers`), so that a request carries
its epoch even from workers that outlive epochs. `update` sends the losses back, from which the next plans are
made.

An epoch begins when the first index is drawn (`slots`), counts as trained as far as losses were reported
(`epoch`), and losses leave without waiting for the GPU (`loss_reports`). `loader_checks` detects mistakes in
the loader.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import DistributedSampler

from .. import _core
from .._client.source import Plan, Scheme
from .._dataset.dataset import Dataset
from ..errors import InvalidError
from .batches import Batches
from .epoch import Epoch
from .feedback import Feedback, check_irreducible
from .given import PLANNED, OwnOrder, strategy_for
from .lengths import EpochLengths, check_length, check_same_length
from .loader_checks import check_accelerate, warn_of_trainer, warn_unasked
from .loss_reports import report_losses
from .losses import check_ids, check_loss
from .position import Position
from .reevaluation import Evaluation, Loss
from .reports import Reports
from .scheme import check_names, scheme_of
from .slots import Slots
from .target import target_of

_log = logging.getLogger(__name__)


class Sampler(DistributedSampler[int]):
    """Plans the epochs of `dataset`.

    - `dataset`: one of Hotset's, a `Subset` or `random_split` part of one, or a `ConcatDataset` of several.
    - `strategy`: what is trained; `hotset strategies` lists them. `settings`: the strategy's settings by
      name, such as `{"fraction": 0.7}`.
    - `ids`: an order of your own in place of a strategy's: a sampler of torch's or yours, a batch sampler
      (`batches`), or another iterable of ids. It is run through when an epoch begins, after its `set_epoch`
      if it has one, and gives the order of all ranks together, the same in each.
    - `shuffle`: with `False` every epoch is in the order of the dataset.
    - `policy`: what stays in the cache; by default the strategy's own. `policy_settings`: its settings.
    - `epochs`: how many epochs the run has, for strategies whose last epochs differ (`full_last`).
    - `irreducible`: for `hybrid`, each sample's loss under a model trained on other data, by id. It is
      subtracted from what `reevaluate` finds, so that samples no model learns are not hard (RHO-LOSS).
    - `packages`: where small samples are packed together, so that one request reads many: a directory, or a
      prefix of a store. By default runs of neighbours in tar shards serve as packages, and files have none;
      "off" reads every sample alone. If the dataset has no `job=`, packages are removed when the run ends.
      `package_size`: the minimum bytes of a package, by default 1 MiB or an eighth of the cache;
      `package_options`: like `storage_options`, and by default the dataset's own.
    - `num_replicas`, `rank`: by default found at the first iteration, from `torch.distributed` or from the
      launcher's `RANK` and `WORLD_SIZE`.
    - `prefetch`: read ahead along the plan.
    - `epoch_length`: how many samples each rank trains in every epoch; "auto" for its share of the dataset.
      Strategies that draw fewer continue with their next draw across epochs, so `len(loader)` never changes
      and schedules are exact. By default an epoch is as long as what is drawn for it.
    - `resume`: continue with what the newest run under the dataset's `job=` had learned. `sampler.epoch` is
      then the first epoch that it had not trained to its end; `set_epoch` may name an earlier one. Without
      it, and without a loaded state, every run starts afresh.
    - `pad`: repeat some samples so that ranks get equal numbers, as `DistributedSampler` does, instead of
      leaving the remainder to the next epoch.
    """

    def __init__(
        self,
        dataset: Dataset | TorchDataset[Any],
        strategy: str = "uniform",
        *,
        ids: Iterable[Any] | None = None,
        shuffle: bool = True,
        policy: str | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        policy_settings: Mapping[str, object] | None = None,
        epochs: int | None = None,
        irreducible: torch.Tensor | Sequence[float] | None = None,
        packages: str | os.PathLike[str] | None = None,
        package_size: str | int | None = None,
        package_options: Mapping[str, str | float] | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        prefetch: bool = True,
        pad: bool = False,
        epoch_length: int | str | None = None,
        resume: bool = False,
    ) -> None:
        # Not DistributedSampler's own, which asks for a process group now; its attributes are all here.
        check_names(strategy, policy, seed)
        if isinstance(ids, Sampler | Batches):
            raise InvalidError(PLANNED)
        strategy = strategy_for(strategy, ids, shuffle)
        self.dataset = dataset
        self.strategy = strategy
        self.policy = policy
        self.seed = seed
        self.pad = pad
        self.epoch_length = check_length(epoch_length)
        self.drop_last = not pad
        self._position = Position()
        """Where the next iteration starts, or the epoch under way."""
        self._asked = 0
        """The last argument of `set_epoch`."""
        self._warned = False
        self._planned: tuple[int, int, Plan] | None = None
        """The plan of an epoch that has not begun, with its number and start."""
        self._running: Epoch | None = None
        self._reports = Reports()
        # Held as long as this is: the part, if it is one, of the dataset that the loader asks.
        self._target = target_of(dataset)
        self._source = self._target.source
        self._mark = self._target.mark(dataset)
        self._own = None if ids is None else self._target.given(ids, pad)
        self._looked = False
        """Whether the requests of the loader have been checked."""
        scheme = scheme_of(
            strategy=strategy,
            policy=policy or "",
            seed=seed,
            prefetch=prefetch,
            pad=pad,
            settings=settings,
            policy_settings=policy_settings,
            epochs=epochs,
            packages=packages,
            package_size=package_size,
            package_options=self._source.options if package_options is None else package_options,
        )
        self._strategy = _core.Strategy(strategy, list(scheme.settings["strategy_settings"].items()), epochs)
        self.shuffle = self._strategy.shuffles
        self._lengths = EpochLengths(self._source, self._target.sizes, self._strategy, pad)
        irreducible = check_irreducible(irreducible, self._strategy, self._source.catalog.samples)
        self._feedback = Feedback(self._target, self._strategy, irreducible)
        self._given = rank, num_replicas, resume
        self._attach(scheme)
        self._position = Position(self._source.resumed or 0)
        # Until the first iteration, as good as can be told now.
        self.rank, self.num_replicas = self._source.ranks()

    def _attach(self, scheme: Scheme) -> None:
        """Plans by `scheme` from now on, and by `epoch_length`, which the server takes as a setting."""
        if isinstance(self.epoch_length, int) and len(self._target.sizes) > 1:
            raise InvalidError(
                f"`epoch_length={self.epoch_length}`: each dataset of a `ConcatDataset` is planned by "
                'itself, and takes "auto" alone'
            )
        if self.epoch_length is not None and self._own is not None:
            raise InvalidError(
                f"`epoch_length={self.epoch_length!r}` with `ids=`: an order of your own says by itself how "
                "long an epoch is; leave it out"
            )
        settings = dict(scheme.settings["strategy_settings"])
        settings.pop("epoch_length", None)
        if self.epoch_length is not None:
            settings["epoch_length"] = str(self.epoch_length)
        self._scheme = replace(scheme, settings={**scheme.settings, "strategy_settings": settings})
        self._source.attach(self._scheme, *self._given)

    def set_epoch_length(self, length: int | str | None) -> None:
        """Sets `epoch_length`. Only before the first epoch."""
        length = check_length(length)
        if length == self.epoch_length:
            return
        if self._running is not None or self._planned is not None:
            raise InvalidError(
                f"`epoch_length={length!r}` came after an epoch was planned; give it when the sampler is made"
            )
        self.epoch_length = length
        self._attach(self._scheme)

    def replay(self) -> None:
        """Makes the next iteration begin with what was trained before the state, for loaders that skip it.

        For frameworks; not for everyday use.
        """
        self._position = replace(self._position, replays=True)

    @property
    def epoch(self) -> int:
        """The current epoch, or the next one if none is under way."""
        return self._position.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    @property
    def follows_seed(self) -> bool:
        """Whether plans follow from the seed alone, so that nothing about past training needs saving."""
        return self._strategy.follows_seed

    @property
    def has_equal_epochs(self) -> bool:
        """Whether all epochs are equally long, so that `len(loader)` never changes."""
        if self._own is not None:
            return self._own.has_length
        return self.epoch_length is not None or self._strategy.is_whole or self._source.past_server

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """How many samples this rank trains in this epoch."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """How many samples all ranks train in this epoch."""
        return len(self) * self.num_replicas

    def __len__(self) -> int:
        running, position = self._running, self._position
        if running is not None and (position.begun or running.number == position.epoch):
            return len(running)
        if self.epoch_length is not None:
            return self._lengths.fixed(self.epoch_length)
        order = self._order()
        if order is not None:
            return order.length
        if running is None:
            # A caller that asks before the first epoch may take all of them to be as long.
            warn_of_trainer(self)
        if position.epoch == 0 or self._strategy.is_whole:
            # Every strategy begins with an epoch of all samples.
            return self._lengths.whole()
        return len(self._plan()[1])

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration. Call it before each."""
        if not 0 <= epoch <= _core.LAST_EPOCH:
            raise InvalidError(f"epoch `{epoch}`: a whole number from 0 to {_core.LAST_EPOCH} is needed")
        self._position, self._asked = self._position.at_epoch(epoch), epoch

    def __iter__(self) -> Slots:
        return Slots(self._begin, self._drawn, self._load_drawn)

    def _begin(self) -> Epoch:
        """Begins the next epoch: the one that was set, else the one after the last."""
        if self._position.begun:
            following = self.epoch + 1
            if self._asked != following and not self._warned:
                self._warned = True
                _log.warning(
                    "`set_epoch` was not called before an epoch; counting epochs from here: %d", following
                )
            self.set_epoch(following)
        check_accelerate(self, self._source.ranks()[1])
        self._check_asked()
        start, plan = self._plan()
        self._check_place(start, plan)
        running = self._running = Epoch(self.epoch, plan, start, self._source.catalog.samples, self._mark)
        if self._position.replays:
            running.handed = 0
        self._position, self._planned = self._position.iterated(), None
        return running

    def _plan(self) -> tuple[int, Plan]:
        """The plan of the epoch that was set, and where in it to start."""
        # The losses of the epoch before belong to it, and may be what this one is planned from.
        self._reports.flush()
        self.rank, self.num_replicas = self._source.ranks()
        samples = self._source.catalog.samples
        if samples < self.num_replicas and not self.pad:
            raise InvalidError(
                f"{samples} samples are not enough for {self.num_replicas} ranks; start fewer ranks, "
                "or repeat samples with `pad=True`"
            )
        start = self._position.start // self.num_replicas
        if self._planned is None or self._planned[:2] != (self.epoch, start):
            self._planned = self.epoch, start, self._source.plan(self.epoch, start, self._order())
        return start, self._planned[2]

    def _order(self) -> OwnOrder | None:
        """The order of the epoch that was set, if it is the user's own."""
        return None if self._own is None else self._own.at(self._position, self._source.ranks()[1])

    def batches(self) -> Batches:
        """The batches that `ids=` gives: `DataLoader(train, batch_sampler=sampler.batches())`."""
        return Batches(self, self._order)

    def _check_asked(self) -> None:
        """Checks once whether the samples of the first epoch that was drawn to its end were requested."""
        before = self._running
        if self._looked or before is None or before.number == self.epoch or before.handed < len(before):
            return
        self._looked = True
        if self.rank == 0 and not before.start:
            warn_unasked(self._source.stats(), before, self._mark)

    def _check_place(self, start: int, plan: Plan) -> None:
        """Warns where a state is a position in another plan."""
        position = self._position
        if start and not position.is_of(plan, self.rank, self.num_replicas):
            _log.warning(
                "the state is a position in a plan of %d samples, and epoch %d has another plan here, of %d: "
                "some samples will be trained twice or not at all; before the state, load what the strategy "
                "had learned, with `load_importance_state`",
                position.length * position.world,
                position.epoch,
                len(plan) * self.num_replicas,
            )

    def total_steps(self, epochs: int, batch_size: int, drop_last: bool = False) -> int:
        """The most batches that this rank can have in the first `epochs` epochs, for schedulers.

        It is exact with `epoch_length`, and for strategies whose epochs are equally long. For those that
        select a share of the samples (`iis`, `realtime`) the shorter epochs follow from their settings,
        provided that every loss is reported; other strategies learn only while training how short an epoch
        is, so full ones are counted. With `ids=` every epoch is taken to be as long as the next one, and
        batches of its own count as they are.
        """
        if epochs < 0 or batch_size < 1:
            raise InvalidError(f"`epochs={epochs}`, `batch_size={batch_size}`: both count things")
        if (order := self._order()) is not None:
            return epochs * order.steps(batch_size, drop_last)
        return self._lengths.total_steps(self.epoch_length, epochs, batch_size, drop_last)

    def update(self, ids: torch.Tensor | Sequence[int], loss: torch.Tensor) -> torch.Tensor:
        """Reports one non-negative loss for each sample of a batch; returns the loss to continue with.

        `ids` are those from `with_ids=True`. Where the strategy has weights, the result is the loss
        multiplied by the weights of the samples. The GPU is not waited for: losses are copied in the
        background, and reach the server with one of the next calls.
        """
        # Inside a graph it would be traced, and its effect on this object frozen. Importing what keeps it out
        # takes seconds, so that happens only when something is compiled.
        if torch.compiler.is_compiling():
            return cast(torch.Tensor, torch.compiler.disable(self._update)(ids, loss))
        return self._update(ids, loss)

    def _update(self, ids: torch.Tensor | Sequence[int], loss: torch.Tensor) -> torch.Tensor:
        numbers = check_ids(ids, self._target.part)
        check_loss(loss, len(numbers))
        if self._running is None:
            raise InvalidError(
                "`update` came before the first epoch; iterate over the sampler's loader first"
            )
        return report_losses(self._running, numbers, loss, self._reports, self._source)

    def weights(self, ids: torch.Tensor | Sequence[int]) -> torch.Tensor | None:
        """The weights of a batch's samples, before `update`; `None` where the strategy has none.

        For losses that are weighted by hand, such as inside a CUDA graph. The result of `update` is already
        weighted.
        """
        numbers = check_ids(ids, self._target.part)
        if self._running is None or self._running.weights is None:
            return None
        return self._running.weights.to_come(numbers if isinstance(numbers, list) else numbers.tolist())

    def importance(self) -> torch.Tensor:
        """The last score of every sample, by number; NaN where none was reported."""
        self._reports.flush()
        return self._feedback.scores()

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
        """Reports the current losses of the samples that the strategy asks for; returns how many there were.

        Call it between `set_epoch` and the epoch, before `len(loader)`, which needs the plan. Strategies that
        do not re-evaluate ask for nothing.

        - `model`: evaluated in evaluation mode; its mode and all random states are restored afterwards.
        - `loss`: the loss of each sample, from the model's output and the labels.
        - `transform`: used instead of the dataset's, to leave out its random parts.
        - `device`: by default that of the model's parameters.
        - `collate`: turns a list of samples into inputs and labels; by default torch's own.
        """
        if self._strategy.reevaluates and self._is_planned():
            raise InvalidError(
                f"`reevaluate` came after epoch {self.epoch} was planned, too late to change it; call "
                "`sampler.set_epoch(epoch)`, then `sampler.reevaluate(...)`, and only then `len(loader)`, as "
                "progress bars do, or the loop"
            )
        self._reports.flush()
        evaluation = Evaluation(model, loss, transform, batch_size, device, collate)
        return self._feedback.reevaluate(self.epoch, evaluation)

    def _is_planned(self) -> bool:
        """Whether this process has the plan of the epoch that is next, or under way."""
        if self._planned is not None and self._planned[0] == self.epoch:
            return True
        # An epoch that is restarted, or resumed from a state, may have been trained: its plan stays.
        return self._running is not None and self._running.number == self.epoch and self._position.begun

    def end_epoch(self, *, accuracy: float) -> None:
        """Reports the accuracy after this epoch to strategies that use it (`pads`)."""
        if self._running is None:
            raise InvalidError("`end_epoch` came before the first epoch")
        self._reports.flush()
        self._feedback.end_epoch(self._running.number, accuracy)

    def importance_state(self) -> dict[str, Any]:
        """All that the strategy has learned about the samples, at most 24 bytes each: once per checkpoint.

        A restarted server keeps it by itself; this is for resuming with another server.
        """
        self._reports.flush()
        return self._feedback.state()

    def load_importance_state(self, state: dict[str, Any]) -> None:
        """Restores what `importance_state` returned. Only before the first epoch."""
        self._feedback.load(state)

    def stats(self) -> dict[str, Any]:
        """The counters of the job that this sampler plans, as in `Dataset.stats`."""
        return self._source.stats()

    def flush(self) -> None:
        """Sends all losses that are still being copied from a GPU. The next epoch does so by itself."""
        self._reports.flush()

    @property
    def position(self) -> int:
        """How many samples this rank has trained in this epoch, including those before a stop.

        For progress bars of a resumed epoch, where `len(loader)` counts all batches:
        `tqdm(loader, initial=sampler.position // batch_size)`.
        """
        running = self.running
        if running is None:
            return self._position.start // self._source.ranks()[1]
        return running.trained if running.reported else running.handed

    @property
    def running(self) -> Epoch | None:
        """The epoch under way; `None` before its first index is drawn. Not for everyday use."""
        running = self._running
        # Some frameworks say `set_epoch` after they began to draw; an epoch under way is not forgotten.
        return None if running is None or running.number != self.epoch or self._position.loaded else running

    def state_dict(self, trained: int | None = None) -> dict[str, Any]:
        """The position of this rank, in a few numbers.

        It counts what was trained, as reported by `update`; in a loop that never calls `update`, what the
        loader has drawn, which with workers is ahead of the training. In such a loop pass the number of
        samples that this rank has trained in this epoch, `trained=`, or save the state of a
        `StatefulDataLoader` instead.
        """
        if trained is not None:
            if trained < 0:
                raise InvalidError(f"`trained={trained}`: a number of samples is needed")
            position = trained
        else:
            position = self.position
        return self._state(position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from `state` at the next iteration, with any number of ranks and workers."""
        self._feedback.check_dataset(state)
        for name, own in (("seed", self.seed), ("strategy", self.strategy), ("pad", self.pad)):
            if state[name] != own:
                raise InvalidError(
                    f"the state was saved with `{name}={state[name]!r}`, this sampler has `{name}={own!r}`; "
                    "make the sampler with the same, or start afresh"
                )
        position = Position.of_state(state)
        world = self._source.ranks()[1]
        check_same_length(state.get("epoch_length"), position.world, self.epoch_length, world)
        self._source.resume(str(state.get("run", "")), position.epoch, position.start // position.world)
        self._position, self._planned = replace(position, replays=self._position.replays), None

    def _state(self, position: int) -> dict[str, Any]:
        running = self._running
        begun = running is not None and running.number == self.epoch
        length, mark = self._position.length, self._position.mark
        order = None if self._own is None else self._own.known(self.epoch)
        if running is not None and begun:
            length, mark = len(running), (self.rank, running.mark)
        return {
            "epoch": self.epoch,
            "position": position,
            "left": not begun or position < length,
            "length": length,
            "mark": None if mark is None else list(mark),
            "epoch_length": self.epoch_length,
            "order": self._position.order if order is None else order.state(),
            "world": self._source.ranks()[1],
            "seed": self.seed,
            "strategy": self.strategy,
            "pad": self.pad,
            "dataset": self._source.catalog.dataset,
            "samples": self._source.catalog.samples,
            "run": self._source.run,
        }

    def _drawn(self, position: int | None) -> dict[str, Any]:
        """The state of an iterator that drew up to `position`, or has drawn nothing yet."""
        return self.state_dict() if position is None else self._state(position)

    def _load_drawn(self, state: dict[str, Any]) -> bool:
        """Resumes where an iterator stood; returns whether its epoch was complete."""
        self.load_state_dict(state)
        if state["left"]:
            return False
        self._position = Position(self.epoch + 1, replays=self._position.replays)
        return True
