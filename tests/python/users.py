"""Other users of this host, as real processes of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ALICE, BOB, MALLORY = 41001, 41002, 41003
GROUP = 41900


def need_root() -> None:
    """Fails where this process cannot start others as other users: what is tested here would go untested."""
    assert os.geteuid() == 0, (
        "these tests start processes of other users: run them as root (a container's root will do)"
    )


def own(user: int, *paths: Path) -> None:
    """Gives `paths` and all below them to `user`."""
    for path in paths:
        for each in [path, *path.rglob("*")]:
            os.chown(each, user, user, follow_symlinks=False)


def home(user: int, top: Path) -> dict[str, str]:
    """The environment of `user`, with directories of its own below `top`."""
    directory = top / str(user)
    for name in ("run", "cache", "tmp"):
        (directory / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    own(user, directory)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOTSET", "XDG"))}
    own_places = {
        "HOME": str(directory),
        "TMPDIR": str(directory / "tmp"),
        "HOTSET_RUNTIME_DIR": str(directory / "run"),
        "HOTSET_CACHE_DIR": str(directory / "cache"),
    }
    return {**kept, **own_places}


_BECOME = """
import ctypes, json, os, socket, struct, sys, time
import hotset, hotset.__main__, hotset._core
user, groups = int(sys.argv[1]), json.loads(sys.argv[2])
os.setgroups(groups)
os.setgid(user)
os.setuid(user)
# As a process that was the user's from the start: it may be looked into by its user, and by nobody else.
assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0
del sys.argv[1:3]
"""
"""The interpreter may lie where others cannot read, so it becomes another user's with all that it needs."""

SERVE = "sys.exit(hotset._core.main(['hotset', 'serve', *sys.argv[1:]]))"
"""Runs a server."""


def start(
    user: int,
    script: str,
    environment: Mapping[str, str],
    *arguments: str,
    groups: Sequence[int] = (),
    before: str = "",
) -> subprocess.Popen[str]:
    """Starts a process of `user` that runs a script, after what it does `before` it is that user's."""
    need_root()
    return subprocess.Popen(
        [sys.executable, "-c", before + _BECOME + script, str(user), json.dumps([*groups]), *arguments],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def run(
    user: int,
    script: str,
    environment: Mapping[str, str],
    *arguments: str,
    groups: Sequence[int] = (),
    before: str = "",
) -> str:
    """What a script prints as `user`."""
    process = start(user, script, environment, *arguments, groups=groups, before=before)
    out, error = process.communicate("", timeout=120)
    assert process.returncode == 0, error
    return out
