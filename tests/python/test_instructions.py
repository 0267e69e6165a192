"""The count of instructions, in a small way: what it runs reads hits, and valgrind counts them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from hotset import _core

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import instructions

BATCHES = 3


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The samples."""
    return instructions.files(tmp_path / "tree")


def test_what_is_counted_are_batches_of_hits(tree: Path, runtime: Path) -> None:
    (work := runtime.parent / "work").mkdir(mode=0o700)
    said = instructions.read(_core.__file__, tree, BATCHES, work)
    assert said["single"] == instructions.SAMPLES
    assert said["hit"] == BATCHES * instructions.BATCH
    assert said["served"] == said["single"] + said["hit"]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is missing")
def test_instructions_of_server_and_client_are_counted(tree: Path, runtime: Path) -> None:
    server, client = instructions.run(_core.__file__, tree, BATCHES, runtime.parent / "work")
    # Every sample takes some hundreds in each, the first time and as a hit.
    assert min(server, client) > 100 * (instructions.SAMPLES + BATCHES * instructions.BATCH)
