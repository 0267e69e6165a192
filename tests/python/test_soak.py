"""A minute of the soak: trainings whose workers, servers and storage fail, one strategy after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_minute_of_kills_and_faults_leaves_no_wrong_byte_nothing_stuck_and_nothing_behind(
    tmp_path: Path,
) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0", "--each", "4"]
    # Packages are read from the second epoch on, which a slow machine does not reach in time.
    command += ["--epochs", "3", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(figures.read_text())
    assert said["cycles"] == len(said["memory"]) == 3
    assert said["killed_workers"] > 0
    assert said["killed_servers"] > 0
    trained = said["trained"]
    assert trained["deaths"] > 0
    assert min(trained[name] for name in ("servings", "packed", "rejected_scores", "changes")) > 0
