"""Trains for long while workers and servers are killed and storage fails, and looks for what is amiss.

Cycle after cycle a training process (`trainer.py`) runs with the next strategy, in turn on a server that
lives as long as the soak, where only workers are killed, and on a private one that is killed itself. Moments
and victims follow from the seed. It fails when a byte is wrong, when a training does not end in time, when
something is left on the server, or when the long-lived server's memory grows beyond that of the first round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import hotset

SAMPLES, SMALLEST, LARGEST = 1200, 600, 2400
SCHEMES = ("iis", "carousel", "hybrid")
TRAINER = Path(__file__).with_name("trainer.py")
STUCK = 180.0
"""Seconds beyond its own after which a training counts as stuck."""
GROWTH = 24 << 20
"""Bytes that the server may ever have more than in the first round."""
PAUSE = (0.4, 1.6)
"""Seconds between two kills."""


@dataclass
class Figures:
    """What the soak saw."""

    cycles: int = 0
    killed_workers: int = 0
    killed_servers: int = 0
    memory: list[int] = field(default_factory=list)
    """Of the long-lived server, at the end of each of its cycles."""
    trained: dict[str, int] = field(default_factory=dict)

    def add(self, said: dict[str, int]) -> None:
        """Adds what a training says of itself."""
        for name, count in said.items():
            self.trained[name] = self.trained.get(name, 0) + count

    def lines(self) -> list[str]:
        """For people."""
        rounds = len(SCHEMES)
        first, last = ([mib(size) for size in part] for part in (self.memory[:rounds], self.memory[-rounds:]))
        killed = f"killed workers {self.killed_workers}, killed servers {self.killed_servers}"
        return [
            f"cycles {self.cycles}, {killed}",
            ", ".join(f"{name} {count:,}" for name, count in self.trained.items()),
            f"server memory: first round {first} MiB, last {last} MiB",
        ]


class Soak:
    """One soak, below a folder of its own."""

    def __init__(self, place: Path, seed: int, epochs: int) -> None:
        self.place, self.seed, self.epochs = place, seed, epochs
        self.draw = random.Random(seed)
        self.figures = Figures()
        self.data = files(place / "data", seed)
        self.runtime = place / "run"
        self.runtime.mkdir(mode=0o700)
        self.socket = place / "steady.sock"
        self.environment = {
            **os.environ,
            "HOTSET_RUNTIME_DIR": str(self.runtime),
            "HOTSET_CACHE_DIR": str(place / "cache"),
        }
        self.environment.pop("HOTSET_SERVER", None)
        command = [sys.executable, "-m", "hotset", "serve", "--socket", str(self.socket)]
        self.log = (place / "log").open("a+")
        """What servers and trainers say, shown when something fails."""
        self.server = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stderr=self.log
        )
        wait_for("the server listens", self.socket.exists, 30)

    def cycle(self, seconds: float) -> None:
        """One training on each of the two servers."""
        scheme = SCHEMES[self.figures.cycles % len(SCHEMES)]
        self.train(scheme, seconds, steady=True)
        self.look_after()
        self.train(scheme, seconds, steady=False)
        self.figures.cycles += 1

    def train(self, scheme: str, seconds: float, *, steady: bool) -> None:
        """A training process, and kills while it runs."""
        own = {"HOTSET_SERVER": str(self.socket)} if steady else {}
        number = self.draw.randrange(1 << 30)
        command = [sys.executable, str(TRAINER), str(self.data), "--scheme", scheme, "--seed", str(number)]
        command += ["--seconds", str(seconds), "--packages", str(self.place / "packages")]
        command += ["--epochs", str(self.epochs)]
        end = time.monotonic() + seconds + STUCK
        trainer = subprocess.Popen(
            command,
            env={**self.environment, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert trainer.stdout is not None
        try:
            assert trainer.stdout.readline() == "going\n", f"{scheme}: the training did not begin"
            killing, killed = time.monotonic() + seconds, False
            while trainer.poll() is None:
                time.sleep(self.draw.uniform(*PAUSE))
                # One at least: where all is slow, there may be nobody to kill before the time is over.
                if time.monotonic() < killing or not killed:
                    killed |= self.kill(trainer.pid, steady=steady)
                if time.monotonic() >= end:
                    self.ask(trainer.pid)
                    raise AssertionError(f"{scheme} is stuck (seed {self.seed}, cycle {self.figures.cycles})")
            assert trainer.returncode == 0, f"{scheme} failed (seed {self.seed}, cycle {self.figures.cycles})"
            self.figures.add(json.loads(trainer.stdout.read()))
        finally:
            if trainer.poll() is None:
                trainer.kill()
            trainer.wait()
            trainer.stdout.close()

    def ask(self, trainer: int) -> None:
        """Has a training that is stuck write down where it and its workers are."""
        for process in [trainer, *workers_of(trainer)]:
            print(f"process {process}:", file=self.log, flush=True)
            os.kill(process, signal.SIGUSR1)
            time.sleep(1)

    def kill(self, trainer: int, *, steady: bool) -> bool:
        """Kills a worker of the training, or the server that watches it; whether there was one."""
        victims = workers_of(trainer) if steady else watchers_of(trainer)
        if not victims:
            return False
        try:
            os.kill(self.draw.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return False
        if steady:
            self.figures.killed_workers += 1
        else:
            self.figures.killed_servers += 1
        return True

    def look_after(self) -> None:
        """Nothing is left of a training that has ended; how much memory the server has."""
        client = hotset.Client(str(self.socket), main_pid=os.getpid(), timeout=10)

        def left() -> dict[str, Any]:
            said = json.loads(client.stats(wait=10))
            return {"jobs": len(said["jobs"])} | {
                name: said["server"][name] for name in ("leases", "occupied")
            }

        wait_for(lambda: f"nothing is left: {left()}", lambda: not any(left().values()), 60)
        client.close()
        self.figures.memory.append(memory_of(self.server.pid))

    def judge(self) -> None:
        """Whether the server's memory stayed as it was after the first round, or after its first training."""
        memory, rounds = self.figures.memory, len(SCHEMES)
        warm = rounds if len(memory) > rounds else 1
        grown = max(memory[warm:]) - max(memory[:warm])
        assert grown <= GROWTH, f"the server's memory grew: {[mib(size) for size in memory]} MiB"

    def close(self) -> None:
        """Ends the server, which must end by itself."""
        self.server.send_signal(signal.SIGTERM)
        try:
            code = self.server.wait(30)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
            raise
        finally:
            self.log.close()
        assert code == 0, f"the server ended with {code}"

    def show(self) -> None:
        """The last that was said, for whoever looks for what went wrong."""
        self.log.flush()
        lines = (self.place / "log").read_text().splitlines()
        print("\n".join(lines[-200:]), file=sys.stderr)


def soak(seconds: float, seed: int, each: float, epochs: int) -> Figures:
    """Whole rounds over all strategies until the time is over, at least one."""
    with tempfile.TemporaryDirectory(prefix="hs-soak-") as folder:
        going = Soak(Path(folder), seed, epochs)
        end = time.monotonic() + seconds
        try:
            while True:
                for _ in SCHEMES:
                    going.cycle(each)
                if time.monotonic() >= end:
                    break
            going.judge()
        except BaseException:
            going.show()
            raise
        finally:
            going.close()
    return going.figures


def files(place: Path, seed: int) -> Path:
    """Small files whose bytes nothing else could stand in for."""
    draw = random.Random(seed)
    for number in range(SAMPLES):
        folder = place / f"{number // 256:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06d}.bin").write_bytes(draw.randbytes(draw.randint(SMALLEST, LARGEST)))
    return place


def workers_of(trainer: int) -> list[int]:
    """The loader's workers: forked by the trainer, with its command line."""
    own = arguments_of(trainer)
    return [pid for pid in processes() if parent_of(pid) == trainer and own and arguments_of(pid) == own]


def watchers_of(trainer: int) -> list[int]:
    """The private servers that watch a training."""
    watched = ["--watch", str(trainer)]
    found = []
    for pid in processes():
        arguments = arguments_of(pid)
        if any(arguments[at : at + 2] == watched for at in range(len(arguments))):
            found.append(pid)
    return found


def processes() -> list[int]:
    """All there are."""
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def arguments_of(pid: int) -> list[str]:
    """A process's command line; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def parent_of(pid: int) -> int:
    """A process's parent; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def memory_of(pid: int) -> int:
    """The bytes of a process that are its own: not the sealed memory it shares with its clients."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {pid} has no memory")


def mib(size: int) -> int:
    """Mebibytes."""
    return round(size / (1 << 20))


def wait_for(what: Any, true: Any, seconds: float) -> None:
    """Waits until `true()`; fails with `what` if it does not come about."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.05)


def main() -> None:
    """Soaks, and prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=float, default=12.0, help="seconds of one training")
    parser.add_argument("--epochs", type=int, default=0, help="epochs of one training at least")
    parser.add_argument("--json", type=Path, help="writes the figures there too")
    arguments = parser.parse_args()
    began = time.monotonic()
    figures = soak(arguments.minutes * 60, arguments.seed, arguments.each, arguments.epochs)
    print(f"soaked for {(time.monotonic() - began) / 60:.1f} minutes, seed {arguments.seed}: nothing amiss")
    print("\n".join(figures.lines()))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
