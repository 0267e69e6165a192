"""Every test has a runtime directory of its own, and leaves nothing in it: no process, no socket, no file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hotset
import pytest
from hotset._client import notes
from processes import Server, naming, until

_CLEARED = (
    *("HOTSET", "HOTSET_SERVER", "HOTSET_SERVER_USER", "HOTSET_RUN", "HOTSET_RECORD", "HOTSET_LOG"),
    *("HOTSET_SHARED", "HOTSET_SHARED_USER", "HOTSET_CLUSTER", "HOTSET_ETCD_PASSWORD"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    *("SLURM_JOB_ID", "SLURM_RESTART_COUNT"),
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows what tests have measured: their `measured` properties."""
    reports = [each for outcome in ("passed", "failed") for each in terminalreporter.getreports(outcome)]
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: "
        + ", ".join(f"{what.replace('_', ' ')} {figure}" for what, figure in figures.items())
        for report in reports
        for name, figures in report.user_properties
        if name == "measured" and report.when == "call"
    ]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime directory of this test, short enough for sockets."""
    notes.forget()
    for name in _CLEARED:
        monkeypatch.delenv(name, raising=False)
    top = Path(tempfile.mkdtemp(prefix="hs-"))
    directory = top / "run"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("HOTSET_RUNTIME_DIR", str(directory))
    monkeypatch.setenv("HOTSET_CACHE_DIR", str(top / "cache"))
    yield directory
    hotset.stop_private()
    until(f"no process is left: {naming(str(directory))}", lambda: not naming(str(directory)))
    left = sorted(entry.name for entry in directory.iterdir())
    shutil.rmtree(top)
    assert left == [], "left in the runtime directory"


@pytest.fixture
def serve(runtime: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers as a user does; they are stopped after the test."""
    started: list[Server] = []

    def start(name: str = "outside.sock", *arguments: str) -> Server:
        started.append(Server(runtime / name, *arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()
        # A killed one leaves its socket, as a crash does.
        server.socket.unlink(missing_ok=True)
