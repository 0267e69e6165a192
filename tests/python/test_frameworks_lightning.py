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
        self.layer = torch.nn.Linear(1, 1)
        self.sampler, self.report = sampler, report
        self.seen: list[tuple[int, list[int]]] = []

    def training_step(self, ids: torch.Tensor, _: int) -> torch.Tensor:
        self.seen.append((self.current_epoch, ids.tolist()))
        loss = self.layer(ids[:, None].float()).flatten().square()
        return self.sampler.update(ids, loss).mean() if self.report else loss.mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


class Training:
    """A training as a new process would begin it."""

    def __init__(self, place: Path, out: Path, workers: int, drop_last: bool = False, **more: Any) -> None:
        self.train = hotset.Dataset(place, with_ids=True)
        self.sampler = hotset.Sampler(self.train, seed=4)
        self.loader = DataLoader(
            self.train, BATCH, sampler=self.sampler, num_workers=workers, collate_fn=_ids, drop_last=drop_last
        )
        self.model = Model(self.sampler)
        self.trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=3,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=out,
            callbacks=[
                Callback(self.sampler),
                ModelCheckpoint(
                    out, filename="{step}", every_n_train_steps=1, save_top_k=-1, enable_version_counter=False
                ),
            ],
            **more,
        )


def _ids(batch: list[tuple[bytes, int]]) -> torch.Tensor:
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
@pytest.mark.parametrize("stop", [3, 7, 9])
def test_a_checkpoint_of_any_step_goes_on_as_if_nothing_had_been(
    tmp_path: Path, workers: int, drop_last: bool, stop: int
) -> None:
    place, out = equal_files(tmp_path / "tree", SAMPLES, 50), tmp_path / "out"
    # Without the incomplete last batch an epoch has 6 steps instead of 7.
    stop -= drop_last
    first = Training(place, out, workers, drop_last, max_steps=stop)
    first.trainer.fit(first.model, first.loader)
    assert len(first.model.seen) == stop
    resumed = Training(place, out, workers, drop_last)
    resumed.trainer.fit(resumed.model, resumed.loader, ckpt_path=str(out / f"step={stop}.ckpt"))
    assert first.model.seen + resumed.model.seen == uninterrupted(drop_last)
