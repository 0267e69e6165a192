"""Trainer and server in different PID namespaces, as containers have them: only their user matters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hotset
import pytest
from hotset._client import runtime as sockets
from processes import Server, alive, until
from trees import content, equal_files

# A namespace of its own, for whoever runs this; only root needs no user namespace for that.
_APART = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-current-user"]), "--pid", "--fork"]
_READ = "import hotset, sys; sys.stdout.buffer.write(hotset.Dataset(sys.argv[1], wait=60)[1])"


def test_a_trainer_in_another_namespace_is_served(tmp_path: Path, serve: Callable[..., Server]) -> None:
    place = equal_files(tmp_path / "tree", 3, 100)
    server = serve()
    named = {**os.environ, "HOTSET_SERVER": str(server.socket)}
    command = [*_APART, sys.executable, "-c", _READ, str(place)]
    trainer = subprocess.run(command, env=named, capture_output=True)
    assert trainer.returncode == 0, trainer.stderr.decode()
    assert trainer.stdout == content("000001.bin", 100)


def test_a_server_in_another_namespace_serves(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = equal_files(tmp_path / "tree", 3, 100)
    socket = str(runtime / "apart.sock")
    command = [*_APART, "--kill-child", sys.executable, "-m", "hotset", "serve", "--socket", socket]
    apart = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until("it listens", lambda: hotset_listens(socket))
        monkeypatch.setenv("HOTSET_SERVER", socket)
        dataset = hotset.Dataset(place, wait=60.0)
        assert dataset[1] == content("000001.bin", 100)
        dataset.close()
    finally:
        apart.kill()
        apart.wait()
        until("it is gone", lambda: not hotset_listens(socket))
        Path(socket).unlink(missing_ok=True)
    assert not alive(apart.pid)


def hotset_listens(socket: str) -> bool:
    """Whether somebody listens on `socket`."""
    return sockets.listener(socket) is not None
