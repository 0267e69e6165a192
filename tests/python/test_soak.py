"""A short soak: three jobs at once, of which some are killed and gone on with, as is their server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOBS, COUNT = 3, 5


def test_jobs_that_come_go_and_are_killed_leave_no_wrong_byte_nothing_stuck_and_nothing_behind(
    tmp_path: Path,
) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0", "--jobs", str(JOBS)]
    command += [
        "--count",
        str(COUNT),
        "--epochs",
        "3",
        "--samples",
        "320",
        "--no-private",
        "--json",
        str(figures),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(figures.read_text())
    total = said["total"]
    assert total["started"] == COUNT and said["most"] == JOBS
    # Of five processes, three are killed, and two of these gone on with, each in its way.
    assert total["lost"] >= 1 and total["resumed"] >= 1 and total["loaded"] >= 1
    assert total["killed"] == total["lost"] + total["resumed"] + total["loaded"]
    assert total["finished"] == COUNT - total["lost"] >= 2
    assert said["server_kills"] >= 1
    # A job has two epochs at least, on 192 samples or more, of which some strategies leave out a part.
    assert total["epochs"] >= 2 * total["finished"] and total["samples"] > 100 * total["epochs"]
    assert said["seen"]["rejected_scores"] > 0
