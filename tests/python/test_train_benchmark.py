"""The training benchmark at the size of a test: it trains, counts, skips what is there, and shows."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from training import ROOT, benchmark, few_images
from trees import content


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images to train with, ten to test with."""
    return few_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def train_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports modules of the benchmark, as its programs do from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))
    yield lambda name: importlib.import_module(f"benchmarks.train.{name}")


def test_a_sweep_trains_what_is_not_there_and_becomes_tables(images: Path, tmp_path: Path) -> None:
    out, size = tmp_path / "results.jsonl", ("--model", "shufflenet", "--batch", "8", "--epochs", "2")
    wanted = ("accuracy", "--data", images, "--out", out, "--only", "uniform+minio", "--seeds", "2", *size)
    wanted = (*wanted, "--dataset", "cifar10")
    assert benchmark("sweep", *wanted, "--list").splitlines() == [
        f"cifar10 shufflenet uniform+minio, 2 epochs seed {seed}" for seed in range(2)
    ]
    benchmark("sweep", *wanted, "--at-once", "2")
    assert benchmark("sweep", *wanted, "--list") == ""

    lines: list[dict[str, Any]] = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["run"]["seed"] for line in lines) == [0, 1]
    for line in lines:
        assert [epoch["steps"] for epoch in line["epochs"]] == [5, 5]
        assert [epoch["counts"]["served"] for epoch in line["epochs"]] == [40, 40]
        assert line["epochs"][0]["counts"]["storage_reads"] == 40
        assert 0.0 <= line["top1"] <= line["top5"] <= 100.0

    benchmark("tables", out, "--out", tmp_path / "out")
    tables = (tmp_path / "out" / "tables.md").read_text()
    (row,) = [line for line in tables.splitlines() if line.startswith("| `uniform+minio, 2 epochs` |")]
    assert row.split(" | ")[1] == "2" and "±" in row
    assert "paper: iCache" in tables and "87.76" in tables


def test_a_sweep_is_narrowed_by_what_tells_its_runs_apart() -> None:
    chosen = ("--only", "uniform+minio, 10 epochs", "--only", "cache 5%", "--seeds", "1", "--list")
    assert benchmark("sweep", "controls", "windows", *chosen).splitlines() == [
        "cifar10 resnet18 uniform+minio, 10 epochs seed 0",
        "cifar10 resnet18 carousel[fresh=0.25]+carousel, cache 5% seed 0",
    ]


def test_sets_of_the_papers_have_five_seeds_of_each_run_seed_by_seed() -> None:
    chosen = ("--only", "iis", "--only", "hybrid", "--model", "mobilenet", "--list")
    assert benchmark("sweep", "models", *chosen).splitlines() == [
        f"cifar10 mobilenet {run} seed {seed}" for seed in range(5) for run in ("iis+icache", "hybrid+impact")
    ]


def test_the_papers_default_is_the_uniform_with_the_most_seeds(
    train_module: Callable[[str], Any], tmp_path: Path
) -> None:
    tables, results, Run = train_module("tables"), train_module("results"), train_module("run").Run
    out = tmp_path / "results.jsonl"

    def default(*seeds: tuple[str, int]) -> Any:
        lines = [{"run": asdict(Run("uniform", policy, seed=seed)), "top1": 90.0} for policy, seed in seeds]
        out.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tables._found(results.read([out]), Run("uniform", "lru")).run.policy

    assert default(("minio", 0), ("lru", 0)) == "lru"
    assert default(("lru", 0), ("minio", 0), ("minio", 1)) == "minio"
    assert default(("minio", 0)) == "minio"


def test_a_trace_has_the_losses_of_every_epoch(images: Path, tmp_path: Path) -> None:
    trace, size = tmp_path / "trace.npz", ("--model", "shufflenet", "--batch", "16", "--epochs", "2")
    benchmark("train", "--data", images, "--out", tmp_path / "out.jsonl", "--trace", trace, *size)
    kept = numpy.load(trace)
    assert {name: (kept[name].shape, str(kept[name].dtype)) for name in kept} == {
        "loss": ((2, 40), "float16"),
        "reeval": ((2, 40), "float16"),
    }
    assert numpy.isnan(kept["loss"]).sum(1).tolist() == [8, 8], "the incomplete last batch is not trained"
    assert not numpy.isnan(kept["reeval"]).any()
    simulate = ("simulate", "--trace", str(trace), "--run", "hybrid+impact", "--cache", "20%")
    done = subprocess.run([sys.executable, "-m", "hotset", *simulate], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_intervals_are_students(train_module: Callable[[str], Any]) -> None:
    Mean = train_module("results").Mean
    mean = Mean.of([91.31, 91.67, 91.75, 91.05, 91.52])
    # By hand: squares add up to 0.3224, so the sd is 0.28390; times 2.776 / sqrt(5).
    assert mean.value == pytest.approx(91.46)
    assert mean.half == pytest.approx(0.35245, abs=1e-4)
    assert Mean.of([90.0]).text() == "90.00"


def test_differences_have_welchs_interval_where_both_sides_have_one(
    train_module: Callable[[str], Any],
) -> None:
    Mean = train_module("results").Mean
    lost = Mean.of([3.0, 4.0, 5.0]).minus(Mean.of([1.0, 2.0, 3.0]))
    # By hand: both variances are 1, so the error is sqrt(2 / 3), of 4 degrees of freedom; times 2.776.
    assert lost.value == pytest.approx(2.0)
    assert lost.half == pytest.approx(2.26660, abs=1e-4)
    assert Mean.of([3.0, 4.0]).minus(Mean.of([1.0])).half is None


def test_a_run_that_was_looked_at_does_not_stand_for_one_that_was_not(
    train_module: Callable[[str], Any], tmp_path: Path
) -> None:
    results, Run = train_module("results"), train_module("run").Run
    lines = [
        {"run": asdict(Run("iis", "icache")), "top1": 90.0},
        {"run": asdict(Run("iis", "icache", identify=True)), "top1": 80.0},
        {"run": asdict(Run("realtime", "icache", identify=True)), "top1": 70.0},
    ]
    out = tmp_path / "results.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    groups = results.read([out])
    assert [group.top1.value for group in groups] == [90.0, 80.0, 70.0]
    assert [group.top1.value for group in results.for_accuracy(groups)] == [90.0, 70.0]


def test_controls_train_as_often_as_they_say(train_module: Callable[[str], Any]) -> None:
    Run, repeated = train_module("run").Run, train_module("controls").repeated
    served = [[place, place + 1] for place in range(0, 12, 2)] + [[12]]
    assert list(repeated(Run(batch=2), 0, served, 13)) == served[:-1], "whole batches alone are trained"
    echoed = list(repeated(Run(batch=2, echo=1.5), 0, served, 13))
    assert [echoed.count(batch) for batch in served[:-1]] == [1, 2, 1, 2, 1, 2]
    later = list(repeated(Run(batch=2, echo=1.25), 1, served, 13))
    assert [later.count(batch) for batch in served[:-1]] == [1, 2, 1, 1, 1, 2], "counted on"

    blocks = list(repeated(Run(batch=2, echo=3.0, block=4 / 13), 0, served, 13))
    assert all(len(batch) == 2 for batch in blocks)
    first, second = ([number for batch in some for number in batch] for some in (blocks[:6], blocks[6:12]))
    assert sorted(first) == sorted(3 * [0, 1, 2, 3]) and sorted(second) == sorted(3 * [4, 5, 6, 7])
    assert first[:4] != first[4:8] or first[4:8] != first[8:], "each pass has an order of its own"


def test_a_screening_tests_one_training_in_several_ways_and_becomes_a_table(
    images: Path, tmp_path: Path, train_module: Callable[[str], Any]
) -> None:
    Run, results, tables = (train_module(name) for name in ("run", "results", "tables"))
    out, size = tmp_path / "screen.jsonl", ("--model", "shufflenet", "--batch", "8", "--epochs", "2")
    treated = ("--transform", "erase", "--repeats", "--floor", "0.1", "--average", "1", "--held-out", "8")
    carousel = ("--strategy", "carousel", "--policy", "carousel", "--settings", "fresh=0.25")
    benchmark("train", "--data", images, "--out", out, *carousel, *treated, *size)
    line = json.loads(out.read_text())
    spans = [f"averaged {span} {few}" for span in ("1", "0.5", "0.25") for few in ("window", "all")]
    assert list(line["tested"]) == ["plain", "window", "all", *spans]
    assert line["tested"]["plain"] == {"top1": line["top1"], "top5": line["top5"]}

    same = replace(Run.Run.of(line), strategy="uniform", policy="minio", settings={}, repeats=False)
    better = {way: {"top1": top["top1"] + 0.5} for way, top in line["tested"].items()}
    out.write_text(json.dumps(line) + "\n" + json.dumps({**line, "run": asdict(same), "tested": better}))
    shown = tables.screening(results.read([out]))
    assert shown.startswith("## Screening: cifar10, shufflenet, 8 held-out images\n")
    (row,) = [row for row in shown.splitlines() if row.startswith("| `carousel")]
    assert row.split(" | ")[0] == (
        "| `carousel[fresh=0.25]+carousel, erase on repeats, rate at least 10%, 2 epochs`"
    )
    assert row.count("(-0.50)") == 9
    assert tables.confirmed(results.read([out])) == ""

    # The same, as if it had been tested on the test images: treated runs stand below the plain one.
    plain = replace(Run.Run.of(line), held_out=0, transform="", repeats=False)
    warped = replace(plain, transform="warp")
    runs = ((warped, better), (plain, line["tested"]))
    lines = [json.dumps({**line, "run": asdict(run), "tested": tested}) for run, tested in runs]
    out.write_text("\n".join(lines))
    shown = tables.confirmed(results.read([out]))
    assert shown.startswith("## Confirmation: cifar10, shufflenet\n")
    cells = [row.split(" | ") for row in shown.splitlines() if row.startswith("| `carousel")]
    assert [row[1] for row in cells] == 2 * ["plain", "window", "averaged 1 window"]
    assert cells[0][4] == "" and cells[3][4] == "0.50" and "warp" in cells[3][0]
    assert tables.screening(results.read([out])) == ""


def test_averages_are_means_of_weights_and_leave_the_model_as_it_was(
    train_module: Callable[[str], Any],
) -> None:
    Pixels, Step = train_module("pixels").Pixels, train_module("step").Step
    torch.manual_seed(0)
    pixels = Pixels(torch.randint(0, 256, (40, 8, 8, 3), dtype=torch.uint8), torch.arange(40) % 5, "none")
    layers = torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.Flatten()
    model = torch.nn.Sequential(*layers, torch.nn.Linear(144, 5))
    step = Step(model, pixels, 8, graph=False, half=False)
    averages = train_module("averages").Averages(step, 2, 1.0, len(pixels))
    seen = []
    for number in range(10):
        step(torch.arange(8) + 8 * (number % 5), None, 0.1)
        averages.add(number / 5, torch.arange(8))
        seen.append(model[0].weight.detach().clone())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # Five steps of the last epoch, and two that began in its second half.
    for span, steps in ((1.0, seen[5:]), (0.5, seen[8:])):
        assert torch.allclose(averages.averaged(span)[0], torch.stack(steps).mean(0), atol=1e-6)
    assert len(averages.tested(pixels, half=False)) == 9
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model[1].momentum == 0.1


def test_batch_normalisation_is_estimated_anew_over_the_images_given(
    train_module: Callable[[str], Any],
) -> None:
    Pixels, Step = train_module("pixels").Pixels, train_module("step").Step
    pixels = Pixels(torch.randint(0, 256, (16, 8, 8, 3), dtype=torch.uint8), torch.arange(16) % 2, "none")
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(192, 2))
    step = Step(model, pixels, 4, graph=False, half=False, augment=False)
    train_module("averages").estimate(step, [torch.arange(4), torch.arange(4, 8)])
    mean = step.images(torch.arange(8)).mean((0, 2, 3))
    assert torch.allclose(model[0].running_mean, mean, atol=1e-5)
    assert model[0].momentum == 0.1


def test_transforms_change_the_chosen_images_alone(train_module: Callable[[str], Any]) -> None:
    Run, transforms = train_module("run").Run, train_module("transforms")
    images, chosen = torch.randn(64, 3, 32, 32), torch.arange(64) % 2 == 0
    for change in transforms.TRANSFORMS.values():
        changed = (change(images, chosen) != images).flatten(1).any(1)
        assert torch.equal(changed, chosen)
    gone = (transforms.erased(images, chosen) == 0.0).sum((1, 2, 3))
    assert gone.max() <= 3 * 16 * 16 and (gone[chosen] >= 3 * 4 * 4).all()

    visits = transforms.Visits(Run(transform="erase", repeats=True, cache="20%"), 10)
    orders = [[0, 1], [2, 3], [0, 4], [1, 5], [2, 0]]
    # A window of two: what came at most four places before is there.
    expected = [[False, False], [False, False], [True, False], [False, False], [False, True]]
    assert [visits(torch.tensor(order)).tolist() for order in orders] == expected
    blocks = transforms.Visits(Run(transform="erase", repeats=True, cache="0", block=0.2), 10)
    assert [blocks(torch.tensor(order)).tolist() for order in orders] == expected
    every = transforms.Visits(Run(transform="erase"), 10)
    assert every(torch.tensor([3, 4])).all()


def test_lines_written_before_a_setting_was_there_are_known_again(train_module: Callable[[str], Any]) -> None:
    sweep = train_module("sweep")
    there = sweep.done(ROOT / "benchmarks" / "train" / "results" / "h200-cifar100.jsonl")
    runs = [*sweep.accuracy(), *sweep.controls(), *sweep.windows()]
    assert [run.name for run in runs if replace(run, dataset="cifar100").key not in there] == []


def test_parts_of_the_images_are_drawn_once(train_module: Callable[[str], Any]) -> None:
    Run, controls = train_module("run").Run, train_module("controls")
    labels = torch.arange(100) % 10
    assert controls.trained(Run(), labels) is None
    part = controls.trained(Run(subset=30, seed=1), labels)
    assert len(set(part)) == 30 and part == sorted(part) == controls.trained(Run(subset=30, seed=1), labels)
    assert part != controls.trained(Run(subset=30, seed=2), labels)
    held = controls.held_out(100, 20)
    kept = controls.trained(Run(held_out=20, seed=5), labels)
    assert sorted(held + kept) == list(range(100))


def test_images_of_64_pixels_and_any_number_of_classes_are_trained(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in range(3):
            folder = tmp_path / "data" / split / f"class-{label}"
            folder.mkdir(parents=True)
            for number in range(4):
                image = Image.frombytes("RGB", (64, 64), content(f"{split}-{label}-{number}", 12_288))
                image.save(folder / f"{number}.png")
    out = tmp_path / "results.jsonl"
    controlled = ("--echo", "2", "--block", "0.5", "--cache", "0", "--no-augment", "--held-out", "3")
    benchmark(
        "train",
        "--data",
        tmp_path / "data",
        "--out",
        out,
        "--policy",
        "minio",
        "--model",
        "shufflenet",
        "--batch",
        "2",
        "--epochs",
        "1",
        *controlled,
    )
    line = json.loads(out.read_text())
    assert line["samples"] == 9 and line["epochs"][0]["counts"]["storage_reads"] == 9
    # Blocks of 4 and of 5 images (what is served is gathered until it is half of 9), twice each, in pairs.
    assert line["epochs"][0]["steps"] == 9
    assert line["name"] == "uniform+minio, blocks of 50%, each 2 times, not augmented"
