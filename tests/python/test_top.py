"""`hotset top` in a terminal, as a user sees it; what it draws is tested line by line beside it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import hotset
import pytest
from processes import Server, until
from trees import equal_files

COMMAND = [sys.executable, "-m", "hotset", "top"]

COLOUR = re.compile(rb"\x1b\[[34]8;5;\d+[;m]")


class Screen:
    """A terminal of 80 columns, and all that was written to it."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self.written = b""
        self._terminal = terminal

    def shows(self, words: bytes) -> bool:
        """Whether these were written so far. What stays on the screen is not written again."""
        with suppress(OSError):
            self.written += os.read(self._terminal, 1 << 16)
        return words in self.written

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)


@contextmanager
def top(*arguments: str, **variables: str) -> Iterator[Screen]:
    """Runs it; it is ended by a key, or at the end by its id."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    os.set_blocking(ours, False)
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"TERM": "xterm-256color", **variables}
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Screen(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_job_is_shown_until_a_key_ends_it(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), job="mine")
    assert dataset[0]
    with top("--every", "0.1") as screen:
        until("the job is shown", lambda: screen.shows(b"mine"))
        assert COLOUR.search(screen.written)
        dataset.close()
        until("it is marked as ended", lambda: screen.shows(b"ended"))
        server.stop()
        until("the server is said to be gone", lambda: screen.shows(b"gone"))
        screen.press(b"q")
        until("it ends", lambda: screen.shows(b"\x1b[?1049l") and screen.process.poll() == 0)


def test_without_a_server_it_waits_for_one_without_colours(runtime: Path) -> None:
    with top("--every", "0.1", NO_COLOR="1") as screen:
        until("it says so", lambda: screen.shows(b"no Hotset server"))
        assert not COLOUR.search(screen.written)
        screen.press(b"\x03")
        until("it ends", lambda: screen.process.poll() == 0)


def test_who_ends_it_from_outside_finds_the_terminal_as_it_was(runtime: Path) -> None:
    with top("--every", "0.1") as screen:
        until("it draws", lambda: screen.shows(b"no Hotset server"))
        screen.process.terminate()
        until("it ends", lambda: screen.shows(b"\x1b[?1049l") and screen.process.poll() == 0)


def test_into_a_pipe_it_names_the_command_for_it() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True)
    assert done.returncode == 1 and "`hotset stats --watch`" in done.stderr, done.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_pause_of_nothing_is_refused_by_name(seconds: str) -> None:
    done = subprocess.run([*COMMAND, f"--every={seconds}"], capture_output=True, text=True)
    assert done.returncode == 1 and "`every`" in done.stderr, done.stderr


def test_watching_says_rates_from_the_second_answer_on(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSET_SERVER", str(serve().socket))
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), job="mine")
    assert dataset[0]
    command = [sys.executable, "-m", "hotset", "stats", "--watch", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        before: list[str] = []
        for line in lines:
            if line.lstrip().startswith("now: "):
                break
            before.append(line)
        assert "samples/s" in line and "from storage" in line, line
        assert sum(text.startswith("server ") for text in before) >= 2, before
    finally:
        process.kill()
        process.wait()
