"""Which server, and the way to it from every process of a training run.

In order: the one that `HOTSET_SERVER` names, the user's running one (`server.sock` in the runtime directory),
a private one of this run. The process that makes a dataset decides, and its `Link` travels to loader workers,
so that all use the same. A process has one connection to a server, opened on first use; a forked child closes
what it inherited. When the server is gone, a private one is started again by the process that notices first,
under the directory's lock; any other is waited for.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .. import _core
from ..errors import InvalidError, UnavailableError
from . import private_server, runtime
from .deadline import DEFAULT_WAIT, Deadline, check_wait
from .job import run_name, short_hash
from .settings import Settings

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

_FIRST_PATIENCE = 5.0
"""Seconds that the server named by `HOTSET_SERVER` has to answer at first, since it may just be starting."""

_HELLO = 5.0
"""Seconds a server has to greet a new connection."""

_GLANCE = 0.01
"""Seconds between two looks whether another thread has opened the connection."""

_ATTEMPTS = 12
"""How often one call is made; a server that ends each time it is asked is not started for ever."""

_ENDS = 3
"""How many servers may end as they start before that is an error."""


@dataclass(frozen=True)
class Link:
    """The way to one server, from whatever process holds this."""

    path: str
    """The server's socket."""
    private: bool
    """Whether the server is this run's own, to be started again when it is gone."""
    main_pid: int
    """The training process that this connection works for, as reported to the server."""
    user: int | None = None
    """The user whose server this may be, beside this process's own."""

    def call(self, work: Callable[[_core.Client, float], _Answer], deadline: Deadline) -> _Answer:
        """What `work` returns when given a connection and the seconds that remain.

        Called again when the server went away meanwhile; a new one knows no jobs and says `LostError`.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            client = self.client(deadline)
            try:
                return work(client, deadline.left())
            except UnavailableError as error:
                # A connection that still stands means that the store does not answer, not the server.
                if not client.closed or deadline.passed or attempt == _ATTEMPTS:
                    raise
                _log.debug("the server at %s went away: %s", self.path, error)
            except BaseException:
                # What a signal's handler raises ends the call and its connection; the server has not gone.
                slot = _slots.get(self)
                if slot is not None and slot.client is client and client.closed:
                    slot.client = None
                raise
        raise AssertionError("unreachable")

    def client(self, deadline: Deadline) -> _core.Client:
        """The connection of this process, opened if there is none."""
        slot, own = _slots.setdefault(self, _Slot()), threading.get_ident()
        try:
            while not slot.taken_by(own):
                if deadline.passed:
                    seconds = f"{deadline.seconds:g} s"
                    raise UnavailableError(
                        f"the server at `{self.path}` has not answered another thread in {seconds}"
                    )
                time.sleep(_GLANCE)
            if slot.client is None or slot.client.closed:
                if slot.client is not None:
                    _log.warning("the server at %s went away; connecting again", self.path)
                slot.client = self._owned(deadline) if self.private else self._awaited(deadline)
            return slot.client
        finally:
            slot.left_by(own)

    def standing(self) -> _core.Client | None:
        """The connection of this process if there is one; nothing is waited for or started."""
        slot = _slots.get(self)
        return None if slot is None or slot.client is None or slot.client.closed else slot.client

    def _connect(self, deadline: Deadline) -> _core.Client:
        timeout = max(min(deadline.left(), _HELLO), 0.1)
        return _core.Client(self.path, main_pid=self.main_pid, timeout=timeout, user=self.user)

    def _owned(self, deadline: Deadline) -> _core.Client:
        ended = 0
        for _ in range(_ATTEMPTS):
            try:
                return self._connect(deadline)
            except UnavailableError as error:
                _log.debug("no server at %s yet: %s", self.path, error)
            directory = runtime.prepared(Path(self.path).parent)
            with runtime.lock(directory, deadline):
                # The process that had the lock before may have started it.
                if runtime.listener(self.path) is None:
                    try:
                        private_server.start(self.path, self.main_pid, deadline)
                    except private_server.EndedError:
                        # One that cannot run ends every time, one that was killed does not.
                        ended += 1
                        if ended == _ENDS:
                            raise
        return self._connect(deadline)

    def _awaited(self, deadline: Deadline) -> _core.Client:
        pause = 0.05
        while True:
            try:
                return self._connect(deadline)
            except UnavailableError as error:
                if deadline.left() <= pause:
                    raise UnavailableError(
                        f"the server at `{self.path}` has not answered for {deadline.seconds:g} s "
                        f"(`wait=`): {error}"
                    ) from error
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def find(run: str, main_pid: int, settings: Settings, deadline: Deadline) -> Link:
    """The server that this run uses, connected to."""
    if settings.server is not None:
        return _named(settings.server, settings.server_user, main_pid, deadline)
    directory = runtime.prepared(settings.runtime)
    running = Link(runtime.socket_path(directory, "server.sock"), private=False, main_pid=main_pid)
    if runtime.listener(running.path) is not None:
        try:
            running.client(deadline.within(_HELLO))
            return running
        except (InvalidError, UnavailableError) as error:
            _log.warning("the running server is not used, a private one is: %s", error)
    own = Link(runtime.socket_path(directory, f"{short_hash(run)}.sock"), private=True, main_pid=main_pid)
    own.client(deadline)
    return own


def connect(*, job: str | None = None, wait: float = DEFAULT_WAIT) -> _core.Client:
    """A connection of your own to the server that datasets made here would use.

    For programs that speak to the server themselves. It belongs to this process and is not opened again when
    the server goes away.
    """
    settings, deadline = Settings.read(), Deadline(check_wait(wait))
    link = find(run_name(job, settings), os.getpid(), settings, deadline)
    return _core.Client(link.path, main_pid=link.main_pid, timeout=deadline.left(), user=link.user)


def stop_private() -> None:
    """Ends the private servers this process has used and waits until they are gone.

    They end by themselves seconds after the training process; a notebook or a test may want it sooner.
    """
    own = threading.get_ident()
    for link, slot in list(_slots.items()):
        if link.private:
            try:
                while not slot.taken_by(own):
                    time.sleep(_GLANCE)
                if slot.client is not None:
                    slot.client.close()
                    slot.client = None
            finally:
                slot.left_by(own)
            private_server.stop(link.path)
            del _slots[link]


def _named(path: str, user: int | None, main_pid: int, deadline: Deadline) -> Link:
    link = Link(os.path.abspath(path), private=False, main_pid=main_pid, user=user)
    patience = deadline.within(_FIRST_PATIENCE)
    try:
        link.client(patience)
    except UnavailableError as error:
        raise UnavailableError(
            f"no server answered within {patience.seconds:g} s at `{link.path}`, which HOTSET_SERVER names; "
            f"start one with `hotset serve --socket {link.path}`, or unset HOTSET_SERVER: {error}"
        ) from error
    return link


class _Slot:
    """A process's connection to one server, and the thread that is opening it.

    A signal's handler may raise anywhere, and torch's does when a worker dies: a lock could stay locked. So a
    thread takes the slot by one operation on a dictionary, which is whole or not at all, and one that was
    interrupted before it could leave finds the slot still its own.
    """

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self.client: _core.Client | None = None

    def taken_by(self, thread: int) -> bool:
        """Takes it for `thread` unless another has it."""
        return self._taken.setdefault("by", thread) == thread

    def left_by(self, thread: int) -> None:
        """Leaves it to others, if `thread` has it."""
        if self._taken.get("by") == thread:
            del self._taken["by"]


_slots: dict[Link, _Slot] = {}


def _forget_after_fork() -> None:
    global _slots
    # The native side closes its copies first, so that dropping them says nothing to the parent's server. The
    # parent's locks may be held by threads that do not exist here.
    _core.after_fork_in_child()
    _slots = {}


os.register_at_fork(
    before=_core.before_fork,
    after_in_parent=_core.after_fork_in_parent,
    after_in_child=_forget_after_fork,
)
