"""Lightning trains through Hotset: it leaves the sampler alone, and its checkpoints keep the place."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import hotset
import lightning
import pytest
import torch
from hotset.integrations.lightning import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader
from trees import equal_files, planned

SAMPLES, BATCH = 50, 8
QUIET: dict[str, Any] = {
    **{"accelerator": "cpu", "logger": False},
    **{"enable_progress_bar": False, "enable_model_summary": False},
}

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


class Scheduled(Model):
    """With a schedule as long as Lightning says the training is."""

    def __init__(self, sampler: hotset.Sampler) -> None:
        super().__init__(sampler)
        self.rates: list[float] = []

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-6)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = OneCycleLR(optimizer, max_lr=1e-6, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize("strategy, settings", [("iis", {}), ("hybrid", {"warmup_max": 2})])
def test_with_epochs_of_one_length_the_schedule_ends_with_the_training(
    tmp_path: Path, strategy: str, settings: dict[str, object]
) -> None:
    training = Training(
        equal_files(tmp_path / "tree", SAMPLES, 50),
        tmp_path / "out",
        0,
        strategy=strategy,
        settings={"fraction": 0.5, **settings},
        max_epochs=10,
        accumulate_grad_batches=2,
    )
    training.sampler.set_epoch_length("auto")
    model = Scheduled(training.sampler)
    training.trainer.fit(model, training.loader)
    assert training.trainer.current_epoch == 10
    assert [epoch for epoch, _ in model.seen] == [epoch for epoch in range(10) for _ in range(7)]
    assert training.trainer.global_step == len(model.rates) == 40
    assert model.rates[-1] == pytest.approx(1e-6 / 25 / 1e4)


class Data(lightning.LightningDataModule):
    """Makes its sampler where Lightning says that it should."""

    def __init__(self, place: Path, workers: int, strategy: str) -> None:
        super().__init__()
        self.place, self.workers, self.strategy = place, workers, strategy
        self.sampler: hotset.Sampler | None = None

    def setup(self, stage: str) -> None:
        train = hotset.Dataset(self.place, with_ids=True, decode=_pair)
        settings = {"fraction": 0.5} if self.strategy == "iis" else {}
        self.sampler = hotset.Sampler(train, self.strategy, seed=4, settings=settings)

    def train_dataloader(self) -> Any:
        assert self.sampler is not None
        train = self.sampler.dataset
        return DataLoader(train, BATCH, sampler=self.sampler, num_workers=self.workers, collate_fn=_ids)


class Asking(Model):
    """Finds the sampler in its data."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    def setup(self, stage: str) -> None:
        self.sampler = self.trainer.datamodule.sampler  # type: ignore[attr-defined]


def _fitted(
    place: Path, out: Path, strategy: str, workers: int, ckpt_path: str | None = None, **more: Any
) -> Asking:
    model = Asking()
    trainer = lightning.Trainer(
        **QUIET,
        default_root_dir=out,
        callbacks=[
            Callback(),
            ModelCheckpoint(
                out, filename="{step}", every_n_train_steps=1, save_top_k=-1, enable_version_counter=False
            ),
        ],
        **{"max_epochs": 3, **more},
    )
    trainer.fit(model, datamodule=Data(place, workers, strategy), ckpt_path=ckpt_path)
    return model


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("strategy", ["uniform", "iis"])
def test_the_sampler_of_a_data_module_is_found_and_its_checkpoints_go_on(
    tmp_path: Path, workers: int, strategy: str
) -> None:
    place, out = equal_files(tmp_path / "tree", SAMPLES, 50), tmp_path / "out"
    whole = _fitted(place, tmp_path / "whole", strategy, workers)
    first = _fitted(place, out, strategy, workers, max_steps=9)
    second = _fitted(place, out, strategy, workers, ckpt_path=str(out / "step=9.ckpt"))
    assert first.seen + second.seen == whole.seen
    if strategy == "uniform":
        assert whole.seen == uninterrupted()


def test_a_loader_without_a_sampler_of_ours_is_said(tmp_path: Path) -> None:
    train = hotset.Dataset(equal_files(tmp_path / "tree", SAMPLES, 50), with_ids=True, decode=_pair)
    model = Asking()
    model.setup = lambda stage: None  # type: ignore[method-assign]
    trainer = lightning.Trainer(
        **QUIET,
        default_root_dir=tmp_path,
        callbacks=[Callback()],
        max_epochs=1,
    )
    with pytest.raises(hotset.InvalidError, match="no training loader draws from a"):
        trainer.fit(model, DataLoader(train, BATCH, collate_fn=_ids))
