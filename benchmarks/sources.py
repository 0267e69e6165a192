"""Where the arms get their samples from: files, a private Hotset server, a private Redis, an echo server.

Everything lies below one temporary folder, and every process started here is ended by its own id.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hotset
from hotset import _core
from hotset._dataset.numbers import numbers_of

RUN = "bench"
"""The name all processes of a run say, so that they find the same private server."""
WAIT = 60.0
"""Seconds any call may take before the benchmark fails."""
ECHO = Path(__file__).with_name("hits") / "echo.rs"


class UntrueError(Exception):
    """An arm did not do what its row says."""


class SkippedError(Exception):
    """An arm cannot run here; the message says why."""


@dataclass(frozen=True)
class Samples:
    """Files of equal size and random content."""

    folder: Path
    count: int
    size: int

    @classmethod
    def made(cls, folder: Path, count: int, size: int) -> Samples:
        """Writes them, a hundred to a folder."""
        content = random.Random(size)
        for number in range(count):
            path = folder / f"{number // 100:04}" / f"{number:06}.bin"
            if number % 100 == 0:
                path.parent.mkdir(parents=True)
            path.write_bytes(content.randbytes(size))
        return cls(folder, count, size)

    @classmethod
    def found(cls, folder: Path, count: int, size: int) -> Samples:
        """Those that another section has written, or writes them."""
        return cls(folder, count, size) if folder.exists() else cls.made(folder, count, size)


class Opened:
    """A dataset kept whole by a Hotset server, through one connection of this process."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.client: _core.Client = hotset.connect(job=RUN, wait=WAIT)
        self.dataset = self.client.open_dataset(str(samples.folder), layout="files", wait=WAIT)["dataset"]
        self.kept = self.keep("kept")
        """The job of a dataset without a sampler: any id may be asked for at any time."""

    def _job(self, name: str, strategy: str) -> str:
        job = f"{self.samples.folder.name}-{name}"
        asked = {
            "dataset": self.dataset,
            "cache": "100%",
            "strategy": strategy,
            "policy": "minio",
            "prefetch": True,
        }
        said = self.client.open_job(job, asked, wait=WAIT)
        whole = self.samples.count * self.samples.size
        if said["granted"] < whole:
            raise SkippedError(f"the server grants {said['granted']:,} of {whole:,} bytes: too little memory")
        return job

    def keep(self, name: str) -> str:
        """Another job of a dataset without a sampler."""
        return self._job(name, strategy="")

    def plan(self, name: str = "planned") -> str:
        """A job that `uniform` plans."""
        return self._job(name, strategy="uniform")

    def planned(self, job: str, size: int) -> Iterator[list[int]]:
        """The batches of its plan, epoch after epoch, as the indices that training asks with."""
        for epoch in itertools.count():
            plan = self.client.begin_epoch(job, epoch, rank=0, world=1, start=0, wait=WAIT)
            number = numbers_of(epoch)
            for first in range(0, len(plan), size):
                yield [number(id_) for id_ in plan.block(first, min(first + size, len(plan)))]

    def keys(self) -> list[str]:
        """The path of each sample, by its id."""
        keys: list[str] = []
        while len(keys) < self.samples.count:
            keys += self.client.describe(self.dataset, len(keys), self.samples.count, wait=WAIT)[0]
        return [str(self.samples.folder / key) for key in keys]

    def counters(self, job: str) -> Counters:
        """All servings of a job so far, its epochs together."""
        (found,) = json.loads(self.client.stats(job, wait=WAIT))["jobs"]
        return Counters(*(found["total"][name] for name in ("served", "hit", "storage_reads")))


@dataclass(frozen=True)
class Counters:
    """What a Hotset server has counted."""

    served: int
    hit: int
    storage_reads: int

    @classmethod
    def sum(cls, counted: Sequence[Counters]) -> Counters:
        """Of several jobs."""
        return cls(*(sum(getattr(one, name) for one in counted) for name in cls.__match_args__))

    def check(self, before: Counters, asked: int) -> None:
        """Fails unless exactly `asked` samples were served since `before`, and all were hits."""
        served, hit = self.served - before.served, self.hit - before.hit
        reads = self.storage_reads - before.storage_reads
        if (served, hit, reads) != (asked, asked, 0):
            raise UntrueError(
                f"of {asked} samples asked for, the server served {served}, {hit} as hits, with {reads} reads"
            )


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis of our own that keeps nothing on disk; its socket."""
    program = shutil.which("redis-server")
    if program is None:
        raise SkippedError("there is no redis-server on PATH (Debian: apt-get install redis-server)")
    folder.mkdir()
    socket = folder / "redis.sock"
    said = folder / "redis.log"
    settings = {"port": "0", "unixsocket": str(socket), "save": "", "appendonly": "no", "dir": str(folder)}
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with _process([program, *options], said):
        _appears(socket, said)
        yield str(socket)


@contextmanager
def echo_server(folder: Path) -> Iterator[str]:
    """`echo.rs`, compiled and started; its socket."""
    compiler = shutil.which("rustc")
    if compiler is None:
        raise SkippedError("there is no rustc on PATH to compile the echo server with")
    folder.mkdir()
    program, socket, said = folder / "echo", folder / "echo.sock", folder / "echo.log"
    subprocess.run([compiler, "--edition=2024", "-O", "-o", program, ECHO], check=True, cwd=folder)
    with _process([str(program), str(socket)], said):
        _appears(socket, said)
        yield str(socket)


@contextmanager
def _process(command: list[str], said: Path) -> Iterator[None]:
    with said.open("wb") as log:
        # Of a session of its own: Ctrl-C reaches the benchmark, which ends it below.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _appears(socket: Path, said: Path) -> None:
    end = time.monotonic() + 20
    while not socket.exists():
        if time.monotonic() > end:
            raise SkippedError(f"{socket.stem} did not start: {said.read_text(errors='replace').strip()}")
        time.sleep(0.02)


def read_from_disk() -> int:
    """Bytes that this process has caused to be read from storage so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def isolate(folder: Path) -> None:
    """Points Hotset at folders of this run, whatever the environment says, here and in readers."""
    for name in [name for name in os.environ if name == "HOTSET" or name.startswith("HOTSET_")]:
        del os.environ[name]
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    os.environ["HOTSET_RUNTIME_DIR"] = str(runtime)
    os.environ["HOTSET_CACHE_DIR"] = str(folder / "cache")


@contextmanager
def served(folder: Path, concurrency: int, name: str = "server.sock", *more: str) -> Iterator[Path]:
    """The socket of a server with that many reads in flight and `more` of its options, ended at the end."""
    socket = folder / "run" / name
    command = [
        sys.executable,
        "-m",
        "hotset",
        "serve",
        "--socket",
        str(socket),
        "--concurrency",
        str(concurrency),
    ]
    process = subprocess.Popen(
        [*command, *more, "--log", "warn"], stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        end = time.monotonic() + 20
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the server did not start")
            time.sleep(0.02)
        yield socket
    finally:
        process.terminate()
        process.wait(20)
