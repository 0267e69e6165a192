"""What the environment says. The only module that reads it.

| variable | meaning |
| --- | --- |
| `HOTSET` | `off` reads past every server, in `uniform` order |
| `HOTSET_SERVER` | the socket of the server to use; an error if it does not answer |
| `HOTSET_SERVER_USER` | the user, by name or number, whose server that may be, where it is another's |
| `HOTSET_SHARED`, `HOTSET_SHARED_USER` | the shared cache that a private server asks, and whose it is |
| `HOTSET_CACHE_DIR`, `HOTSET_LOG`, `HOTSET_RECORD` | for a private server; see `hotset serve --help` |
| `HOTSET_RUNTIME_DIR` | where sockets lie; else `$XDG_RUNTIME_DIR/hotset`, else `/tmp/hotset-UID` |
| `RANK`, `WORLD_SIZE` | this process's place in a launch of many, as `torchrun` sets them |
| `LOCAL_RANK`, `HOTSET_RUN` | the run of the process that started this one as a rank, where no launcher did |
| `TORCHELASTIC_RUN_ID`, `MASTER_ADDR`, `MASTER_PORT`, `SLURM_JOB_ID` | what the processes of a launch share |
| `TORCHELASTIC_RESTART_COUNT`, `SLURM_RESTART_COUNT` | how often the launcher has started it over |
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidError

_OFF = {"off", "0", "no", "false"}
_ON = {"", "on", "1", "yes", "true"}

_RESTARTS = 1 << 20
"""More often than this no launcher starts a program over between two requeues."""

# A private server serves one job of one trainer: what points that trainer elsewhere must not reach it.
_PASSED_ON = {
    *("HOTSET_LOG", "HOTSET_RUNTIME_DIR", "HOTSET_CACHE_DIR", "HOTSET_RECORD"),
    *("HOTSET_SHARED", "HOTSET_SHARED_USER"),
}


@dataclass(frozen=True)
class Settings:
    """The environment, read once and checked."""

    off: bool
    """Read past every server."""
    server: str | None
    """The socket of the one server to use."""
    runtime: Path
    """Where sockets lie. It may not exist yet."""
    rank: int | None
    """This process's rank, where a launcher gave one."""
    world: int | None
    """How many ranks the launcher started."""
    launch: str | None
    """What the ranks of one launch have in common, where there was a launcher."""
    local_world: int | None = None
    """How many of them it started on this host."""
    run: str | None = None
    """The run of the process that started this one as a rank of its own."""
    attempt: int = 0
    """How often the launcher has started its processes over."""
    server_user: int | None = None
    """The other user whose server may be used, where one is named."""
    restarts: bool = False
    """Whether the launcher will start them over when one fails."""

    @classmethod
    def read(cls) -> Settings:
        """The settings as the environment has them now."""
        switch = os.environ.get("HOTSET", "").strip().lower()
        if switch not in _OFF | _ON:
            raise InvalidError(f"the environment's HOTSET=`{switch}` is neither `on` nor `off`")
        rank, world = _number("RANK"), _number("WORLD_SIZE")
        return cls(
            off=switch in _OFF,
            server=os.environ.get("HOTSET_SERVER") or None,
            runtime=_runtime(),
            server_user=_user("HOTSET_SERVER_USER"),
            rank=rank,
            world=world,
            local_world=_number("LOCAL_WORLD_SIZE"),
            launch=None if rank is None else _launch(),
            run=os.environ.get("HOTSET_RUN") if "LOCAL_RANK" in os.environ and rank is None else None,
            attempt=_RESTARTS * (_number("SLURM_RESTART_COUNT") or 0)
            + (_number("TORCHELASTIC_RESTART_COUNT") or 0),
            restarts=bool(_number("TORCHELASTIC_MAX_RESTARTS")),
        )


def hand_down(run: str) -> None:
    """Lets processes that this one starts as its ranks, as Lightning does, know what run they belong to."""
    os.environ["HOTSET_RUN"] = run


def _launch() -> str:
    """What the processes of this launch share and keep when the launcher starts them over."""
    elastic, requeued = (os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"))
    # With a rendezvous of its own torchrun chooses a port anew each time it starts the processes.
    named = elastic not in ("", "none")
    # A job that is requeued may find itself on other hosts.
    address = "" if named or requeued else os.environ.get("MASTER_ADDR", "")
    port = "" if named else os.environ.get("MASTER_PORT", "")
    return "\n".join((elastic, requeued, address, port))


def environment_of_server() -> dict[str, str]:
    """The environment of a private server: this process's, without what is meant for the trainer alone."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or not (name == "HOTSET" or name.startswith("HOTSET_"))
    }


def _runtime() -> Path:
    named = os.environ.get("HOTSET_RUNTIME_DIR")
    if named:
        return Path(named).absolute()
    session = os.environ.get("XDG_RUNTIME_DIR")
    # `su` and containers often hand on the name of a directory that is another user's or not there.
    if session and os.path.isdir(session) and os.stat(session).st_uid == os.geteuid():
        return Path(session).absolute() / "hotset"
    return Path(f"/tmp/hotset-{os.geteuid()}")


def _user(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        return int(text) if text.isdigit() else pwd.getpwnam(text).pw_uid
    except KeyError:
        raise InvalidError(f"the environment's {name}=`{text}` is no user of this system") from None


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None or text == "":
        return None
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidError(f"the environment's {name}=`{text}` is not a whole number from 0 on")
    return number
