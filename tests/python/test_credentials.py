"""Credentials that expire and are renewed: the store asks for new ones, and reads go on.

A service of the test's own hands out credentials that live for minutes, as container and pod identities do,
so that a client asks again and again. How long they really live is counted in asks, to which no stall of the
machine adds. A gate in front of a real S3 server refuses those whose time is over; the S3 server checks every
signature.
"""

from __future__ import annotations

import datetime
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import hotset
import pytest
from bucket import REGION, Bucket
from processes import Server
from relay import Relay
from trees import content

LIFE = datetime.timedelta(minutes=4)
"""What credentials say of themselves: little enough that a client asks for others before it goes on."""
EVERY = 4
"""Asks after which others are handed out; twice as many after which the gate refuses them."""
MOST = 20_000
"""Reads in which a client that asks has used several; there may be a hundred to an ask."""
KEYS = {f"hotset-{number}": f"the-secret-of-hotset-{number}" for number in range(40)}
TOKEN = "the-token-of-this-pod"
REFUSED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


class Credentials:
    """Hands out the next of `KEYS` when the last one was handed out `every` times."""

    def __init__(self) -> None:
        self.asked = 0
        self.every = EVERY
        self.broken = 0
        """As many asks are answered with an error."""
        self._since: dict[str, int] = {}
        """The ask that each key was first handed out for."""
        self._lock = threading.Lock()
        handed = self._handed

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = handed(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/credentials"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def expired(self, key: str) -> bool:
        """Whether `key` was never handed out, or its time is over."""
        with self._lock:
            return key not in self._since or self.asked >= self._since[key] + 2 * self.every

    def _handed(self, path: str, token: str | None) -> tuple[int, bytes]:
        with self._lock:
            self.asked += 1
            if path != "/v1/credentials" or token != TOKEN:
                return 403, b"who are you?"
            if self.broken:
                self.broken -= 1
                return 500, b"not now"
            last = next(reversed(self._since), None)
            if last is None or self.asked >= self._since[last] + self.every:
                last = list(KEYS)[len(self._since)]
                self._since[last] = self.asked
            end = datetime.datetime.now(datetime.UTC) + LIFE
        return 200, json.dumps(
            {
                "AccessKeyId": last,
                "SecretAccessKey": KEYS[last],
                "Token": "",  # the S3 server would take any other for one of its own
                "Expiration": end.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            }
        ).encode()


class Gate:
    """Lets requests pass whose credentials are still good, and notes whose they were."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.passed: dict[str, int] = {}
        self.refused = 0

    def __call__(self, head: str) -> bytes | None:
        named = re.search(r"Credential=([^/]+)/", head)
        key = named[1] if named else ""
        if not self._credentials.expired(key):
            self.passed[key] = self.passed.get(key, 0) + 1
            return None
        self.refused += 1
        return b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(REFUSED), REFUSED)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """A server that knows all keys there will be."""
    made = Bucket(KEYS)
    for number in range(20):
        made.put(f"train/{number:02d}", content(str(number), 500))
    yield made
    made.stop()


@pytest.fixture
def stage(bucket: Bucket, tmp_path: Path) -> Iterator[tuple[Credentials, Gate, dict[str, str]]]:
    """The service, the gate, and the options that lead to both."""
    credentials = Credentials()
    gate = Gate(credentials)
    relay = Relay(bucket.port, judge=gate)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    yield (
        credentials,
        gate,
        {
            "aws_endpoint": f"http://127.0.0.1:{relay.port}",
            "aws_region": REGION,
            "aws_container_credentials_full_uri": credentials.url,
            "aws_container_authorization_token_file": str(token),
        },
    )
    relay.stop()
    credentials.stop()


def read_through(dataset: hotset.Dataset, gate: Gate, lives: int) -> int:
    """Reads until `lives` more credentials were used; how many reads that took."""
    reads, wanted = 0, len(gate.passed) + lives
    while len(gate.passed) < wanted:
        assert reads < MOST, gate.passed
        assert dataset[reads % 20] == content(str(reads % 20), 500)
        reads += 1
    return reads


def test_credentials_are_asked_for_again_before_they_expire_and_reads_go_on(
    bucket: Bucket, stage: tuple[Credentials, Gate, dict[str, str]]
) -> None:
    credentials, gate, options = stage
    dataset = hotset.Dataset(bucket.url("train"), cache=0, storage_options=options)
    reads = read_through(dataset, gate, lives=4)
    assert credentials.asked >= len(gate.passed) >= 5
    assert gate.refused == 0
    assert dataset.stats()["unplanned"]["storage_requests"] == reads


def test_a_service_that_is_away_for_a_while_costs_time_and_no_read(
    bucket: Bucket, stage: tuple[Credentials, Gate, dict[str, str]]
) -> None:
    credentials, gate, options = stage
    dataset = hotset.Dataset(bucket.url("train"), cache=0, storage_options=options)
    read_through(dataset, gate, lives=1)
    # Longer than what was handed out before lives.
    credentials.broken = 2 * EVERY
    reads = read_through(dataset, gate, lives=1)
    assert credentials.broken == gate.refused == 0
    counted = dataset.stats()["unplanned"]
    assert counted["storage_requests"] > counted["storage_reads"] >= reads


def test_secrets_are_in_no_log_and_in_no_file(
    bucket: Bucket,
    stage: tuple[Credentials, Gate, dict[str, str]],
    serve: Callable[..., Server],
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    credentials, gate, options = stage
    # Where a container has them: in the environment of the server.
    for name in ("aws_container_credentials_full_uri", "aws_container_authorization_token_file"):
        monkeypatch.setenv(name.upper(), options.pop(name))
    server = serve("outside.sock", "--log", "trace")
    monkeypatch.setenv("HOTSET_SERVER", str(server.socket))
    dataset = hotset.Dataset(bucket.url("train"), cache=0, storage_options=options)
    read_through(dataset, gate, lives=1)
    # Reads side by side: one may be signed and wait while the others ask.
    credentials.every = 1000
    sampler = hotset.Sampler(dataset, seed=1)
    assert len([dataset[index] for index in sampler]) == 20
    static = hotset.Dataset(bucket.url("train"), cache=0, storage_options=bucket.options)
    assert static[3] == content("3", 500)
    wrong = {**bucket.options, "aws_secret_access_key": "a-wrong-secret"}
    with pytest.raises(hotset.InvalidError) as caught:
        hotset.Dataset(bucket.url("other"), storage_options=wrong)
    server.stop()
    said = "".join(capfd.readouterr())
    assert "TRACE" in said, "the log was not looked at"
    kept = [path for path in runtime.parent.rglob("*") if path.is_file()]
    assert kept, "nothing was kept"
    secrets = [*KEYS.values(), TOKEN, bucket.options["aws_secret_access_key"], "a-wrong-secret"]
    for secret in secrets:
        assert secret not in said
        assert secret not in str(caught.value)
        assert not [path for path in kept if secret.encode() in path.read_bytes()]
