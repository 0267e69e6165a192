"""What a private server runs: the module its trainer has imported, whatever lies around."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hotset import _core
from trees import equal_files

_TRAINER = """
import json, os, sys
import hotset
os.chdir(sys.argv[2])
dataset = hotset.Dataset(sys.argv[1])
said = dataset.stats()["server"]
maps = open(f"/proc/{said['pid']}/maps").read()
print(json.dumps({"sample": len(dataset[1]), "version": said["version"], "maps": maps}))
"""


def test_nothing_in_the_current_directory_is_run_by_a_private_server(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 3, 10)
    shared = tmp_path / "shared"
    shared.mkdir()
    ran = tmp_path / "ran"
    for name in ("hotset", "importlib", "os", "sitecustomize", "usercustomize"):
        (shared / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\nraise SystemExit(3)\n")
    # The trainer itself looks for nothing there, and neither does what it starts.
    trainer = subprocess.run(
        [sys.executable, "-P", "-c", _TRAINER, str(place), str(shared)],
        cwd=shared,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert trainer.returncode == 0, trainer.stderr
    assert not ran.exists(), ran.read_text()
    said = json.loads(trainer.stdout)
    assert (said["sample"], said["version"]) == (10, _core.__version__)
    # The very file that the trainer has imported, wherever its path led to.
    assert os.path.realpath(_core.__file__) in said["maps"]
