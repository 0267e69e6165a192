"""What a user should know and is no error: said once, where the user can filter it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hotset
import hotset._client.job
import pytest
from hotset._client.notes import warn_once
from processes import Server
from torch.utils.data import DataLoader
from trees import equal_files

NAMES_THE_LINE = sys.version_info >= (3, 12)
"""Whether `warnings` can name the user's line, past the files of libraries."""

VALIDATION = """
import sys, hotset
from torch.utils.data import DataLoader
val = hotset.Dataset(sys.argv[1], decode=len, cache="50%")
loader = DataLoader(val, batch_size=10, num_workers=3, multiprocessing_context="fork")
assert sum(int(batch.sum()) for batch in loader) == 200 * 50_000
print(val.stats()["remarks"])
"""


SHUFFLED = """
import sys, hotset
from torch.utils.data import DataLoader, Subset, random_split
kind, method = sys.argv[2:]
train = hotset.Dataset(sys.argv[1], decode=len)
loaded, more = train, {"shuffle": True}
if kind == "in order":
    more = {}
elif kind == "held out":
    part, loaded = random_split(train, [0.2, 0.8])
    sampler, more = hotset.Sampler(part), {}
workers = {"num_workers": 2, "multiprocessing_context": method} if method else {}
if __name__ == "__main__":
    loader = DataLoader(loaded, batch_size=10, **more, **workers)
    for _ in range(2):
        for batch in loader:  # this line
            pass
    print(train.source.stats()["remarks"])
"""


@contextmanager
def warned() -> Iterator[list[str]]:
    """The texts of Hotset's warnings, those that it gives twice included."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(each.message) for each in caught if issubclass(each.category, hotset.HotsetWarning)]


def train(
    place: Path, strategy: str, epochs: int, *, report: bool, settings: dict[str, object] | None = None
) -> hotset.Dataset:
    """Trains on what lies at `place`, and reports a loss for each sample if `report`."""
    dataset = hotset.Dataset(place, decode=len, with_ids=True)
    sampler = hotset.Sampler(dataset, strategy, settings=settings)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for _, ids in loader:
            if report:
                sampler.update(ids, ids.float() + 1)
    return dataset


def test_a_warning_comes_once_from_rank_0() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in ("warm-up, epoch 1", "warm-up, epoch 2"):
            warn_once(text, rank=1, name="warmup")
            warn_once(text, name="warmup")
        warn_once("another")
        warn_once("another")
    assert [str(warning.message) for warning in caught] == ["warm-up, epoch 1", "another"]
    assert {warning.filename for warning in caught} == {__file__ if NAMES_THE_LINE else "<hotset>"}
    assert all(warning.category is hotset.HotsetWarning for warning in caught)


def test_warnings_can_be_filtered_by_their_class() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", hotset.HotsetWarning)
        with pytest.raises(hotset.HotsetWarning, match="once"):
            warn_once("once")


def test_a_strategy_that_gets_no_losses_warns_after_its_first_epoch(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 40, 10)
    with warned() as first:
        train(place, "iis", 1, report=False)
    with warned() as told:
        train(place, "iis", 3, report=True)
    with warned() as texts:
        dataset = train(place, "iis", 3, report=False)
    assert first == told == []
    assert len(texts) == 1 and "strategy `iis` was told no losses in its first epoch" in texts[0]
    assert "`sampler.update(ids, loss)`" in texts[0]
    assert texts[0] in dataset.stats()["remarks"]


def test_a_warm_up_warns_once_and_says_how_far_it_is(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 40, 10)
    with warned() as texts:
        dataset = train(place, "hybrid", 3, report=True, settings={"warmup_max": 20, "s_share": 1.0})
    assert [text.partition(":")[0] for text in texts] == ["`hybrid` warms up"]
    assert "as with `uniform`. Warm-up epoch 2 of at most 20 (`warmup_max`)" in texts[0]
    assert dataset.stats()["job"]


def test_memory_that_is_taken_is_said_once_however_many_workers_join(
    tmp_path: Path,
    serve: Callable[..., Server],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = equal_files(tmp_path / "tree", 200, 50_000)
    monkeypatch.setenv("HOTSET_SERVER", str(serve("outside.sock", "--memory", "8MiB").socket))
    first = hotset.Dataset(place, decode=len, cache="100%")
    with warned() as texts:
        assert first[0] == 50_000
    assert len(texts) == 1 and "--memory" in texts[0] and "`cache=`" in texts[0]
    # In a program of its own, whose three workers join before it does; another dataset, so nothing is shared.
    other = equal_files(tmp_path / "other", 200, 50_000)
    done = subprocess.run([sys.executable, "-c", VALIDATION, other], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "HotsetWarning: the server grants" in line]
    # It asks for half of its dataset, the first one for all of its: a third of the memory.
    assert len(said) == 1 and "grants 2.3 MiB of the 4.8 MiB that `cache=` asks for" in said[0], done.stderr
    assert "warn_once" not in done.stderr and "warnings.warn" not in done.stderr  # no line of our own files
    assert "grants 2.3 MiB" in done.stdout and done.returncode == 0


def test_an_epoch_that_is_only_read_ahead_is_none_of_the_epochs(tmp_path: Path) -> None:
    dataset = train(equal_files(tmp_path / "tree", 40, 10), "uniform", 2, report=False)
    stats = dataset.stats()
    assert [epoch["epoch"] for epoch in stats["epochs"]] == [0, 1]
    assert all(epoch["served"] == epoch["planned"] == 40 for epoch in stats["epochs"])
    assert all(epoch["seconds"] > 0.0 and epoch["waited"] >= 0.0 for epoch in stats["epochs"])


def test_every_epoch_has_its_time_and_the_total_has_them_all(tmp_path: Path) -> None:
    dataset = train(equal_files(tmp_path / "tree", 40, 10), "uniform", 5, report=False)
    stats = dataset.stats()
    assert len(stats["epochs"]) == 5 and all(epoch["seconds"] > 0.0 for epoch in stats["epochs"])
    for name in ("seconds", "waited"):
        assert stats["total"][name] == pytest.approx(sum(epoch[name] for epoch in stats["epochs"]))
    assert (stats["total"]["served"], stats["total"]["distinct"], stats["total"]["coverage"]) == (200, 40, 1)


def test_a_job_has_a_name_that_a_person_knows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/train.py", "--lr", "1"])
    monkeypatch.setattr(hotset._client.job, "_token_pid", 0)
    places = [equal_files(tmp_path / name / "images", 2, 10) for name in ("a", "b")]
    names = []
    for place in places:
        dataset = hotset.Dataset(place)
        assert dataset[0]
        names.append(dataset.stats()["job"])
    run, folder = names[0].split("/")
    assert re.fullmatch(rf"train-{os.getpid()}-[0-9a-f]{{8}}", run) and folder == "images"
    assert names[1] == f"{run}/images#2"


def shuffled(tmp_path: Path, server: Server, kind: str, method: str) -> tuple[list[str], str]:
    """The warnings of a program that trains without a Sampler, or seems to, and the notes in its stats."""
    place = equal_files(tmp_path / "tree", 200, 10)
    program = tmp_path / "program.py"
    program.write_text(SHUFFLED)
    done = subprocess.run(
        [sys.executable, program, place, kind, method],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOTSET_SERVER": str(server.socket)},
    )
    return [line for line in done.stderr.splitlines() if "HotsetWarning: " in line], done.stdout


@pytest.mark.parametrize("method", ["", "fork", "spawn"])
def test_a_loader_that_shuffles_without_a_sampler_is_told_once_what_to_write(
    tmp_path: Path, serve: Callable[..., Server], method: str
) -> None:
    # A job without a sampler is its workers', and another after they were gone for longer than that.
    (said,), noted = shuffled(tmp_path, serve("outside.sock", "--linger", "3600"), "shuffled", method)
    assert "`DataLoader(dataset, sampler=sampler)` instead of `shuffle=True`" in said
    assert "no Sampler plans them" in noted
    line = 1 + SHUFFLED.splitlines().index("        for batch in loader:  # this line")
    # A spawned worker knows nothing of the program's lines.
    assert method == "spawn" or not NAMES_THE_LINE or said.startswith(f"{tmp_path}/program.py:{line}: ")


@pytest.mark.parametrize("kind", ["in order", "held out"])
def test_a_validation_set_is_not_taken_for_a_training(
    tmp_path: Path, serve: Callable[..., Server], kind: str
) -> None:
    said, noted = shuffled(tmp_path, serve(), kind, "fork")
    assert said == [] and "Sampler" not in noted
