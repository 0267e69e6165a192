"""A training goes on where that was asked for, and starts afresh where it was not, however the last ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hotset
import pytest
from hotset._client import job
from hotset._client.settings import Settings
from processes import Started, Starter, free_port, until
from trees import equal_files

SCRIPT = Path(__file__).with_name("runs.py")
SAMPLES = 120


@dataclass
class Said:
    """What one process said."""

    run: str = ""
    start: int = 0
    warned: list[str] = field(default_factory=list)
    epochs: dict[int, list[int]] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Said:
        """From what it wrote."""
        said, epochs = cls(), defaultdict(list)
        for line in file.read_text().splitlines():
            fields: dict[str, Any] = json.loads(line)
            if "run" in fields:
                said.run, said.start = fields["run"], fields["epoch"]
            elif "ids" in fields:
                epochs[fields["epoch"]] += fields["ids"]
            said.warned += [fields["warned"]] if "warned" in fields else []
            said.scores = fields.get("scores", said.scores)
        said.epochs = dict(epochs)
        return said


class Trainings:
    """Starts `runs.py`, one process after the other."""

    def __init__(self, top: Path, starter: Starter) -> None:
        self.place = equal_files(top / "tree", SAMPLES, 60)
        self.top = top
        self._starter = starter
        self._count = 0

    def begin(self, *arguments: str) -> tuple[Started, Path]:
        """Starts one; its process and where it writes."""
        command, out = self._next(arguments)
        return self._starter.start(command, out.with_suffix(".errors")), out

    def run(self, *arguments: str, ends: int = 0) -> Said:
        """Starts one and waits until it ends as it should; what it said."""
        process, out = self.begin(*arguments)
        code, errors = process.wait()
        assert code == ends, errors
        (file,) = out.iterdir()
        return Said.read(file)

    def launch(self, *arguments: str) -> dict[tuple[int, int], Said]:
        """Has torchrun start two ranks and start them over once; what each said, by rank and attempt."""
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1")
        launcher += ("--master-port", str(free_port()))
        command, out = self._next(arguments)
        process = subprocess.run(
            [sys.executable, *launcher, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        found = {}
        for file in out.iterdir():
            rank, attempt, _ = file.name.split(".")
            found[int(rank), int(attempt)] = Said.read(file)
        return found

    def _next(self, arguments: tuple[str, ...]) -> tuple[list[str], Path]:
        self._count += 1
        out = self.top / f"out-{self._count}"
        out.mkdir()
        return [str(SCRIPT), str(self.place), str(out), *arguments], out


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    """One for all of these tests."""
    made = Starter()
    yield made
    made.stop()


@pytest.fixture
def trainings(tmp_path: Path, starter: Starter) -> Trainings:
    """Trainings of one dataset."""
    return Trainings(tmp_path, starter)


@pytest.mark.parametrize("ends", ["well", "killed"])
def test_a_name_that_is_run_again_starts_afresh_and_says_so(trainings: Trainings, ends: str) -> None:
    how = ("--job", "exp", "--die", "3") if ends == "killed" else ("--job", "exp")
    first = trainings.run(*how, ends=-9 if ends == "killed" else 0)
    assert first.warned == []
    again = trainings.run("--job", "exp")
    assert again.run != first.run and again.start == 0
    assert {epoch: again.epochs[epoch] for epoch in range(3)} == {e: first.epochs[e] for e in range(3)}
    (warned,) = again.warned
    assert "`exp` was trained before, as far as epoch 3" in warned
    assert "starts afresh" in warned and "load_state_dict" in warned and "resume=True" in warned
    if ends == "well":
        assert again.epochs == first.epochs and again.scores == first.scores


def test_who_ended_well_can_be_gone_on_with(trainings: Trainings, tmp_path: Path) -> None:
    whole = trainings.run("--job", "whole", "--epochs", "5")
    kept = tmp_path / "kept"
    first = trainings.run("--job", "exp", "--epochs", "3", "--checkpoint", str(kept), "--save", "2")
    rest = trainings.run("--job", "exp", "--epochs", "5", "--load", str(kept), "--start", "3")
    assert rest.run == first.run and rest.warned == []
    assert {**first.epochs, **rest.epochs} == whole.epochs
    assert rest.scores == whole.scores


@pytest.mark.parametrize("asked", ["state", "resume"])
def test_a_killed_run_goes_on_two_epochs_back_as_if_nothing_had_happened(
    trainings: Trainings, tmp_path: Path, asked: str
) -> None:
    whole = trainings.run("--job", "whole", "--epochs", "6")
    kept = tmp_path / "kept"
    killed = trainings.run(
        *("--job", "exp", "--epochs", "6", "--checkpoint", str(kept), "--save", "1", "--die", "4"), ends=-9
    )
    assert max(killed.epochs) == 4
    how = ("--load", str(kept)) if asked == "state" else ("--resume",)
    rest = trainings.run("--job", "exp", "--epochs", "6", "--start", "2", *how)
    assert rest.run == killed.run and rest.warned == []
    assert rest.start == (1 if asked == "state" else 4), "where it stood"
    assert rest.epochs == {epoch: whole.epochs[epoch] for epoch in range(2, 6)}
    assert rest.scores == whole.scores, "nothing of epochs 2 to 4 that were left is known"


def test_resume_of_a_damaged_state_starts_afresh_and_says_so(trainings: Trainings) -> None:
    first = trainings.run("--job", "exp", "--epochs", "2")
    states = list(Path(os.environ["HOTSET_CACHE_DIR"], "state").glob("*.state"))
    assert states
    for state in states:
        state.write_bytes(b"damaged")
    again = trainings.run("--job", "exp", "--epochs", "2", "--resume")
    assert again.run != first.run and again.epochs == first.epochs
    (warned,) = again.warned
    assert "what job `exp` had learned by epoch 1 could not be read" in warned and "starts afresh" in warned


def test_resume_goes_on_with_the_epoch_that_was_under_way(trainings: Trainings) -> None:
    whole = trainings.run("--job", "whole")
    killed = trainings.run("--job", "exp", "--die", "2", ends=-9)
    rest = trainings.run("--job", "exp", "--resume")
    assert (rest.run, rest.start, rest.warned) == (killed.run, 2, [])
    assert rest.epochs == {epoch: whole.epochs[epoch] for epoch in (2, 3)}


@pytest.mark.parametrize("how", [(), ("--strategy", "uniform", "--silent")])
def test_resume_of_a_finished_run_goes_on_with_the_next_epoch(
    trainings: Trainings, how: tuple[str, ...]
) -> None:
    whole = trainings.run("--job", "whole", "--epochs", "5", *how)
    first = trainings.run("--job", "exp", "--epochs", "3", *how)
    over = trainings.run("--job", "exp", "--epochs", "3", "--resume", *how)
    assert (over.run, over.start, over.epochs) == (first.run, 3, {}), "nothing is left to do"
    rest = trainings.run("--job", "exp", "--epochs", "5", "--resume", *how)
    assert (rest.run, rest.start, rest.warned) == (first.run, 3, [])
    assert rest.epochs == {epoch: whole.epochs[epoch] for epoch in (3, 4)}
    assert rest.scores == whole.scores


def test_packages_of_an_earlier_run_are_said_to_be_used(trainings: Trainings, tmp_path: Path) -> None:
    how = ("--job", "exp", "--packages", str(tmp_path / "packages"))
    trainings.run(*how)
    again = trainings.run(*how)
    (warned,) = [text for text in again.warned if "starts afresh" in text]
    assert f"its packages, which hold unchanged samples, are found again at `{tmp_path}/packages`" in warned
    assert "uses nothing that it had learned" in warned and "uses nothing of it" not in warned


def test_resume_of_nothing_starts_and_needs_a_name(trainings: Trainings) -> None:
    first = trainings.run("--job", "exp", "--resume", "--epochs", "1")
    assert first.start == 0 and sorted(first.epochs[0]) == list(range(SAMPLES))
    train = hotset.Dataset(trainings.place)
    with pytest.raises(hotset.InvalidError, match="`job=`"):
        hotset.Sampler(train, resume=True)


def test_a_dataset_that_could_be_made_at_the_second_try_has_the_name_it_would_have_had(
    tmp_path: Path,
) -> None:
    place = tmp_path / "tree"
    with pytest.raises(hotset.InvalidError, match="there is no directory"):
        hotset.Dataset(place, job="exp")
    equal_files(place, 4, 60)
    names = [hotset.Dataset(place, job="exp").stats()["job"] for _ in range(2)]
    assert names == ["exp/tree", "exp/tree#2"], "another would not be found again by `resume=True`"
    # One that fails after another was named keeps that one's name out of use.
    failed, live = (job.new("exp", str(place), Settings.read()) for _ in range(2))
    job.give_back(failed, str(place))
    assert live.name == "exp/tree#4" and job.new("exp", str(place), Settings.read()).name == "exp/tree#5"


def test_a_place_that_nobody_remembers_is_said(trainings: Trainings, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    trainings.run("--job", "exp", "--epochs", "5", "--checkpoint", str(kept), "--save", "0")
    rest = trainings.run("--job", "exp", "--load", str(kept), "--start", "1", "--epochs", "2")
    (warned,) = rest.warned
    assert "epoch 0" in warned and "load_importance_state" in warned
    assert sorted(rest.epochs[1]) == list(range(SAMPLES)), "nothing of later epochs is used"


def test_two_launches_of_a_seed_train_the_same(trainings: Trainings) -> None:
    # Its epochs are so short that a rank has often trained one before the other begins it.
    first, again = (trainings.launch("--epochs", "5") for _ in range(2))
    assert set(first) == set(again) == {(0, 0), (1, 0)}
    for rank in first:
        assert first[rank].epochs == again[rank].epochs


def test_a_launch_that_is_started_over_goes_on_from_its_checkpoint_or_starts_afresh(
    trainings: Trainings, tmp_path: Path
) -> None:
    whole = trainings.launch("--epochs", "5")
    assert whole[0, 0].run == whole[1, 0].run
    kept = tmp_path / "kept"
    how = ("--job", "exp", "--epochs", "5", "--checkpoint", str(kept), "--save", "0", "--die", "2")
    said = trainings.launch(*how, "--load", str(kept))
    assert {attempt for _, attempt in said} == {0, 1}
    for rank in range(2):
        first, second = said[rank, 0], said[rank, 1]
        assert second.run == first.run and second.warned == []
        assert [epoch for epoch, ids in second.epochs.items() if ids] == [1, 2, 3, 4]
        assert second.epochs[1] == whole[rank, 0].epochs[1], (
            "planned from the losses of epoch 0, and no later"
        )
        assert len(second.epochs[1]) < SAMPLES / 2

    kept.unlink()
    said = trainings.launch(*how)
    assert said[0, 1].run == said[1, 1].run != said[0, 0].run
    for rank in range(2):
        again, first = said[rank, 1].epochs, whole[rank, 0].epochs
        assert (sorted(again), again[0], again[1]) == ([0, 1, 2, 3, 4], first[0], first[1])
    assert ["starts afresh" in text for text in said[0, 1].warned] == [True] and said[1, 1].warned == []


@pytest.mark.parametrize("how", ["afresh", "load", "resume"])
def test_a_second_live_run_of_a_name_is_refused(trainings: Trainings, tmp_path: Path, how: str) -> None:
    kept, hold = tmp_path / "kept", tmp_path / "hold"
    trainings.run("--job", "exp", "--checkpoint", str(kept), "--save", "3")
    first, out = trainings.begin("--job", "exp", "--resume", "--start", "0", "--hold", str(hold))
    try:
        until("it trains", lambda: any("ids" in file.read_text() for file in out.iterdir()))
        more = {"afresh": (), "load": ("--load", str(kept)), "resume": ("--resume",)}[how]
        second, _ = trainings.begin("--job", "exp", "--epochs", "9", *more)
        code, errors = second.wait()
        assert code == 1
        assert "InvalidError: another training runs as job `exp" in errors and "`job=`" in errors
    finally:
        hold.touch()
        code, errors = first.wait()
    assert code == 0, errors


def test_every_run_has_a_recording_of_its_own_without_the_epochs_it_left(
    trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, kept = tmp_path / "recorded", tmp_path / "kept"
    monkeypatch.setenv("HOTSET_RECORD", str(runs))
    trainings.run("--job", "exp", "--epochs", "2")
    trainings.run("--job", "exp", "--checkpoint", str(kept), "--save", "1", "--die", "3", ends=-9)
    rest = trainings.run("--job", "exp", "--epochs", "3", "--load", str(kept), "--start", "2")
    files = sorted(runs.glob("*.reports"))
    assert len(files) == 2
    command = [sys.executable, "-m", "hotset", "record"]
    refused = subprocess.run([*command, *map(str, files)], capture_output=True, text=True)
    assert refused.returncode != 0 and "one run, and these are 2" in refused.stderr
    assert f"{files[0]}: " in refused.stderr and f"of {SAMPLES} samples" in refused.stderr
    (file,) = (file for file in files if rest.run in file.name)
    trace = tmp_path / "trace.npy"
    said = subprocess.run(
        [*command, str(file), "--out", str(trace)], capture_output=True, text=True, check=True
    )
    assert f"3 epochs of {SAMPLES} samples" in said.stdout, "not the fourth, which was left"


def test_a_run_started_over_by_its_launcher_has_the_name_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    from hotset._client.settings import Settings

    def launched(**given: str) -> tuple[str | None, int]:
        for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.delenv(name, raising=False)
        for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"RANK": "0", **given}.items():
            monkeypatch.setenv(name, value)
        settings = Settings.read()
        return settings.launch, settings.attempt

    elastic = {"TORCHELASTIC_RUN_ID": "a1", "MASTER_ADDR": "localhost", "MASTER_PORT": "4001"}
    first = launched(**elastic)
    again = launched(**elastic | {"MASTER_PORT": "4002", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert first[0] == again[0] and first[1] < again[1]
    static = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    assert launched(**static)[0] != launched(**static | {"MASTER_PORT": "29501"})[0]
    requeued = {"SLURM_JOB_ID": "77", "MASTER_ADDR": "node1", "MASTER_PORT": "5000"}
    first = launched(**requeued, TORCHELASTIC_RESTART_COUNT="3")
    again = launched(**requeued | {"MASTER_ADDR": "node2"}, SLURM_RESTART_COUNT="1")
    assert first[0] == again[0] and first[1] < again[1]
    assert os.environ["RANK"] == "0"
