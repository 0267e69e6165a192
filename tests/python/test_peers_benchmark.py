"""The benchmark beside other loaders: what its proxy allows and counts, and how it judges what came."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from processes import alive, until
from training import ROOT

BODY = bytes(range(256)) * 100


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports modules of the benchmark, as it does from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.peers.{name}")


class Store:
    """Answers every request with `BODY`; those of `/together` only when three of them are there."""

    def __init__(self) -> None:
        self.connections = 0
        self.taken: list[bytes] = []
        together = threading.Barrier(3, timeout=60)
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                store.connections += 1

            def do_GET(self) -> None:
                if self.path == "/together":
                    together.wait()
                self.send_response(200)
                if self.path == "/chunked":
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for piece in (BODY[:1000], BODY[1000:]):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.write(b"0\r\n\r\n")
                    return
                self.send_header("Content-Length", str(len(BODY)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(BODY)

            do_HEAD = do_GET

            def do_PUT(self) -> None:
                store.taken.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


@pytest.fixture
def store() -> Iterator[Store]:
    """A store."""
    running = Store()
    yield running
    running.stop()


@pytest.fixture
def proxied(module: Callable[[str], Any], store: Store) -> Iterator[Callable[..., Any]]:
    """Starts proxies in front of it."""
    started: list[Any] = []

    def start(*arguments: Any, **limits: float) -> Any:
        proxy = module("proxy")
        started.append(proxy.Proxy(store.port, proxy.Limits(**limits), *arguments))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def answers(port: int, *requests: tuple[str, str], body: bytes | None = None) -> list[bytes]:
    """Asks one after the other on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    found = []
    for method, path in requests:
        connection.request(method, path, body if method == "PUT" else None)
        found.append(connection.getresponse().read())
    connection.close()
    return found


def test_what_passes_is_unchanged_and_counted_by_its_kind(store: Store, proxied: Callable[..., Any]) -> None:
    proxy = proxied(latency=0.0)
    asked = [
        ("GET", "/a"),
        ("GET", "/chunked"),
        ("HEAD", "/a"),
        ("GET", "/?list-type=2&prefix=x"),
        ("PUT", "/b"),
        ("GET", "/a"),
    ]
    assert answers(proxy.port, *asked, body=BODY[:777]) == [BODY, BODY, b"", BODY, b"", BODY]
    counts = proxy.counts()
    assert (counts.get, counts.head, counts.list, counts.other, counts.requests) == (3, 1, 1, 1, 6)
    assert (counts.down, counts.up, counts.most) == (4 * len(BODY), 777, 1)
    # Nothing is answered in no time at all.
    assert counts.late == 6
    assert store.taken == [BODY[:777]] and store.connections == 1
    proxy.begin()
    assert proxy.counts().requests == 0


def test_no_more_requests_than_it_says_are_served_at_a_time(proxied: Callable[..., Any]) -> None:
    proxy = proxied(latency=0.0, requests=3)
    # The store waits for three, so that fewer at a time would end in its error.
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda _: answers(proxy.port, ("GET", "/together"))[0], range(12)))
    assert found == [BODY] * 12
    assert (proxy.counts().most, proxy.counts().requests) == (3, 12)


def test_every_answer_waits_and_bodies_wait_for_one_another(proxied: Callable[..., Any]) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    proxy = proxied(sleep, latency=60.0, rate=1.0)
    answers(proxy.port, ("GET", "/a"), ("HEAD", "/a"))
    assert proxy.counts().late == 0
    first, *bodies, last = waits
    assert 0 < first <= 60 and 0 < last <= 60
    # A byte a second, and what came before is waited for too.
    assert bodies == sorted(bodies) and len(BODY) - 60 < bodies[-1] <= len(BODY)


def test_bytes_pass_one_after_the_other_at_the_rate(module: Callable[[str], Any]) -> None:
    pace = module("proxy").Pace(rate=100.0)
    assert [pace.wait(0.0, 50), pace.wait(0.0, 100), pace.wait(1.0, 50)] == [0.5, 1.5, 1.0]
    # What was not used is not saved up.
    assert pace.wait(10.0, 100) == 1.0


def test_an_epoch_is_judged_by_what_its_batches_held(module: Callable[[str], Any]) -> None:
    samples = module("samples")
    kind = samples.Kind("test", 640, 40, 60, 1)
    truth = samples.Truth.of(kind)
    every = [(samples.digest(content), label) for content, label in kind]
    tally = module("tally").Tally(truth, range(640))
    for at in range(0, 640, 64):
        tally.add(every[at : at + 64])
    stored = tally.figures()
    assert (stored["served"], stored["different"], stored["wrong"]) == (640, 640, 0)
    # 64 neighbours lie in three or four runs of 24; a shuffle has samples of nearly all 27.
    assert 0.1 < stored["mix_runs"] < 0.2 and 0.9 < stored["mix_labels"] < 1.1
    tally.begin()
    tally.add([every[0], every[0], (b"another ", 0), (every[1][0], every[1][1] + 1)])
    assert tally.figures() == {"served": 4, "different": 1, "wrong": 2}


def test_a_shuffle_mixes_as_one(module: Callable[[str], Any]) -> None:
    assert module("tally").shuffled([0, 0, 1, 1], 2) == pytest.approx(1 + 2 / 3)


def test_an_arm_that_fails_has_a_row_that_says_so(module: Callable[[str], Any]) -> None:
    outcome = module("run").Outcome(
        "Other", "shards", "small", "20%", 0, version="1.2", failed="KeyError: 'x'"
    )
    text = module("table").table([outcome], 10)
    assert "| Other 1.2 | shards | failed | KeyError: 'x' |" in text


def test_the_last_error_that_was_written_is_the_reason(module: Callable[[str], Any]) -> None:
    errors = "ValueError: first\nTraceback:\n  File x\nbotocore.exceptions.ClientError: denied\nDebug {\n"
    assert module("run").reason(errors) == "botocore.exceptions.ClientError: denied"


def test_nothing_is_left_of_an_arm_that_is_ended(module: Callable[[str], Any]) -> None:
    # Its child is of a session of its own, as a server is.
    child = "import subprocess, sys; subprocess.run(['sleep', '600'], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    tree = module("tree")
    until("it has started another", lambda: len(tree.members(process.pid)) == 2)
    members = tree.members(process.pid)
    assert tree.memory(process.pid) > 1 << 20 and tree.cpu_seconds(process.pid) >= 0
    tree.end(process, patience=0.0)
    until("both have ended", lambda: not any(alive(pid) for pid in members))
