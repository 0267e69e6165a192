"""Programs of the training benchmark, and images small enough for a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PIL import Image
from trees import content

ROOT = Path(__file__).parents[2]


def few_images(place: Path) -> Path:
    """Forty images of five classes to train with, ten to test with."""
    for split, count in (("train", 8), ("test", 2)):
        for label in range(5):
            folder = place / split / f"class-{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                name = f"{split}-{label}-{number}"
                Image.frombytes("RGB", (32, 32), content(name, 3072)).save(folder / f"{number:03d}.jpg")
    return place


def benchmark(name: str, *arguments: str | Path) -> str:
    """Runs a program of the benchmark; what it wrote to standard output."""
    command = [sys.executable, "-m", f"benchmarks.train.{name}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    return done.stdout
