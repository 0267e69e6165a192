"""`hotset.doctor`: any loader with its transforms and step, and loaders that fail, never end or are empty."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
from hotset import _core
from torch.utils.data import DataLoader, Dataset, IterableDataset
from trees import equal_files


def compute(seconds: float) -> None:
    """Keeps a core busy for as long of its time, whatever else runs on the machine."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.blake2b(b"busy" * 1_000).digest()


class Timed(Dataset[torch.Tensor]):
    """Samples that take some waiting and some computing."""

    def __init__(self, fetching: float, preparing: float, samples: int = 400) -> None:
        self.fetching, self.preparing, self.samples = fetching, preparing, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.fetching)
        compute(self.preparing)
        return torch.tensor(index)


class Stream(IterableDataset[torch.Tensor]):
    """The same without a length or an end."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        number = 0
        while True:
            time.sleep(0.004)
            yield torch.tensor(number)
            number += 1


def busy(seconds: float) -> Callable[[Any], None]:
    """A step that takes some time of an accelerator, which leaves the cores to others."""
    return lambda batch: time.sleep(seconds)


# Batches of eight. What bounds takes ten times as long as the rest: without workers each waits for the other.
@pytest.mark.parametrize(
    ("fetching", "preparing", "step", "bottleneck"),
    [
        (0.012, 0.0003, 0.004, "storage"),
        (0.0001, 0.012, 0.004, "preparing"),
        (0.0001, 0.0001, 0.1, "computing"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_bounds_a_loader_is_found(
    fetching: float, preparing: float, step: float, bottleneck: str, workers: int
) -> None:
    loader = DataLoader(Timed(fetching, preparing), batch_size=8, num_workers=workers)
    found = hotset.doctor(loader, step=busy(step), seconds=5)
    expected = {"requests", "waiting"} if bottleneck == "storage" else {bottleneck}
    assert found.bottleneck in expected, found.report["rates"]
    assert found.verdict == found.report["verdict"]
    assert " ".join(str(found).split()).startswith(found.verdict)
    measured = found.report["measured"]
    assert measured["samples"] == 400 and measured["loader"]["batch"] == 8
    assert measured["loader"]["workers"] == workers


def test_waiting_and_computing_of_a_sample_are_told_apart() -> None:
    found = hotset.doctor(DataLoader(Timed(0.004, 0.002), batch_size=8), seconds=5)
    measured = found.report["measured"]
    assert 0.0038 < measured["storage"]["latency"] < 0.008, measured
    assert 0.0019 < measured["preparing"] < 0.004, measured
    assert found.report["conditional"] and "if training takes more than" in found.verdict


class Files(Dataset[bytes]):
    """Files of a throttled store, read as a user's own dataset would; it says where they lie."""

    def __init__(self, root: Path, options: dict[str, str]) -> None:
        self.root, self.samples = str(root), ["as torchvision's folders have"]
        self._catalog = _core.Catalog(str(root), layout="files", storage_options=options)

    def __len__(self) -> int:
        return len(self._catalog)

    def __getitem__(self, index: int) -> bytes:
        return self._catalog.read(index)


def test_where_a_place_is_named_its_storage_is_measured_too(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3_000, 25_000)
    slow = {"throttle.latency": "30ms"}
    loader = DataLoader(Files(place, slow), batch_size=16, collate_fn=list)
    found = hotset.doctor(loader, step=busy(0.01), seconds=10, place=place, storage_options=slow)
    assert found.bottleneck == "waiting", found.report["rates"]
    assert found.report["measured"]["mean_bytes"] == 25_000
    ahead = next(one for one in found.report["candidates"] if one["name"] == "reading ahead alone")
    assert ahead["saves"] > 0.8
    assert found.paste is not None


def test_a_loader_of_hotsets_own_tells_its_place(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 300, 1_000)
    train = hotset.Dataset(place, storage_options={"throttle.latency": "3ms"})
    loader = DataLoader(train, batch_size=16, sampler=hotset.Sampler(train), collate_fn=list)
    with warnings.catch_warnings():
        warnings.simplefilter("error", hotset.HotsetWarning)
        found = hotset.doctor(loader, step=busy(0.05), seconds=4)
    assert found.report["measured"]["hotset"] and found.report["measured"]["mean_bytes"] == 1_000
    assert any("already" in reason for reason in found.report["reasons"])
    assert train.stats()["unplanned"]["served"] == 0, "nothing was asked for past the plan"
    train.close()


def test_a_report_is_a_page_too(tmp_path: Path) -> None:
    page = tmp_path / "doctor.html"
    found = hotset.doctor(DataLoader(Timed(0.002, 0.0)), seconds=2, html=page)
    assert page.read_text() == found.page and found.page.startswith("<!doctype html>")
    assert found.verdict in " ".join(found._repr_html_().split())


# --- loaders that are not as they should be ----------------------------------------------------------------


def test_a_loader_that_never_ends_is_measured_in_the_time_there_is() -> None:
    began = time.monotonic()
    found = hotset.doctor(DataLoader(Stream(), batch_size=8), step=busy(0.001), seconds=4)
    assert time.monotonic() - began < 15
    assert found.bottleneck in {"requests", "waiting"}
    assert not found.report["measured"]["complete"]


def test_a_loader_that_gives_nothing_is_given_up() -> None:
    began = time.monotonic()
    with pytest.raises(hotset.UnavailableError, match=r"the loader gave nothing in 3 s.*`seconds`"):
        hotset.doctor(DataLoader(Timed(3_600.0, 0.0), batch_size=8), seconds=2)
    assert time.monotonic() - began < 8


class Broken(Timed):
    """One whose seventh sample cannot be had."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 7:
            raise ValueError("a broken file")
        return torch.tensor(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_fails_is_an_error_that_says_why(workers: int) -> None:
    loader = DataLoader(Broken(0.0, 0.0), batch_size=4, num_workers=workers)
    with pytest.raises(hotset.InvalidError, match=r"the loader failed: ValueError: (.|\n)*a broken file"):
        hotset.doctor(loader, seconds=2)


@pytest.mark.parametrize("size", [0, 3])
def test_a_loader_without_a_batch_is_an_error_that_says_so(size: int) -> None:
    loader = DataLoader([torch.tensor(1)] * size, batch_size=4, drop_last=True)  # type: ignore[arg-type]
    with pytest.raises(hotset.InvalidError, match="the loader gave no batch"):
        hotset.doctor(loader, seconds=30)


def test_a_step_that_fails_is_an_error_that_says_why() -> None:
    def step(batch: object) -> None:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(
        hotset.InvalidError, match=r"`step` failed on a batch.*RuntimeError: shapes do not fit"
    ):
        hotset.doctor(DataLoader(Timed(0.0, 0.0), batch_size=4), step=step, seconds=2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"loader": 7}, "`loader` is an `int`"),
        ({"step": "train"}, "`step` is a `str`"),
        ({"seconds": 0.5}, "`seconds=0.5`"),
        ({"epochs": 0}, "`epochs=0`"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    given = {"loader": DataLoader(Timed(0.0, 0.0)), **arguments}
    with pytest.raises(hotset.InvalidError, match=named):
        hotset.doctor(**given)


def test_a_place_that_cannot_be_measured_is_said_and_the_rest_is_judged(tmp_path: Path) -> None:
    loader = DataLoader(Timed(0.01, 0.0), batch_size=4)
    found = hotset.doctor(loader, step=busy(0.001), seconds=4, place=tmp_path / "nowhere")
    assert any("could not be measured" in reason for reason in found.report["reasons"])
    assert found.bottleneck in {"requests", "waiting"}


def test_figures_of_accuracy_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root))
    from benchmarks.train import accuracy

    assert accuracy.FILE.read_text() == accuracy.text(), "run `python -m benchmarks.train.accuracy`"
