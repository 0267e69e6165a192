"""A private server: started for one run on this host, and gone seconds after its last trainer.

It is a process of a session of its own, so that Ctrl-C and a closing terminal do not reach it, and not
a child of the trainer or loader worker that started it, so that it never becomes their zombie. It says
`ready` or its error on a pipe.

It runs the very native module that this process has imported, by its path, in an interpreter that looks for
nothing else: not in the current directory, which another user may write to, nor in `PYTHONPATH`. So whatever
led this process to its `hotset`, a wheel, a `.pth` file or a path of its own, the server is the same one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from .. import _core
from ..errors import UnavailableError
from . import runtime
from .deadline import Deadline
from .settings import environment_of_server

_START = 60.0
"""Seconds a server has to say `ready`: it takes a fraction of one, unless the machine is swamped."""

_NATIVE = os.path.abspath(_core.__file__)
"""Where the native module lies; taken now, since a training may change its directory."""

_ALONE = ("-I", "-S")
"""Neither the current directory, the environment nor `site` says where this interpreter finds modules."""

# The command line of the native module at a path; it needs nothing else of the package.
_SERVE = """\
import importlib.util, sys
_, path, *arguments = sys.argv
spec = importlib.util.spec_from_file_location("hotset._core", path)
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
sys.exit(core.main(["hotset", *arguments]))
"""

# Starts the server and ends at once, which leaves the server to the init process.
_DETACH = "import os, sys\nif os.fork() == 0: os.execv(sys.argv[1], sys.argv[1:])"


class EndedError(UnavailableError):
    """A server ended before it was ready, and did not say why: it may have been killed."""


def start(path: str, main_pid: int, deadline: Deadline) -> None:
    """Starts a server on the socket `path` and waits until it listens. Call it under the directory's lock."""
    if not alive(main_pid):
        # A worker that outlives its trainer must not bring back a server that nothing will end.
        raise UnavailableError(f"the training process `{main_pid}` has ended, and its server with it")
    if not sys.executable:
        raise UnavailableError(
            "a private server cannot be started, because this program does not know its Python interpreter; "
            "start `hotset serve` and set HOTSET_SERVER to its socket"
        )
    deadline = deadline.within(_START)
    runtime.sweep(Path(path).parent)
    reader, writer = os.pipe()
    try:
        try:
            python = [sys.executable, *_ALONE, "-c"]
            server = [*python, _SERVE, _NATIVE, "serve", "--embedded", "--socket", path]
            server += ["--watch", str(main_pid), "--ready-fd", str(writer)]
            subprocess.run(
                [*python, _DETACH, *server],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=_stderr(),
                pass_fds=(writer,),
                start_new_session=True,
                env=environment_of_server(),
                timeout=max(deadline.left(), 1.0),
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UnavailableError(f"a private server cannot be started: {error}") from error
        finally:
            os.close(writer)
        said = _first_line(reader, deadline)
    finally:
        os.close(reader)
    if not said and not deadline.passed:
        raise EndedError(f"the private server at `{path}` did not start: it ended at once; see its log above")
    if said != "ready":
        reason = said or f"it said nothing in {deadline.seconds:g} s"
        raise UnavailableError(f"the private server at `{path}` did not start: {reason}")


def stop(path: str) -> None:
    """Ends the server that listens on `path`, if there is one, and waits until it is gone."""
    pid = runtime.listener(path)
    if not pid:
        return
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGTERM)
            waiting = select.poll()
            waiting.register(process, select.POLLIN)
            waiting.poll(10_000)
        finally:
            os.close(process)


def alive(pid: int) -> bool:
    """Whether the process `pid` runs; one that ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as status:
            return status.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _stderr() -> int | None:
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return None


def _first_line(pipe: int, deadline: Deadline) -> str:
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    said = b""
    while b"\n" not in said:
        if not waiting.poll(deadline.left() * 1000):
            break
        read = os.read(pipe, 4096)
        if not read:
            break
        said += read
    return said.partition(b"\n")[0].decode(errors="replace").strip()
