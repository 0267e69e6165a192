"""The examples at a size that a test may have: they train, on one process and on two, and go on."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image
from processes import free_port
from trees import content

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SIZE = ("--batch-size", "4", "--size", "32", "--workers", "1")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-three images of three classes to train with, six to test with."""
    place = tmp_path_factory.mktemp("images")
    for split, counts in (("train", (8, 8, 7)), ("val", (2, 2, 2))):
        for label, count in enumerate(counts):
            folder = place / split / f"class-{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                name = f"{split}-{label}-{number}"
                Image.frombytes("RGB", (40, 36), content(name, 4320)).save(folder / f"{number:03d}.jpg")
    return place


OVERHEARD = """
import runpy, sys, hotset
inner, ended = hotset.Sampler.reevaluate, hotset.Sampler.end_epoch
def reevaluate(*given, **more):
    print("reevaluated", asked := inner(*given, **more))
    return asked
def end_epoch(self, *, accuracy):
    print("told", accuracy)
    ended(self, accuracy=accuracy)
hotset.Sampler.reevaluate, hotset.Sampler.end_epoch = reevaluate, end_epoch
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def example(name: str, *arguments: str | Path, processes: int = 1, overheard: bool = False) -> str:
    """Runs an example, by torchrun if there are several processes; what it printed."""
    command = [sys.executable, *(("-c", OVERHEARD) if overheard else ())]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command += [str(EXAMPLES / name), *map(str, arguments)]
    if processes > 1 or ("--devices", "2") in pairwise(command):
        # CPython 3.11 may hang in a child that is forked while a thread of the process group enters Python.
        command += ["--workers", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_hotset_changes_a_few_lines_of_a_training_and_no_others() -> None:
    plain, hot = (
        (EXAMPLES / name).read_text().partition('"""\n\n')[2] for name in ("plain.py", "with_hotset.py")
    )
    changed = [
        line[2:].strip()
        for line in difflib.ndiff(plain.splitlines(), hot.splitlines())
        if line.startswith("+ ")
    ]
    assert changed == [
        "import hotset",
        "from torch.utils.data import DataLoader",
        'parser.add_argument("--strategy", default="uniform", help="see `hotset strategies`")',
        'train = hotset.ImageFolder(args.data / "train", transforms.Compose(shaken), with_ids=True)',
        "sampler = hotset.Sampler(train, args.strategy)",
        "for images, labels, ids in loader:",
        'loss = F.cross_entropy(model(images), labels, reduction="none")',
        "sampler.update(ids, loss).mean().backward()",
    ]


@pytest.mark.parametrize("name, processes", [("plain.py", 1), ("with_hotset.py", 1), ("with_hotset.py", 2)])
def test_a_torchvision_training_runs_and_goes_on(
    images: Path, tmp_path: Path, name: str, processes: int
) -> None:
    arguments = ("--data", images, "--checkpoint", tmp_path / "kept.pt", *SIZE)
    first = example(name, *arguments, "--epochs", "1", processes=processes)
    assert [line.split(":")[0] for line in first.splitlines()] == ["epoch 0"]
    more = example(name, *arguments, "--epochs", "2", processes=processes)
    assert [line.split(":")[0] for line in more.splitlines()] == ["epoch 1"]


@pytest.mark.parametrize("devices", [1, 2])
def test_a_lightning_training_runs_and_its_ranks_share_a_job(
    images: Path, tmp_path: Path, devices: int
) -> None:
    out = example(
        "with_lightning.py",
        "--data",
        images,
        "--epochs",
        "2",
        "--devices",
        str(devices),
        "--out",
        tmp_path,
        *SIZE,
    )
    logged = dict(line.split(": ") for line in out.splitlines() if line.startswith("hotset/"))
    assert [name for name in logged if "wait" in name] == [
        f"hotset/wait/rank{rank}" for rank in range(devices)
    ]
    trained = 23 // devices * devices
    assert float(logged["hotset/storage_reads"]) == round(trained * (1 - float(logged["hotset/hit"])))


@pytest.mark.parametrize("processes", [1, 2])
def test_an_accelerate_training_runs_and_goes_on(images: Path, tmp_path: Path, processes: int) -> None:
    arguments = ("--data", images, "--checkpoint", tmp_path / "kept", *SIZE)
    first = example("with_accelerate.py", *arguments, "--epochs", "1", processes=processes)
    assert [line.split(":")[0] for line in first.splitlines()] == ["epoch 0"]
    assert all(f"hotset/wait/rank{rank}" in first for rank in range(processes))
    more = example("with_accelerate.py", *arguments, "--epochs", "2", processes=processes)
    assert [line.split(":")[0] for line in more.splitlines()] == ["epoch 1"]


@pytest.mark.parametrize("name", ["with_lightning.py", "with_accelerate.py"])
def test_a_strategy_is_told_what_it_asks_for(images: Path, tmp_path: Path, name: str) -> None:
    out = ("--out", tmp_path) if "lightning" in name else ()
    arguments = ("--data", images, "--epochs", "2", "--strategy", "realtime", *out, *SIZE)
    said = [line.split() for line in example(name, *arguments, overheard=True).splitlines()]
    assert [int(words[1]) for words in said if words[0] == "reevaluated"] == [0, 23]
    assert sum(words[0] == "told" for words in said) == 2
