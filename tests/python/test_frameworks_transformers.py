"""The Trainer of transformers trains through Hotset: all epochs, to the end of its schedule."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
import transformers
from accelerate import Accelerator
from hotset._client.notes import forget
from hotset.integrations.accelerate import Hook
from hotset.integrations.transformers import Mixin
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader
from trees import equal_files

SAMPLES, BATCH, EPOCHS, ACCUMULATED = 50, 8, 10, 2
STEPS = EPOCHS * 4
"""Seven batches an epoch are four steps of two batches each, the last of one."""

SETTINGS: dict[str, dict[str, object]] = {
    "iis": {"fraction": 0.5},
    "hybrid": {"fraction": 0.5, "warmup_max": 2},
    "uniform": {},
}


class Model(torch.nn.Module):
    """One weight, which says of every sample the same."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.float() * self.weight


class Rates(transformers.TrainerCallback):
    """Notes the learning rate of every step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_optimizer_step(self, *_: Any, optimizer: Any, **__: Any) -> None:
        self.seen.append(optimizer.param_groups[0]["lr"])


class Reporting(transformers.Trainer):
    """Reports every loss, and notes what was trained."""

    sampler: hotset.Sampler

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> torch.Tensor:
        if not hasattr(self, "seen"):
            self.seen: list[tuple[int, list[int]]] = []
        ids = inputs["ids"]
        self.seen.append((self.sampler.epoch, ids.tolist()))
        return self.sampler.update(ids, model(ids).abs()).mean()


class Trainer(Mixin, Reporting):
    """As a user would write it."""


class Documented(Reporting):
    """With Accelerate's hook alone."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        loader = DataLoader(self.train_dataset, BATCH, sampler=self.sampler, collate_fn=_collated)
        return Hook(self.accelerator, self.sampler).prepare(loader)


def _pair(view: memoryview) -> tuple[int, int]:
    return view[0], view[1]


def _collated(batch: list[tuple[tuple[int, int], int]]) -> dict[str, torch.Tensor]:
    return {"ids": torch.tensor([number for _, number in batch])}


def _output(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output


def _arguments(out: Path, **more: Any) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=str(out),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATED,
        num_train_epochs=EPOCHS,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        remove_unused_columns=False,
        **{"save_strategy": "no", **more},
    )


def _trainer(
    place: Path, out: Path, strategy: str, kind: Any = Trainer, one_cycle: bool = False, **more: Any
) -> Any:
    train = hotset.Dataset(place, with_ids=True, decode=_pair)
    # The mixin sets the length of epochs; without it that is the sampler's to say.
    length = None if kind is Trainer else "auto"
    sampler = hotset.Sampler(
        train, strategy, seed=4, settings=SETTINGS[strategy], epochs=EPOCHS, epoch_length=length
    )
    model, rates = Model(), Rates()
    named: dict[str, Any] = {"sampler": sampler, "reevaluate": lambda: sampler.reevaluate(model, _output)}
    if kind is not Trainer:
        named = {}
    if one_cycle:
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        # The Trainer sets the length of epochs when it is made.
        sampler.set_epoch_length("auto")
        steps = sampler.total_steps(EPOCHS, BATCH * ACCUMULATED)
        named["optimizers"] = (optimizer, OneCycleLR(optimizer, max_lr=1.0, total_steps=steps))
    trainer = kind(
        model,
        _arguments(out, **more),
        data_collator=_collated,
        train_dataset=train,
        callbacks=[rates],
        **named,
    )
    trainer.sampler, trainer.rates = sampler, rates
    return trainer


@pytest.mark.parametrize("strategy", ["iis", "hybrid"])
@pytest.mark.parametrize("one_cycle", [False, True])
def test_the_epochs_asked_for_are_trained_and_the_schedule_ends(
    tmp_path: Path, strategy: str, one_cycle: bool
) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    trainer = _trainer(place, tmp_path / "out", strategy, one_cycle=one_cycle)
    trainer.train()
    assert trainer.state.epoch == EPOCHS
    assert trainer.state.global_step == trainer.state.max_steps == len(trainer.rates.seen) == STEPS
    assert [epoch for epoch, _ in trainer.seen] == [epoch for epoch in range(EPOCHS) for _ in range(7)]
    assert sum(len(ids) for _, ids in trainer.seen) == EPOCHS * SAMPLES
    if one_cycle:
        assert trainer.rates.seen[-1] == pytest.approx(1.0 / 25 / 1e4)
    else:
        assert trainer.rates.seen[-1] == pytest.approx(trainer.args.learning_rate / STEPS)
        assert trainer.lr_scheduler.get_last_lr()[0] == 0.0
    if strategy == "hybrid":
        assert trainer.sampler.dataset.stats()["notes"]["reevaluated"] > 0


def test_the_hook_alone_trains_inside_a_trainer_where_epochs_have_one_length(tmp_path: Path) -> None:
    trainer = _trainer(equal_files(tmp_path / "tree", SAMPLES, 50), tmp_path / "out", "iis", Documented)
    trainer.train()
    assert (trainer.state.epoch, trainer.state.global_step) == (EPOCHS, STEPS)
    assert trainer.lr_scheduler.get_last_lr()[0] == 0.0


@pytest.mark.parametrize("strategy", ["uniform", "iis", "hybrid"])
@pytest.mark.parametrize("step", [10, 12])
def test_a_checkpoint_goes_on_in_mid_epoch_and_at_its_end(tmp_path: Path, strategy: str, step: int) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    whole = _trainer(place, tmp_path / "whole", strategy)
    whole.train()
    first = _trainer(
        place, tmp_path / "out", strategy, save_strategy="steps", save_steps=step, max_steps=step
    )
    first.train()
    second = _trainer(place, tmp_path / "out", strategy)
    second.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{step}"))
    assert first.seen + second.seen == whole.seen
    assert (second.state.epoch, second.state.global_step) == (EPOCHS, STEPS)
    epochs = {each["epoch"]: each for each in second.sampler.dataset.stats()["epochs"]}
    resumed = [ids for epoch, ids in second.seen if epoch == second.seen[0][0]]
    counted = epochs[second.seen[0][0]]
    assert counted["waits"][0]["batches"] == len(resumed), "what is skipped is not read"
    # What was counted before the stop comes with the state that losses are kept in.
    before = (
        0
        if strategy == "uniform"
        else sum(len(ids) for epoch, ids in first.seen if epoch == counted["epoch"])
    )
    assert counted["served"] == sum(map(len, resumed)) + before


def test_a_checkpoint_without_the_samplers_place_is_refused(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    first = _trainer(place, tmp_path / "out", "iis", save_strategy="steps", save_steps=4, max_steps=4)
    first.train()
    (tmp_path / "out" / "checkpoint-4" / "hotset.pt").unlink()
    second = _trainer(place, tmp_path / "out", "iis")
    with pytest.raises(hotset.InvalidError, match="says where the sampler stood"):
        second.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))


class Plain(Reporting):
    """With a loader of its own."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_dataset, BATCH, sampler=self.sampler, collate_fn=_collated)


class Prepared(Plain):
    """With one that Accelerate prepares."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        return self.accelerator.prepare(super().get_train_dataloader())


@pytest.mark.parametrize("kind", [Plain, Prepared])
def test_a_trainer_with_a_loader_of_its_own_is_told_that_its_epochs_differ(tmp_path: Path, kind: Any) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)
    trainer = _trainer(place, tmp_path / "out", "iis", kind)
    trainer.sampler.set_epoch_length(None)
    forget()
    with pytest.warns(hotset.HotsetWarning, match=r'`hotset\.Sampler\(\.\.\., "iis", epoch_length="auto"\)`'):
        trainer.train()


def test_a_trainer_with_the_hook_alone_is_told_that_its_epochs_differ(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", SAMPLES, 50), with_ids=True, decode=_pair)
    accelerator = Accelerator(cpu=True)

    def prepared(sampler: hotset.Sampler) -> None:
        forget()
        Hook(accelerator, sampler).prepare(DataLoader(train, BATCH, sampler=sampler, collate_fn=_collated))

    with pytest.warns(hotset.HotsetWarning, match=r'`hotset\.Sampler\(\.\.\., "iis", epoch_length="auto"\)`'):
        prepared(hotset.Sampler(train, "iis"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", hotset.HotsetWarning)
        prepared(hotset.Sampler(train, "iis", epoch_length="auto"))
        prepared(hotset.Sampler(train))
