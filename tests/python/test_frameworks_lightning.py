"""Lightning trains through Hotset: it leaves the sampler alone, and its checkpoints keep the place."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import hotset
import lightning
import pytest
import torch
from hotset.lightning import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from trees import equal_files, planned

SAMPLES, BATCH = 50, 8

warnings.filterwarnings("ignore", module="lightning")
pytestmark = pytest.mark.filterwarnings("ignore")


class Model(lightning.LightningModule):
    """One weight, and a note of every batch it was trained with."""

    def __init__(self, sampler: hotset.Sampler, report: bool = True) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(1, 1)
        self.sampler, self.report = sampler, report
        self.seen: list[tuple[int, list[int]]] = []
        self.validated: list[tuple[int, int]] = []
        self.reevaluated = 0

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        self.reevaluated += len(numbers)
        return numbers.float()

    def training_step(self, ids: torch.Tensor, _: int) -> torch.Tensor:
        self.seen.append((self.current_epoch, ids.tolist()))
        loss = self.layer(ids[:, None].float()).flatten().square()
        return self.sampler.update(ids, loss).mean() if self.report else loss.mean()

    def validation_step(self, _: torch.Tensor, __: int) -> None:
        self.validated.append(
            (self.current_epoch, sum(epoch == self.current_epoch for epoch, _ in self.seen))
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


class Training:
    """A training as a new process would begin it."""

    def __init__(
        self,
        place: Path,
        out: Path,
        workers: int,
        drop_last: bool = False,
        strategy: str = "uniform",
        settings: dict[str, object] | None = None,
        report: bool = True,
        **more: Any,
    ) -> None:
        self.train = hotset.Dataset(place, with_ids=True, decode=_pair)
        epochs = more.setdefault("max_epochs", 3)
        self.sampler = hotset.Sampler(self.train, strategy, seed=4, settings=settings, epochs=epochs)
        self.loader = DataLoader(
            self.train, BATCH, sampler=self.sampler, num_workers=workers, collate_fn=_ids, drop_last=drop_last
        )
        self.model = Model(self.sampler, report)
        self.trainer = lightning.Trainer(
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=out,
            callbacks=[
                Callback(self.sampler, loss=_output),
                ModelCheckpoint(
                    out, filename="{step}", every_n_train_steps=1, save_top_k=-1, enable_version_counter=False
                ),
            ],
            **more,
        )


def _pair(view: memoryview) -> tuple[int, int]:
    return view[0], view[1]


def _output(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output


def _ids(batch: list[tuple[tuple[int, int], int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


def uninterrupted(drop_last: bool = False) -> list[tuple[int, list[int]]]:
    """The batches of a run that nobody stops."""
    last = SAMPLES // BATCH * BATCH if drop_last else SAMPLES
    return [
        (epoch, planned(SAMPLES, epoch, seed=4)[first : min(first + BATCH, last)])
        for epoch in range(3)
        for first in range(0, last, BATCH)
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_sampler_is_left_alone_and_its_counters_are_logged(tmp_path: Path, workers: int) -> None:
    training = Training(equal_files(tmp_path / "tree", SAMPLES, 50), tmp_path / "out", workers)
    training.trainer.fit(training.model, training.loader)
    assert training.trainer.train_dataloader.sampler is training.sampler
    assert training.model.seen == uninterrupted()
    logged = training.trainer.callback_metrics
    assert float(logged["hotset/wait/rank0"]) >= 0.0
    assert float(logged["hotset/hit"]) == pytest.approx(10 / 50)
    assert float(logged["hotset/storage_reads"]) == 40


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("report", [True, False])
@pytest.mark.parametrize("stop", [3, 7, 9])
def test_a_checkpoint_of_any_step_goes_on_as_if_nothing_had_been(
    tmp_path: Path, workers: int, drop_last: bool, report: bool, stop: int
) -> None:
    place, out = equal_files(tmp_path / "tree", SAMPLES, 50), tmp_path / "out"
    # Without the incomplete last batch an epoch has 6 steps instead of 7.
    stop -= drop_last
    first = Training(place, out, workers, drop_last, report=report, max_steps=stop)
    first.trainer.fit(first.model, first.loader)
    assert len(first.model.seen) == stop
    again = Training(place, out, workers, drop_last, report=report, max_steps=stop + 2)
    again.trainer.fit(again.model, again.loader, ckpt_path=str(out / f"step={stop}.ckpt"))
    resumed = Training(place, out, workers, drop_last, report=report)
    resumed.trainer.fit(resumed.model, resumed.loader, ckpt_path=str(out / f"step={stop + 2}.ckpt"))
    assert first.model.seen + again.model.seen + resumed.model.seen == uninterrupted(drop_last)


@pytest.mark.parametrize("interval, times", [(1.0, 1), (0.5, 2)])
def test_validation_runs_in_epochs_of_every_length(tmp_path: Path, interval: float, times: int) -> None:
    place, more = equal_files(tmp_path / "tree", SAMPLES, 50), {"max_epochs": 5, "num_sanity_val_steps": 0}
    settings: dict[str, object] = {"fraction": 0.5, "full_last": 0.2}
    training = Training(
        place, tmp_path / "out", 0, strategy="iis", settings=settings, val_check_interval=interval, **more
    )
    training.trainer.fit(training.model, training.loader, DataLoader(torch.arange(1)))
    batches = [sum(epoch == each for each, _ in training.model.seen) for epoch in range(5)]
    assert batches[0] == batches[4] == 7 and batches[2] == batches[3] == 4
    assert training.model.validated == [
        (epoch, max(1, int(count * interval)) * time)
        for epoch, count in enumerate(batches)
        for time in range(1, times + 1)
    ]


@pytest.mark.parametrize("strategy", ["iis", "realtime"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [3, 7, 9, -1])
def test_a_strategy_that_learned_goes_on_with_the_same_plans(
    tmp_path: Path, strategy: str, workers: int, stop: int
) -> None:
    place, out = equal_files(tmp_path / "tree", SAMPLES, 50), tmp_path / "out"
    how: dict[str, Any] = {"strategy": strategy, "settings": {"fraction": 0.5}, "max_epochs": 4}
    whole = Training(place, tmp_path / "whole", workers, **how)
    whole.trainer.fit(whole.model, whole.loader)
    epochs = [sum(epoch == each for each, _ in whole.model.seen) for epoch in range(4)]
    # Minus one: the end of an epoch that is not the first.
    stop = sum(epochs[:2]) if stop < 0 else stop
    first = Training(place, out, workers, **how, max_steps=stop)
    first.trainer.fit(first.model, first.loader)
    resumed = Training(place, out, workers, **how)
    resumed.trainer.fit(resumed.model, resumed.loader, ckpt_path=str(out / f"step={stop}.ckpt"))
    assert first.model.seen + resumed.model.seen == whole.model.seen
    asked = [training.model.reevaluated for training in (first, resumed)]
    assert sum(asked) == whole.model.reevaluated
    assert bool(whole.model.reevaluated) == (strategy == "realtime")
