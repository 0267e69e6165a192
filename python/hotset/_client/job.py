"""What jobs are called.

A job is one training run on one dataset. All processes of it must say the same name, and no others:
the user's `job=`, else what the ranks of one launch have in common, else the name of the process that started
this one as a rank of its own, else the program's, with the process's number and a few random digits. The
name of a dataset's own job adds the dataset's folder, and from the second on a number in order of creation,
so that two datasets of one run differ and the ranks, which make theirs in the same order, agree. Names are
made once, by the process that makes the dataset, and travel with it to loader workers.

A name says which training is meant, not whether it resumes: each start of it is a run of its own, with an id
that the server makes, unless it is resumed. A process that was started over by its launcher belongs to the
launch that it was started by.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidError
from .settings import Settings, hand_down

_LONGEST = 128

_SHOWN = 40
"""Characters of the program's name in that of a run."""

_numbers: Counter[tuple[str, str]] = Counter()
_lock = threading.Lock()
_token = ""
_token_pid = 0


@dataclass(frozen=True)
class Job:
    """The name of one dataset's job, and the process it lives and dies with."""

    run: str
    """The training run; its private server is named after it."""
    name: str
    """The dataset's own job in that run."""
    main_pid: int
    """The training process, watched by a private server."""
    lasting: bool = False
    """Whether a later process may ask for the name, so that its run can be resumed."""
    launch: str = ""
    """What the processes of one launch have in common; empty where there was no launcher."""
    attempt: int = 0
    """How often the launcher has started them over."""
    parent: str = ""
    """The launcher's process."""
    rank: int | None = None
    """The rank that the launcher gave."""

    def planned(self, number: int, loads: int) -> str:
        """The job's name on the server when a sampler plans it, the `number`th of this dataset.

        Each of its `loads` of a state is another job there, so that ranks which have not loaded it yet, and
        readers of the time before, stay where they are.
        """
        return f"{self.name}/plan-{number}" + (f"/load-{loads}" if loads else "")


def new(job: str | None, place: str, settings: Settings) -> Job:
    """The job of the dataset that this process now makes from `place`."""
    run = run_name(job, settings)
    folder = _folder(place)
    with _lock:
        _numbers[run, folder] += 1
        number = _numbers[run, folder]
    launched = settings.launch is not None
    return Job(
        run,
        _dataset_name(run, folder, number),
        os.getpid(),
        lasting=job is not None or (launched and settings.restarts),
        launch="" if settings.launch is None else short_hash(settings.launch),
        attempt=settings.attempt if launched else 0,
        parent=_parent() if launched else "",
        rank=settings.rank,
    )


def give_back(job: Job, place: str) -> None:
    """Forgets the name of a dataset that could not be made: a second try is the same dataset, not another.

    Unless a later one was named meanwhile, whose name would be given twice.
    """
    key = job.run, _folder(place)
    with _lock:
        if _dataset_name(*key, _numbers[key]) == job.name:
            _numbers[key] -= 1


def _dataset_name(run: str, folder: str, number: int) -> str:
    return f"{run}/{folder}" if number == 1 else f"{run}/{folder}#{number}"


def _folder(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2] or "root"


def _parent() -> str:
    """The process that started this one, by its number and the time it was started at."""
    number = os.getppid()
    try:
        with open(f"/proc/{number}/stat", "rb") as status:
            return f"{number}-{status.read().rpartition(b')')[2].split()[19].decode()}"
    except (OSError, IndexError):
        return ""


def short_hash(text: str) -> str:
    """Sixteen hexadecimal digits that stand for `text` where names must be short."""
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def run_name(job: str | None, settings: Settings) -> str:
    """The name of the training run that this process is part of."""
    if job is not None:
        if not job or len(job) > _LONGEST or not job.isprintable():
            raise InvalidError(f"`job={job!r}`: a job's name is 1 to {_LONGEST} printable characters")
        return job
    if settings.launch is not None:
        return f"launch-{short_hash(settings.launch)}"
    if settings.run is not None:
        return settings.run
    run = f"{_program()}-{os.getpid()}-{_own_token()}"
    hand_down(run)
    return run


def _program() -> str:
    """What is run, for a name that a person knows again: `train` for `python train.py`."""
    stem = Path(sys.argv[0]).stem if sys.argv else ""
    return "".join(c for c in stem if c.isalnum() or c in "_.")[:_SHOWN] or "python"


def _own_token() -> str:
    global _token, _token_pid
    # A forked child that makes datasets of its own is a training run of its own.
    if _token_pid != os.getpid():
        _token, _token_pid = secrets.token_hex(4), os.getpid()
    return _token
