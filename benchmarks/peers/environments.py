"""An environment for each library, in `.cache/peers`: what it needs, pinned, over the torch that is there.

Each sees the packages of the Python that runs the benchmark behind its own, by a line in a `.pth` file. What
is installed is `requirements/peers/NAME.txt` and nothing else, and nothing of Hotset ever asks for it. A
stamp keeps what was installed; an environment whose list has changed is made anew.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".cache" / "peers"
SECONDS = 600
"""For one installation."""


class MissingError(Exception):
    """A library cannot be installed; the message is the last line of pip."""


def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made if it is not there."""
    wanted = (ROOT / "requirements" / "peers" / f"{name}.txt").read_text()
    folder = PLACE / name
    stamp, python = folder / "installed.txt", folder / "bin" / "python"
    told = f"{sys.version}\n{wanted}"
    if stamp.exists() and stamp.read_text() == told:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.write(f"installing {name} {version(name)} into {folder.relative_to(ROOT)}\n")
    venv.create(folder, with_pip=True, symlinks=True)
    own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    shared = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (own / "shared.pth").write_text("".join(f"{path}\n" for path in shared))
    options = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [str(python), "-m", "pip", "install", *options]
    try:
        done = subprocess.run(
            [*command, "-r", str(ROOT / "requirements" / "peers" / f"{name}.txt")],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"not installed within {SECONDS} s") from error
    if done.returncode:
        raise MissingError((done.stderr.strip() or "pip failed").splitlines()[-1])
    stamp.write_text(told)
    return python


def version(name: str) -> str:
    """The pinned version of the library itself: the first line of its list that is not a remark."""
    lines = (ROOT / "requirements" / "peers" / f"{name}.txt").read_text().splitlines()
    return next(line for line in lines if line and not line.startswith("#")).partition("==")[2]
