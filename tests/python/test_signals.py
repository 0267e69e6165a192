"""Signals and ends of trainers and their private servers: what goes with them, and what stays usable."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import hotset
import pytest
from hotset import _core
from hotset._client import private_server as private
from hotset._client.deadline import Deadline
from hotset._client.server import Link
from processes import Server, Trainer, alive, naming, until, until_gone
from trees import equal_files, labelled_files

WAIT = 120.0
LONG = ("--batch", "1", "--pause", "0.3")
"""Makes a training last, so that it is in its first epoch when it is ended, however late that is."""


def test_ctrl_c_ends_a_training_loop_and_all_that_belongs_to_it(tmp_path: Path, runtime: Path) -> None:
    labelled_files(tmp_path / "tree", 200, largest=500)
    trainer = Trainer(tmp_path / "tree", *LONG)
    trainer.until_going()
    assert naming(str(runtime))
    os.killpg(trainer.process.pid, signal.SIGINT)
    # Python dies of the signal itself, which a shell shows as 130.
    assert trainer.process.wait(WAIT) in (-signal.SIGINT, 130)
    until_gone(trainer.process.pid, str(runtime), WAIT)
    assert trainer.complained().count("Traceback") <= 1, trainer.complained()
    assert "KeyboardInterrupt" in trainer.complained()
    assert "hotset." not in trainer.complained().replace("hotset._client.server", ""), trainer.complained()


@pytest.mark.parametrize("ends", [2, 3])
def test_a_server_that_is_killed_as_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    start, started = private.start, 0

    def killed(path: str, main_pid: int, deadline: Deadline) -> None:
        nonlocal started
        started += 1
        if started <= ends:
            raise private.EndedError("it ended at once")
        start(path, main_pid, deadline)

    monkeypatch.setattr(private, "start", killed)
    place = equal_files(tmp_path / "tree", 3, 10)
    if ends == 2:
        assert hotset.Dataset(place)[0]
    else:
        with pytest.raises(hotset.UnavailableError, match="ended at once"):
            hotset.Dataset(place)
    assert started == 3


def test_a_server_goes_after_its_trainer_was_killed(tmp_path: Path, runtime: Path) -> None:
    labelled_files(tmp_path / "tree", 200, largest=500)
    trainer = Trainer(tmp_path / "tree", *LONG)
    server = trainer.until_going()["server"]
    assert alive(server)
    trainer.process.kill()
    trainer.process.wait()
    until("the server goes", lambda: not alive(server), WAIT)
    # The workers notice by themselves; none may bring the server back.
    until_gone(trainer.process.pid, str(runtime), WAIT)


def test_ctrl_c_does_not_end_a_private_server(tmp_path: Path, runtime: Path) -> None:
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    server = dataset.stats()["server"]["pid"]
    os.kill(server, signal.SIGINT)
    pending = re.compile(r"^(SigPnd|ShdPnd):\t0*[1-9a-f]", re.MULTILINE)
    status = Path(f"/proc/{server}/status")
    until("the signal has arrived", lambda: not pending.search(status.read_text()))
    # One that is to end looks whether it is before each client that it lets in.
    (socket,) = runtime.glob("*.sock")
    for _ in range(3):
        client = hotset.Client(str(socket), main_pid=os.getpid(), timeout=WAIT)
        assert client.server_pid == server
        client.close()
    assert dataset[0]
    assert dataset.stats()["server"]["pid"] == server
    assert os.getsid(server) != os.getsid(0)


def test_a_private_server_is_nobodys_child_and_holds_nothing_of_its_trainer(tmp_path: Path) -> None:
    ours = os.open(tmp_path / "ours", os.O_CREAT | os.O_WRONLY)
    os.set_inheritable(ours, True)
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10))
    server = dataset.stats()["server"]["pid"]
    parent = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()
    held = {str(entry.readlink()) for entry in Path(f"/proc/{server}/fd").iterdir()}
    assert str(tmp_path / "ours") not in held
    os.close(ours)


def test_a_handler_that_raises_at_any_moment_leaves_the_connection_usable(
    serve: Callable[..., Server],
) -> None:
    """As torch's does in the main thread when a worker is killed."""
    link = Link(str(serve().socket), private=False, main_pid=os.getpid())

    def interrupted(moment: int) -> bool:
        """Raises before the `moment`th instruction of getting a connection, if there are as many."""
        count = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            if not frame.f_code.co_filename.endswith("hotset/_client/server.py"):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                count += 1
                if count == moment:
                    sys.settrace(None)
                    raise InterruptedError
            return trace

        sys.settrace(trace)
        try:
            link.client(Deadline(WAIT))
        except InterruptedError:
            return True
        finally:
            sys.settrace(None)
        return False

    moment = 1
    while interrupted(moment):
        assert link.client(Deadline(WAIT)) is link.standing(), f"after instruction {moment}"
        # Another thread has no part in what was left undone.
        with ThreadPoolExecutor(1) as others:
            client = others.submit(link.client, Deadline(WAIT)).result()
        assert client is link.standing(), f"after instruction {moment}"
        moment += 1
    assert moment > 30
    link.client(Deadline(WAIT)).close()


class Alarm(Exception):
    """What the handler of a signal raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Has `Alarm` raised after so many seconds."""

    def handler(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_call_that_a_signal_ended_is_not_taken_for_a_server_that_went_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, alarm: Callable[[float], None]
) -> None:
    place = equal_files(tmp_path / "tree", 4, 50)
    train = hotset.Dataset(place, storage_options={"throttle.latency": "1s"})
    alarm(0.3)
    with pytest.raises(Alarm):
        train.__getitems__(range(4))
    assert len(train[0]) == 50
    assert "went away" not in caplog.text


def test_what_a_handler_raises_while_settings_are_read_is_not_lost(
    serve: Callable[..., Server], alarm: Callable[[float], None]
) -> None:
    client = _core.Client(str(serve().socket), main_pid=0, timeout=WAIT)
    # So many that a signal mostly comes while they are read.
    many = {"strategy": "uniform", "strategy_settings": {str(number): "x" for number in range(200_000)}}
    for _ in range(10):
        alarm(0.01)
        with pytest.raises(Alarm):
            client.open_job("job", many, wait=WAIT)
