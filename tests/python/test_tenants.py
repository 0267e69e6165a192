"""A cache that users share by content, as real processes of several users, one of whom means ill."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import frames
import pytest
from processes import until
from trees import content, equal_files
from users import ALICE, BOB, MALLORY, SERVE, home, need_root, own, run, start

CACHE, SAMPLES, SIZE = 41000, 40, 3000

_MAIN = "sys.exit(hotset._core.main(['hotset', *sys.argv[1:]]))"
_READ = """
dataset = hotset.Dataset(sys.argv[1], cache='100%', storage_options=json.loads(sys.argv[2]))
for number in range(len(dataset)):
    assert len(dataset[number]) == 3000
stats = dataset.stats()
total = stats['total']
print(json.dumps({name: total[name] for name in ('storage_reads', 'storage_bytes', 'peer_reads', 'failed')}))
"""
_PLAN = """
dataset = hotset.Dataset(sys.argv[1], cache='20%')
# Nothing is under way when its counts are looked at.
sampler = hotset.Sampler(dataset, seed=1, prefetch=False)
for epoch in range(2):
    sampler.set_epoch(epoch)
    ids = list(sampler)
    for at in range(0, len(ids), 8):
        dataset.__getitems__(ids[at:at + 8])
total = dataset.stats()['total']
names = ('served', 'storage_reads', 'storage_requests', 'storage_bytes', 'peer_reads')
print(json.dumps({name: total[name] for name in names}))
"""


class User:
    """A user with a copy of the dataset and a server of its own, which asks the shared cache."""

    def __init__(self, number: int, top: Path, shared: Path) -> None:
        self.number = number
        self.environment = {
            **home(number, top),
            "HOTSET_SHARED": str(shared),
            "HOTSET_SHARED_USER": str(CACHE),
        }
        self.place = equal_files(top / str(number) / "data", SAMPLES, SIZE)
        own(number, self.place)
        for path in self.place.rglob("*"):
            path.chmod(0o700)
        self.socket = top / str(number) / "run" / "server.sock"

    def __enter__(self) -> User:
        self.server = start(self.number, SERVE, {**self.environment, "HOTSET_LOG": "warn"})
        until("the user's server listens", self.socket.exists)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.terminate()
        _, self.log = self.server.communicate(timeout=60)

    def digest(self) -> None:
        """Hashes the user's copy."""
        run(self.number, _MAIN, self.environment, "digest", str(self.place))

    def read(self, **options: str) -> dict[str, int]:
        """Reads all samples; what that cost."""
        told = run(self.number, _READ, self.environment, str(self.place), json.dumps(options))
        return dict(json.loads(told))

    def shared(self) -> dict[str, Any]:
        """What the user's server says of the shared cache."""
        told = json.loads(run(self.number, _MAIN, self.environment, "stats", "--json"))
        return dict(told[0]["server"]["shared"])

    def all_offered(self) -> None:
        """Waits until what was read was offered."""
        until("all is offered", lambda: self.shared()["offered"] >= SAMPLES)


class Shared:
    """The shared cache."""

    def __init__(self, top: Path, *arguments: str) -> None:
        self.top = top
        directory = top / "shared"
        directory.mkdir()
        directory.chmod(0o755)
        own(CACHE, directory)
        self.socket = directory / "shared.sock"
        self._environment = home(CACHE, top)
        serve = ["--tenants", "--socket", str(self.socket), "--memory", "64MiB", *arguments]
        self.process = start(CACHE, SERVE, {**self._environment, "HOTSET_LOG": "warn"}, *serve)
        until("the shared cache listens", self.socket.exists)

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.communicate(timeout=60)

    def stats(self) -> dict[str, Any]:
        """What it says of itself, to its own user."""
        told = run(CACHE, _MAIN, self._environment, "stats", "--json", "--server", str(self.socket))
        return dict(json.loads(told)[0]["server"])

    def attacked(self, script: str, *arguments: str, groups: tuple[int, ...] = ()) -> str:
        """What a script of somebody who means ill prints; it has `frames` and the socket's `path`."""
        source = frames.SOURCE.replace("from __future__ import annotations", "")
        script = f"{source}\nimport hashlib, random, threading\npath = sys.argv[1]\n{script}"
        return run(MALLORY, script, home(MALLORY, self.top), str(self.socket), *arguments, groups=groups)


@pytest.fixture
def top(runtime: Path) -> Path:
    """A directory that all users can enter."""
    need_root()
    runtime.parent.chmod(0o755)
    directory = runtime.parent / "users"
    directory.mkdir()
    directory.chmod(0o755)
    return directory


@pytest.fixture
def shared(top: Path) -> Iterator[Shared]:
    """A shared cache with quotas."""
    cache = Shared(top, "--quota", "memory=8MiB,connections=64")
    yield cache
    cache.stop()


def test_the_second_user_reads_nothing_from_storage(top: Path, shared: Shared) -> None:
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        bob.digest()
        first = alice.read()
        assert (first["storage_reads"], first["storage_bytes"]) == (SAMPLES, SAMPLES * SIZE)
        alice.all_offered()
        second = bob.read()
        assert second == {"storage_reads": 0, "storage_bytes": 0, "peer_reads": SAMPLES, "failed": 0}
        told = shared.stats()
        assert (told["contents"]["contents"], told["contents"]["found"]) == (SAMPLES, SAMPLES)
        # Not even where storage would fail every time.
        again = bob.read(**{"fault.rate": "1.0"})
        assert (again["storage_reads"], again["failed"]) == (0, 0)


def test_plans_are_served_from_the_shared_cache_and_counted_as_such(top: Path, shared: Shared) -> None:
    before = "import torch, hotset; hotset.Sampler, hotset.Dataset\n"
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        bob.digest()
        first = json.loads(run(ALICE, _PLAN, alice.environment, str(alice.place), before=before))
        alice.all_offered()
        second = json.loads(run(BOB, _PLAN, bob.environment, str(bob.place), before=before))
    # What the first put there, it finds there itself when it has let it go.
    assert first["storage_reads"] >= SAMPLES
    reads = first["storage_reads"] + first["peer_reads"]
    assert second == {
        "served": 2 * SAMPLES,
        "storage_reads": 0,
        "storage_requests": 0,
        "storage_bytes": 0,
        "peer_reads": reads,
    }


def test_a_user_without_the_digest_gets_nothing(top: Path, shared: Shared) -> None:
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        alice.read()
        alice.all_offered()
        assert bob.read()["storage_reads"] == SAMPLES
        assert (bob.shared()["asked"], bob.shared()["offered"]) == (0, 0)
        assert shared.stats()["contents"]["found"] == 0


def test_a_file_that_changed_after_its_digest_is_read_from_storage(top: Path, shared: Shared) -> None:
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        bob.digest()
        alice.read()
        alice.all_offered()
        changed = next(bob.place.rglob("000007.bin"))
        changed.write_bytes(b"x" * SIZE)
        told = bob.read()
        assert (told["storage_reads"], told["peer_reads"]) == (1, SAMPLES - 1)


def test_a_shared_cache_that_is_gone_costs_nothing_but_storage_reads(top: Path, shared: Shared) -> None:
    with User(BOB, top, shared.socket) as bob:
        bob.digest()
        shared.process.kill()
        shared.process.wait()
        assert bob.read() == {
            "storage_reads": SAMPLES,
            "storage_bytes": SAMPLES * SIZE,
            "peer_reads": 0,
            "failed": 0,
        }
        assert bob.shared()["failed"] == 1
    assert bob.log.count("HOTSET_SHARED") == 1


def test_a_cache_of_an_unnamed_user_is_shown_nothing(top: Path, shared: Shared) -> None:
    with User(BOB, top, shared.socket) as bob:
        pass
    bob.environment["HOTSET_SHARED_USER"] = str(ALICE)
    with bob:
        bob.digest()
        assert bob.read()["storage_reads"] == SAMPLES
    assert f"belongs to user `{CACHE}`" in bob.log
    assert shared.stats()["contents"]["put"] == 0


def test_neither_a_user_nor_the_shared_cache_maps_the_others_memory(top: Path, shared: Shared) -> None:
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        bob.digest()
        alice.read()
        alice.all_offered()
        assert bob.read()["peer_reads"] == SAMPLES
        processes = {"alice": alice.server.pid, "bob": bob.server.pid, "cache": shared.process.pid}
        mapped = {name: mapped_memory(pid) for name, pid in processes.items()}
        assert mapped["alice"] and mapped["bob"], "they keep samples in memory of their own"
        assert not mapped["cache"], "what is shared is in no memory that could be handed on"
        assert not mapped["alice"] & mapped["bob"]
        for user, other in [(ALICE, bob), (BOB, alice)]:
            peek = "try: os.listdir(f'/proc/{sys.argv[1]}/fd')\nexcept PermissionError: print('refused')\n"
            for pid in (other.server.pid, shared.process.pid):
                assert run(user, peek, home(user, top), str(pid)).strip() == "refused"


def mapped_memory(pid: int) -> set[str]:
    """The memory without a name that a process has mapped, by its number in the kernel."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "/memfd:" in line}


def test_wrong_bytes_are_refused_and_reach_nobody(top: Path, shared: Shared) -> None:
    with User(BOB, top, shared.socket) as bob:
        bob.digest()
        said = shared.attacked(
            "told = [raw.contents(PUT, [bytes.fromhex(name)], [3000], memory(b'poison' * 500))\n"
            "        for raw in [Raw(path)] for name in sys.argv[2:]]\n"
            "assert not any(kept for kept, _ in told)\n"
            "print(told[0][1])\n",
            *(hashed(content(f"{number:06d}.bin", SIZE)) for number in range(5)),
        )
        assert "does not have the hash" in said
        assert bob.read()["storage_reads"] == SAMPLES
        told = shared.stats()
        assert (told["refused"]["content"], told["contents"]["found"]) == (5, 0)


def hashed(sample: bytes) -> str:
    """The hash that a digest has for a sample, as whoever has the sample can find it out."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "sample").write_bytes(sample)
        told = subprocess.run(
            [sys.executable, "-m", "hotset", "digest", "--json", place], stdout=subprocess.PIPE, check=True
        )
        # The one entry lies before the file's own sum.
        return Path(json.loads(told.stdout)["file"]).read_bytes()[-64:-32].hex()


def test_bytes_that_change_while_they_are_hashed_reach_nobody(top: Path, shared: Shared) -> None:
    with User(BOB, top, shared.socket) as bob:
        bob.digest()
        sample = content("000003.bin", SIZE)
        shared.attacked(
            "right, name = bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])\n"
            "own, over = memory(right), threading.Event()\n"
            "def change():\n"
            "    while not over.is_set():\n"
            "        os.pwrite(own, b'x' * 3000, 0)\n"
            "        os.pwrite(own, right, 0)\n"
            "thread = threading.Thread(target=change, daemon=True)\n"
            "thread.start()\n"
            "raw = Raw(path)\n"
            "for _ in range(500): raw.contents(PUT, [name], [3000], own)\n"
            "over.set()\n"
            "thread.join()\n",
            sample.hex(),
            hashed(sample),
        )
        # Whether it was let in or not, what is there is right: `read` would stop asking after one wrong byte.
        told = bob.read()
        assert told["storage_reads"] + told["peer_reads"] == SAMPLES
        assert bob.shared()["wrong"] == 0


def test_a_flood_takes_room_from_its_own_user_alone(top: Path, shared: Shared) -> None:
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        bob.digest()
        alice.read()
        alice.all_offered()
        hashes = [hashed(bytes([number]) * 50_000) for number in range(4)]
        shared.attacked(
            "raw = Raw(path)\n"
            "for turn in range(100):\n"
            "    for number, name in enumerate(sys.argv[2:]):\n"
            "        raw.contents(PUT, [bytes.fromhex(name)], [50000], memory(bytes([number]) * 50000))\n"
            "big = memory(b'')\n"
            "kept, said = raw.contents(PUT, [bytes(32)], [1 << 40], big)\n"
            "assert 'memory' in said, said\n",
            *hashes,
        )
        assert bob.read()["peer_reads"] == SAMPLES
        assert shared.stats()["occupied"] <= 64 << 20


def test_a_flood_of_requests_is_held_up_and_others_are_served(top: Path) -> None:
    shared = Shared(top, "--quota", "requests=200")
    try:
        with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
            alice.digest()
            bob.digest()
            alice.read()
            alice.all_offered()
            said = shared.attacked(
                "own, told = memory(bytes(10)), []\n"
                "def flood(raw):\n"
                "    for _ in range(80): told.append(raw.contents(GET, [bytes(32)], [10], own))\n"
                "threads = [threading.Thread(target=flood, args=[Raw(path)]) for _ in range(8)]\n"
                "for thread in threads: thread.start()\n"
                "for thread in threads: thread.join()\n"
                "print(len(told), any(found or said for found, said in told))\n"
            )
            assert said.split() == ["640", "False"]
            assert shared.stats()["refused"]["requests"] > 0
            assert bob.read()["peer_reads"] == SAMPLES
    finally:
        shared.stop()


def test_guessed_hashes_get_nothing(shared: Shared) -> None:
    said = shared.attacked(
        "raw, own = Raw(path), memory(bytes(100))\n"
        "draw = random.Random(1)\n"
        "found = [raw.contents(GET, [draw.randbytes(32)], [100], own)[0] for _ in range(2000)]\n"
        "print(sum(found), os.pread(own, 100, 0) == bytes(100))\n"
    )
    assert said.split() == ["0", "True"]
    told = shared.stats()["contents"]
    assert (told["asked"], told["found"]) == (2000, 0)


def test_ten_thousand_connections_leave_room_for_others(top: Path, shared: Shared) -> None:
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        bob.digest()
        alice.read()
        alice.all_offered()
        script = (
            "held, refused = [], 0\n"
            "for number in range(10000):\n"
            "    raw = Raw(path, greet=False)\n"
            "    if number < 64:\n"
            "        held.append(raw)\n"
            "        continue\n"
            "    answer = raw.hear()\n"
            "    refused += FAILURE in answer and b'--quota connections=' in answer[FAILURE][0]\n"
            "    raw.socket.close()\n"
            "print(refused, flush=True)\n"
            "sys.stdin.read()\n"
        )
        source = frames.SOURCE.replace("from __future__ import annotations", "")
        attacker = start(
            MALLORY, f"{source}\npath = sys.argv[1]\n{script}", home(MALLORY, top), str(shared.socket)
        )
        assert attacker.stdout is not None
        assert attacker.stdout.readline().strip() == str(10_000 - 64)
        assert bob.read()["peer_reads"] == SAMPLES
        attacker.communicate("", timeout=60)
        assert shared.stats()["refused"]["connections"] == 10_000 - 64


def test_garbage_and_lengths_of_four_gibibytes_end_their_own_connection(top: Path, shared: Shared) -> None:
    with User(ALICE, top, shared.socket) as alice, User(BOB, top, shared.socket) as bob:
        alice.digest()
        bob.digest()
        alice.read()
        alice.all_offered()
        before = memory_of(shared.process.pid)
        said = shared.attacked(
            "draw, ended = random.Random(2), 0\n"
            "for number in range(200):\n"
            "    raw = Raw(path, greet=number % 2 == 0)\n"
            "    if number % 4 < 2:\n"
            "        raw.socket.sendall(struct.pack('<I', 0xFFFFFFFF) + bytes(1000))\n"
            "    else:\n"
            "        raw.socket.sendall(framed(b'\\xff' * 20 + draw.randbytes(500)))\n"
            "    ended += raw.hear() == {}\n"
            "    raw.socket.close()\n"
            "print(ended)\n"
        )
        assert int(said) == 200
        assert shared.stats()["refused"]["frames"] == 200
        assert memory_of(shared.process.pid) - before < 64 << 20
        assert bob.read()["peer_reads"] == SAMPLES


def memory_of(pid: int) -> int:
    """The bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_memory_that_could_make_the_cache_wait_or_fail_is_refused(shared: Shared) -> None:
    said = shared.attacked(
        "raw = Raw(path)\n"
        "pipe, _ = os.pipe()\n"
        "unsealed = os.memfd_create('x', os.MFD_ALLOW_SEALING)\n"
        "os.truncate(unsealed, 1000)\n"
        "short = memory(bytes(10))\n"
        "for own in (pipe, unsealed, short):\n"
        "    for what in (GET, PUT):\n"
        "        kept, said = raw.contents(what, [bytes(32)], [1000], own)\n"
        "        assert not kept and said, (own, what)\n"
        "print(said)\n"
    )
    assert "memory" in said


def test_a_trainer_that_names_it_as_its_server_is_told_which_variable_to_use(
    top: Path, shared: Shared
) -> None:
    script = "try: hotset.Dataset(sys.argv[1], wait=5)\nexcept hotset.Error as error: print(error)\n"
    named = {"HOTSET_SERVER": str(shared.socket), "HOTSET_SERVER_USER": str(CACHE)}
    said = run(BOB, script, {**home(BOB, top), **named}, str(top))
    assert "HOTSET_SHARED" in said
