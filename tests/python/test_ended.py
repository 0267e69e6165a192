"""What came of trainings that have ended: `hotset runs`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotset
import pytest
from processes import Server, until
from torch.utils.data import DataLoader
from trees import equal_files

_TRAINER = """
import sys
import hotset
from torch.utils.data import DataLoader
dataset = hotset.Dataset(sys.argv[1], cache="50%", job="alone")
loader = DataLoader(dataset, 10, sampler=hotset.Sampler(dataset, epochs=2), collate_fn=list)
for epoch in range(2):
    list(loader)
"""


def shown(*arguments: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "hotset", "runs", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def listed() -> list[dict[str, Any]]:
    """The same as JSON."""
    found: list[dict[str, Any]] = json.loads(shown("--json"))
    return found


def test_a_training_that_ends_says_what_it_read_and_saved(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = equal_files(tmp_path / "tree", 100, 500)
    server = serve("outside.sock", "--linger", "0")
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    assert listed() == [] and "no training has ended yet" in shown()
    dataset = hotset.Dataset(place, cache="50%", job="first")
    sampler = hotset.Sampler(dataset, "uniform", policy="minio", epochs=3)
    loader = DataLoader(dataset, 10, sampler=sampler, collate_fn=list)
    for _ in range(3):
        assert len(list(loader)) == 10
    assert listed() == [], "it trains still"
    dataset.close()
    until("it is listed", lambda: len(listed()) == 1)
    (run,) = listed()
    assert (run["job"].split("/")[0], run["strategy"], run["policy"]) == ("first", "uniform", "minio")
    assert (run["epochs"], run["served"], run["hits"]) == (3, 300, 100)
    assert (run["reads"], run["bytes"], run["plain_bytes"]) == (200, 100_000, 150_000)
    assert run["requests"] <= 200 and run["seconds"] > 0 and run["place"].endswith("tree")
    text = shown()
    assert "uniform+minio" in text and "33 %" in text and "67 %" in text
    monkeypatch.setenv("COLUMNS", "40")
    assert max(len(line) for line in shown().splitlines()) <= 40
    assert shown("--job", "another").startswith("no training has ended")


def test_a_private_server_leaves_what_came_of_its_training(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 60, 500)
    subprocess.run([sys.executable, "-c", _TRAINER, str(place)], check=True)
    until("it is listed", lambda: len(listed()) == 1)
    (run,) = listed()
    assert (run["served"], run["reads"]) == (120, 90)
