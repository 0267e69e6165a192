"""The pages that newcomers read: their code runs as it stands, and their links lead somewhere."""

from __future__ import annotations

import ast
import io
import random
import tarfile
import wave
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import ROOT, anchors, links, snippets
from PIL import Image
from trees import content

FOLDERS = ("", "docs", "docs/decisions", "examples", "examples/demo", "examples/cluster", "benchmarks")
PAGES = sorted(str(page.relative_to(ROOT)) for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))

pytestmark = pytest.mark.filterwarnings("ignore")


def png(name: str, mode: str = "RGB") -> bytes:
    """An image that belongs to `name` alone."""
    file = io.BytesIO()
    Image.frombytes(mode, (8, 8), content(name, 64 * len(mode.replace("RGB", "xyz")))).save(file, "PNG")
    return file.getvalue()


def tar(place: Path, samples: list[dict[str, bytes]]) -> None:
    """A shard of samples, given by the extensions of their members."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(place, "w") as shard:
        for number, members in enumerate(samples):
            for extension, data in members.items():
                header = tarfile.TarInfo(f"{number:04d}.{extension}")
                header.size = len(data)
                shard.addfile(header, io.BytesIO(data))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what the pages speak of, in which they are run."""
    for split, count in (("train", 24), ("val", 6)):
        for number in range(count):
            folder = tmp_path / "data" / split / f"class-{number % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:03d}.png").write_bytes(png(f"{split} {number}"))
    for shard in range(2):
        samples = [{"png": png(f"{shard} {number}"), "cls": b"%d" % (number % 3)} for number in range(10)]
        tar(tmp_path / "data" / "shards" / f"train-{shard:03d}.tar", samples)
    masks = [{"png": png(f"{number}"), "mask.png": png(f"m {number}", "L")} for number in range(3)]
    tar(tmp_path / "data" / "masks.tar", [*masks, {"png": png("alone")}])
    for number in range(10):
        folder = tmp_path / "data" / "photos" / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.open(io.BytesIO(png(f"photo {number}"))).save(folder / f"{number:03d}.jpg")
    (tmp_path / "data" / "clips").mkdir()
    for number in range(6):
        with wave.open(str(tmp_path / "data" / "clips" / f"{number}.wav"), "wb") as clip:
            clip.setparams((1, 2, 16_000, 0, "NONE", ""))
            clip.writeframes(random.Random(number).randbytes(200 + 20 * number))
    (tmp_path / "data" / "tokens.bin").write_bytes(content("tokens", 64 * 64))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(page: str) -> dict[str, Any]:
    """Runs the code of a page from its top to its end; what it has named then."""
    names: dict[str, Any] = {"__name__": "page"}
    for snippet in snippets(page):
        exec(compile(snippet, ROOT / page, "exec"), names)
    return names


def served(stats: dict[str, Any]) -> list[int]:
    """How many samples each epoch served."""
    return [epoch["served"] for epoch in stats["epochs"]]


def test_the_readmes_code_trains_and_reports_every_sample(data: Path) -> None:
    names = run("README.md")
    assert [epoch["reported"] for epoch in names["sampler"].stats()["epochs"]] == [24]
    assert names["model"][1].weight.shape == (10, 192)


def test_getting_started_trains_three_epochs_and_notes_that_storage_keeps_up(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run("docs/get-started.md")
    assert served(names["train"].stats()) == [24, 24, 24]
    said = capsys.readouterr().out
    assert "epoch 2: " in said and "24 samples served, 4 from the cache, 20 reads" in said
    assert "note: storage is not the bottleneck" in said


def test_getting_started_runs_without_the_server_for_comparison(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOTSET", "off")
    run("docs/get-started.md")
    assert "24 samples served, 0 from the cache, 24 reads" in capsys.readouterr().out


def test_code_that_replaces_other_loaders_serves_the_same_samples(data: Path) -> None:
    names = run("docs/migrate.md")
    assert names["train"].classes == ["class-0", "class-1", "class-2"]
    assert served(names["sampler"].stats()) == [24]
    with tarfile.open("data/tar/train-002.tar") as last:
        assert last.getnames() == [
            f"{number:08d}.{part}" for number in range(20, 24) for part in ("png", "cls")
        ]


def test_every_recipe_gives_what_it_says(data: Path) -> None:
    names = run("docs/recipes.md")
    assert served(names["val"].stats()) == [] and names["val"].stats()["unplanned"]["served"] == 6
    assert names["age"] == 1.5
    assert names["mask"].shape == (8, 8) and names["mask"].sum() > 0
    assert names["waves"].shape == (2, names["lengths"].max()) and names["lengths"].min() >= 100
    assert [photo.shape for photo in names["photos"]] == [(3, 8, 8)] * 2
    assert names["inputs"].shape == (8, 31) and torch.equal(names["inputs"][:, 1:], names["targets"][:, :-1])
    # One epoch that was stopped and resumed, and two more.
    assert served(names["sampler"].stats()) == [24, 24, 24]


def test_code_of_other_loaders_is_python() -> None:
    others = snippets("docs/migrate.md", "py")
    assert len(others) == 4 and all(ast.parse(snippet).body for snippet in others)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(str(target.resolve().relative_to(ROOT))), link
