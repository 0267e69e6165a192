"""Who may use a server: its own user, members of a group where one is named, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hotset
import pytest
from processes import Server, until
from trees import content, equal_files
from users import ALICE, BOB, GROUP, SERVE, home, need_root, run, start

_READ = """
import hotset, sys
try:
    print(hotset.Dataset(sys.argv[1], wait=1)[1].hex())
except hotset.Error as error:
    print(error)
"""


@pytest.fixture
def shared(runtime: Path) -> Iterator[Path]:
    """A directory that other users can enter."""
    need_root()
    runtime.parent.chmod(0o755)
    directory = runtime.parent / "shared"
    directory.mkdir()
    directory.chmod(0o755)
    yield directory


def test_another_user_cannot_use_a_users_server(runtime: Path, shared: Path) -> None:
    place = equal_files(shared / "tree", 3, 100)
    of_alice, of_bob = home(ALICE, shared), home(BOB, shared)
    socket = shared / str(ALICE) / "run" / "server.sock"
    server = start(ALICE, SERVE, of_alice)
    try:
        until("it listens", socket.exists)
        assert run(ALICE, _READ, of_alice, str(place)).strip() == content("000001.bin", 100).hex()
        named = {"HOTSET_SERVER": str(socket), "HOTSET_SERVER_USER": str(ALICE)}
        assert "Permission denied" in run(BOB, _READ, {**of_bob, **named}, str(place))
        # Even where the directory and the socket's mode let them in.
        for path, mode in [(socket, 0o666), (socket.parent, 0o755), (socket.parent.parent, 0o755)]:
            path.chmod(mode)
        assert "`--group NAME`" in run(BOB, _READ, {**of_bob, **named}, str(place))
        # Root is another user too.
        environment = {**os.environ, **named}
        told = subprocess.run(
            [sys.executable, "-c", _READ, str(place)], env=environment, capture_output=True, text=True
        )
        assert "`--group NAME`" in told.stdout
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_members_of_a_group_share_a_server_and_others_are_refused(shared: Path) -> None:
    place = equal_files(shared / "tree", 3, 100)
    socket = shared / "group.sock"
    server = Server(socket, "--group", str(GROUP), "--quota", "jobs=1,connections=2")
    try:
        assert (socket.stat().st_mode & 0o777, socket.stat().st_gid) == (0o660, GROUP)
        named = {"HOTSET_SERVER": str(socket), "HOTSET_SERVER_USER": "root"}
        member = {**home(ALICE, shared), **named}
        assert (
            run(ALICE, _READ, member, str(place), groups=[GROUP]).strip() == content("000001.bin", 100).hex()
        )
        # Whose server it is must be said: what it gives out is trained on.
        unsaid = {name: value for name, value in member.items() if name != "HOTSET_SERVER_USER"}
        assert "HOTSET_SERVER_USER" in run(ALICE, _READ, unsaid, str(place), groups=[GROUP])
        stranger = {**home(BOB, shared), **named}
        assert "Permission denied" in run(BOB, _READ, stranger, str(place))
        socket.chmod(0o666)
        assert f"members of group `{GROUP}`" in run(BOB, _READ, stranger, str(place))

        two = "import hotset, sys\nfirst = hotset.Dataset(sys.argv[1], job='a')\n" + _READ
        assert "`--quota jobs=`" in run(ALICE, two, member, str(place), groups=[GROUP])
        stats = subprocess.run(
            [sys.executable, "-m", "hotset", "stats", "--server", str(socket)], capture_output=True, text=True
        )
        assert "refused: jobs 1, user 1" in stats.stdout
    finally:
        server.stop()


def test_a_socket_for_others_needs_a_place_that_only_its_server_can_write(shared: Path) -> None:
    for arguments, says in [
        (["--group", str(GROUP)], "give `socket` a place"),
        (["--group", str(GROUP), "--socket", "/tmp/hotset-open.sock"], "can be written by other users"),
        (["--group", "no-such-group", "--socket", str(shared / "x.sock")], "no group `no-such-group`"),
        (["--metrics", "0.0.0.0:9464", "--socket", str(shared / "x.sock")], "TLS and a token"),
        (["--quota", "memroy=1", "--socket", str(shared / "x.sock")], "`quota` has no `memroy`"),
    ]:
        refused = subprocess.run(
            [sys.executable, "-m", "hotset", "serve", *arguments], capture_output=True, text=True, timeout=60
        )
        assert refused.returncode == 1
        assert says in refused.stderr, refused.stderr


def test_a_user_cannot_map_what_another_users_server_keeps(shared: Path) -> None:
    place = equal_files(shared / "tree", 3, 100)
    of_alice, of_bob = home(ALICE, shared), home(BOB, shared)
    prying = (
        "tried = 0\n"
        "for name in ('mem', 'maps', 'fd', 'map_files'):\n"
        "    path = f'/proc/{sys.argv[1]}/{name}'\n"
        "    try:\n"
        "        os.listdir(path) if os.path.isdir(path) else open(path, 'rb', 0).close()\n"
        "    except PermissionError:\n"
        "        tried += 1\n"
        "print(tried)\n"
    )
    for owner, environment, other, theirs in [(ALICE, of_alice, BOB, of_bob), (BOB, of_bob, ALICE, of_alice)]:
        server = start(owner, SERVE, environment)
        try:
            until("it listens", (shared / str(owner) / "run" / "server.sock").exists)
            assert run(owner, _READ, environment, str(place)).strip() == content("000001.bin", 100).hex()
            descriptors = Path(f"/proc/{server.pid}/fd").iterdir()
            segments = [each for each in descriptors if os.readlink(each).startswith("/memfd:")]
            assert segments, "it keeps what it read in memory of its own"
            assert run(owner, prying, environment, str(server.pid)).strip() == "0"
            assert run(other, prying, theirs, str(server.pid)).strip() == "4"
        finally:
            server.terminate()
            server.communicate(timeout=60)


def test_the_environment_names_a_user_that_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOTSET_SERVER", str(tmp_path / "x.sock"))
    monkeypatch.setenv("HOTSET_SERVER_USER", "no such user")
    with pytest.raises(hotset.InvalidError, match="HOTSET_SERVER_USER=`no such user` is no user"):
        hotset.Dataset(tmp_path)


def test_variables_that_are_empty_name_nothing(runtime: Path, serve: Callable[..., Server]) -> None:
    empty = {"HOTSET_SHARED": "", "HOTSET_SHARED_USER": "", "HOTSET_SERVER_USER": ""}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in empty.items():
            patch.setenv(name, value)
        server = serve()
        command = [sys.executable, "-m", "hotset", "stats", "--json", "--server", str(server.socket)]
        assert '"shared":null' in subprocess.run(command, capture_output=True, text=True, check=True).stdout
