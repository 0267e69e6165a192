"""The directory where sockets lie, and the lock that elects the process that starts a server there.

The directory belongs to one user alone, so no other user can put a socket in our way. The lock is taken on
the directory itself: the kernel drops it with its holder, so there is no lock file that could be left behind
or be removed while it is held. A server binds its socket while its starter holds the lock, so under the
lock a socket without a listener is stale for certain.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import InvalidError, UnavailableError
from .deadline import Deadline

_LONGEST = 107
"""What a `sockaddr_un` takes, less the closing zero."""

_PRIVATE = re.compile(r"[0-9a-f]{16}\.sock")
_CREDENTIALS = struct.Struct("3i")


def prepared(directory: Path) -> Path:
    """`directory`, made if it is not there, refused unless it is this user's alone."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise InvalidError(
            f"the runtime directory `{directory}` cannot be made: {error.strerror}; "
            "set HOTSET_RUNTIME_DIR to a directory of your own"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        wrong = "is not a directory"
    elif found.st_uid != os.geteuid():
        wrong = "belongs to another user"
    elif found.st_mode & 0o077:
        wrong = f"can be reached by other users (mode {found.st_mode & 0o777:o}; `chmod 700` it)"
    else:
        return directory
    raise InvalidError(
        f"the runtime directory `{directory}` {wrong}; set HOTSET_RUNTIME_DIR to a directory of your own"
    )


def socket_path(directory: Path, name: str) -> str:
    """The socket `name` in `directory`, refused if the kernel cannot take so long a name."""
    path = str(directory / name)
    if len(os.fsencode(path)) > _LONGEST:
        raise InvalidError(
            f"the socket `{path}` has a longer name than the {_LONGEST} bytes a socket can have; "
            "set HOTSET_RUNTIME_DIR to a shorter directory"
        )
    return path


@contextlib.contextmanager
def lock(directory: Path, deadline: Deadline) -> Iterator[None]:
    """Holds the directory's lock, for starting a server in it."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Asked again and again rather than waited for, since only so can the wait end.
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.passed:
                    raise UnavailableError(
                        f"another process has held the lock on `{directory}` for {deadline.seconds:g} s "
                        "while it starts a server"
                    ) from None
                time.sleep(0.02)
            except OSError as error:
                raise InvalidError(
                    f"the runtime directory `{directory}` cannot be locked: {error.strerror}; "
                    "set HOTSET_RUNTIME_DIR to a directory on a local disk"
                ) from error
        yield
    finally:
        # Said, since a process that was forked meanwhile has the open directory too.
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)


def listener(path: str) -> int | None:
    """The process that listens on the socket `path`, 0 if it cannot be told; `None` where none listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
            return int(
                _CREDENTIALS.unpack(
                    probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                )[0]
            )
        except OSError as error:
            # A full queue of connections is that of a process that listens and is busy.
            return 0 if error.errno == errno.EAGAIN else None


def sweep(directory: Path) -> None:
    """Removes sockets of private servers that died without doing so. Call it under the lock."""
    for entry in directory.iterdir():
        if _PRIVATE.fullmatch(entry.name) and entry.is_socket() and listener(str(entry)) is None:
            entry.unlink(missing_ok=True)
