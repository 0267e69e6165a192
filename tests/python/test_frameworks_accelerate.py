"""Accelerate trains through Hotset: nothing is divided twice, and its checkpoints keep the place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from hotset.integrations.accelerate import Hook
from processes import free_port
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader
from trees import equal_files, planned

SAMPLES, BATCH = 50, 8
ACCELERATED = Path(__file__).with_name("accelerated.py")


def launched(out: Path, place: Path, how: str) -> list[list[dict[str, Any]]]:
    """The lines of two processes that trained."""
    out.mkdir()
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", str(free_port())),
        *(str(ACCELERATED), str(out), str(place), how),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [
        [json.loads(line) for line in (out / f"{rank}.out").read_text().splitlines()] for rank in range(2)
    ]


def test_two_processes_train_every_sample_once(tmp_path: Path) -> None:
    ranks = launched(tmp_path / "out", equal_files(tmp_path / "tree", 41, 50), "hook")
    for epoch in range(2):
        parts = [
            [number for line in lines if line.get("epoch") == epoch for number in line.get("ids", ())]
            for lines in ranks
        ]
        assert len(parts[0]) == len(parts[1]) == 20
        assert len({*parts[0], *parts[1]}) == 40
    for lines in ranks:
        ended = [line for line in lines if "measured" in line]
        assert [line["length"] for line in ended] == [5, 5]
        assert {"hotset/wait/rank0", "hotset/wait/rank1"} <= set(ended[1]["measured"])


@pytest.mark.parametrize("how", ["prepare", "stateful"])
def test_a_loader_that_accelerate_would_divide_again_is_refused_with_what_to_write(
    tmp_path: Path, how: str
) -> None:
    for lines in launched(tmp_path / "out", equal_files(tmp_path / "tree", 41, 50), how):
        assert len(lines) == 1 and "hotset.integrations.accelerate.Hook" in lines[0]["refused"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("report", [True, False])
@pytest.mark.parametrize("stop", [3, 7, 9])
def test_save_state_keeps_the_place_of_what_was_trained(
    tmp_path: Path, workers: int, stateful: bool, report: bool, stop: int
) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)

    def made() -> tuple[Accelerator, hotset.Sampler, DataLoader[Any]]:
        accelerator = Accelerator(
            cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=stateful)
        )
        train = hotset.Dataset(place, with_ids=True)
        sampler = hotset.Sampler(train, seed=3)
        loader = DataLoader(train, BATCH, sampler=sampler, num_workers=workers, collate_fn=_ids)
        return accelerator, sampler, Hook(accelerator, sampler).prepare(loader)

    def trained(sampler: hotset.Sampler, loader: DataLoader[Any], epochs: int) -> Iterator[list[int]]:
        for _ in range(epochs):
            for ids in loader:
                if report:
                    sampler.update(ids, torch.ones(len(ids)))
                yield ids.tolist()

    accelerator, sampler, loader = made()
    seen = list(islice(trained(sampler, loader, 2), stop))
    accelerator.save_state(str(tmp_path / "checkpoint"))
    accelerator, sampler, loader = made()
    accelerator.load_state(str(tmp_path / "checkpoint"))
    seen += islice(trained(sampler, loader, 1), 2)
    accelerator.save_state(str(tmp_path / "again"))
    accelerator, sampler, loader = made()
    accelerator.load_state(str(tmp_path / "again"))
    seen += trained(sampler, loader, 2 if stop < 7 else 1)
    assert [number for ids in seen for number in ids] == [
        number for epoch in range(2) for number in planned(SAMPLES, epoch, seed=3)
    ]


@pytest.mark.parametrize("stop", [3, 7, 9, 12])
def test_a_strategy_that_learned_goes_on_with_the_same_plans(tmp_path: Path, stop: int) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, 50)

    def made() -> tuple[Accelerator, hotset.Sampler, DataLoader[Any]]:
        train = hotset.Dataset(place, with_ids=True)
        sampler = hotset.Sampler(train, "iis", seed=3, settings={"fraction": 0.5})
        loader = DataLoader(train, BATCH, sampler=sampler, collate_fn=_ids)
        accelerator = Accelerator(cpu=True)
        return accelerator, sampler, Hook(accelerator, sampler).prepare(loader)

    def trained(sampler: hotset.Sampler, loader: DataLoader[Any]) -> Iterator[tuple[int, list[int]]]:
        for epoch in range(sampler.epoch, 4):
            for ids in loader:
                sampler.update(ids, (ids * 7919 % 1009).float())
                yield epoch, ids.tolist()

    _, *run = made()
    whole = list(trained(*run))
    accelerator, *run = made()
    seen = list(islice(trained(*run), stop))
    accelerator.save_state(str(tmp_path / "checkpoint"))
    accelerator, *run = made()
    accelerator.load_state(str(tmp_path / "checkpoint"))
    seen += trained(*run)
    assert seen == whole and len(whole) < 4 * 7


@pytest.mark.parametrize("report", [True, False])
def test_an_epoch_whose_incomplete_batch_was_left_out_is_over(tmp_path: Path, report: bool) -> None:
    accelerator = Accelerator(cpu=True)
    train = hotset.Dataset(equal_files(tmp_path / "tree", SAMPLES, 50), with_ids=True)
    sampler = hotset.Sampler(train)
    hook = Hook(accelerator, sampler)
    loader = hook.prepare(DataLoader(train, BATCH, sampler=sampler, collate_fn=_ids, drop_last=True))
    left = []
    for ids in loader:
        if report:
            sampler.update(ids, torch.ones(len(ids)))
        left.append(hook.state_dict()["left"])
    assert left == [True] * 5 + [False]
    loader.set_epoch(1)
    assert hook.state_dict()["left"], "the next has not begun"


def test_gradients_are_accumulated_to_the_end_of_the_epoch(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    train = hotset.Dataset(equal_files(tmp_path / "tree", SAMPLES, 50), with_ids=True)
    sampler = hotset.Sampler(train)
    loader = Hook(accelerator, sampler).prepare(DataLoader(train, BATCH, sampler=sampler, collate_fn=_ids))
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    stepped = []
    for ids in loader:
        with accelerator.accumulate(model):
            loss = model(ids[:, None].float()).flatten().square()
            accelerator.backward(sampler.update(ids, loss).mean())
            stepped.append(accelerator.sync_gradients)
    assert stepped == [False, False, False, True, False, False, True]
    assert train.stats()["epochs"][0]["reported"] == SAMPLES


def test_a_loader_of_another_sampler_is_refused(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    train = hotset.Dataset(equal_files(tmp_path / "tree", SAMPLES, 50), with_ids=True)
    hook = Hook(accelerator, hotset.Sampler(train))
    with pytest.raises(hotset.InvalidError, match="not the one this hook was made for"):
        hook.prepare(DataLoader(train, BATCH))


def _ids(batch: list[tuple[bytes, int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


@pytest.mark.parametrize("strategy, settings", [("iis", {}), ("hybrid", {"warmup_max": 2})])
def test_with_epochs_of_one_length_the_schedule_ends_with_the_training(
    tmp_path: Path, strategy: str, settings: dict[str, object]
) -> None:
    epochs, accumulated = 10, 2
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    train = hotset.Dataset(equal_files(tmp_path / "tree", SAMPLES, 50), with_ids=True, decode=_pair)
    sampler = hotset.Sampler(
        train, strategy, settings={"fraction": 0.5, **settings}, epochs=epochs, epoch_length="auto"
    )
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    steps = sampler.total_steps(epochs, BATCH * accumulated)
    schedule = OneCycleLR(optimizer, max_lr=1e-6, total_steps=steps)
    loader = Hook(accelerator, sampler).prepare(
        DataLoader(train, BATCH, sampler=sampler, collate_fn=_numbers)
    )
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    rates, trained = [], []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        sampler.reevaluate(torch.nn.Identity(), _first)
        for ids in loader:
            with accelerator.accumulate(model):
                loss = model(ids[:, None].float()).flatten().square()
                accelerator.backward(sampler.update(ids, loss).mean())
                if accelerator.sync_gradients:
                    rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            trained.append(epoch)
        assert len(loader) == 7
    assert trained == [epoch for epoch in range(epochs) for _ in range(7)]
    assert len(rates) == steps == 40
    assert rates[-1] == pytest.approx(1e-6 / 25 / 1e4)


def _pair(view: memoryview) -> tuple[int, int]:
    return view[0], view[1]


def _numbers(batch: list[tuple[tuple[int, int], int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


def _first(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output.float()
