"""Packages of a run without a name do not outlive it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from processes import naming, until
from trees import equal_files

TRAINING = """
import os, signal, sys, time
import hotset, torch
from torch.utils.data import DataLoader

place, packages, end, job = sys.argv[1:]
train = hotset.Dataset(place, cache="25%", with_ids=True, job=job or None)
sampler = hotset.Sampler(train, "iis", packages=packages, package_size="8KiB")
loader = DataLoader(train, batch_size=25, sampler=sampler, collate_fn=list)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in loader:
        ids = torch.tensor([number for _, number in batch])
        sampler.update(ids, (ids % 13).float() + 1)
while train.stats()["packages"]["packing"]:
    time.sleep(0.05)
assert train.stats()["packages"]["packages"] > 0
if end == "killed":
    os.kill(train.stats()["server"]["pid"], signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by(place: Path, runtime: Path, *, end: str = "", job: str = "") -> int:
    """How many packages lie beside `place` once a training over it and its server are gone."""
    packages = place.parent / "packages"
    command = [sys.executable, "-c", TRAINING, str(place), str(packages), end, job]
    done = subprocess.run(command, stdin=subprocess.DEVNULL)
    assert done.returncode == (-signal.SIGKILL if end == "killed" else 0)
    until("the server is gone", lambda: not naming(str(runtime)))
    for socket in runtime.glob("*.sock"):
        # A killed server leaves it.
        socket.unlink()
    return len(list(packages.rglob("*.hotset")))


def test_a_run_without_a_name_removes_its_packages(tmp_path: Path, runtime: Path) -> None:
    place = equal_files(tmp_path / "data", 800, 500)
    assert left_by(place, runtime) == 0
    assert left_by(place, runtime, job="mine") > 0, "a run with a name goes on with them"


def test_what_a_killed_run_leaves_is_removed_by_the_next(tmp_path: Path, runtime: Path) -> None:
    place = equal_files(tmp_path / "data", 800, 500)
    assert left_by(place, runtime, end="killed") > 0
    assert left_by(place, runtime) == 0
