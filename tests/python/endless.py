"""An S3 server with as many keys as are asked for, none of which is anywhere: pages of listings are made up.

It can take long for an answer, and it can refuse all but a few reads at a time, as stores do that limit
their users.
"""

from __future__ import annotations

import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = 1_000
_TAG = '"made-up"'
_WRITTEN = "2026-01-01T00:00:00.000Z"


class Endless:
    """A bucket of `keys` objects of `size` bytes."""

    def __init__(self, keys: int, size: int, *, latency: float = 0.0, at_a_time: int = 1 << 30) -> None:
        self.pages = 0
        """Pages of listings that were asked for."""
        self.refused = 0
        """Reads that were refused."""
        self._keys, self._size, self._latency, self._most = keys, size, latency, at_a_time
        self._lock, self._working = threading.Lock(), 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                query = urllib.parse.parse_qs(url.query)
                if "list-type" in query:
                    self._answer(200, outer._page(query))
                else:
                    status = outer._read()
                    body = bytes(outer._part(self.headers.get("Range"))) if status == 200 else b""
                    self._answer(206 if body and "Range" in self.headers else status, body)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", _TAG)
                self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
                if status == 206:
                    self.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{outer._size}")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def arguments(self) -> list[str]:
        """How the command line reaches it."""
        options = {
            "aws_endpoint": f"http://127.0.0.1:{self._server.server_address[1]}",
            "aws_skip_signature": "true",
            "aws_region": "us-east-1",
        }
        return [part for name, value in options.items() for part in ("--storage-option", f"{name}={value}")]

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _page(self, query: dict[str, list[str]]) -> bytes:
        self.pages += 1
        time.sleep(self._latency)
        first = int(query.get("continuation-token", ["0"])[0])
        last = min(first + PAGE, self._keys)
        objects = "".join(
            f"<Contents><Key>train/{number:09d}</Key><Size>{self._size}</Size><ETag>{_TAG}</ETag>"
            f"<LastModified>{_WRITTEN}</LastModified></Contents>"
            for number in range(first, last)
        )
        more = ""
        if last < self._keys:
            more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
        return f"<ListBucketResult>{objects}{more}</ListBucketResult>".encode()

    def _read(self) -> int:
        with self._lock:
            if self._working >= self._most:
                self.refused += 1
                return 503
            self._working += 1
        time.sleep(max(self._latency, 0.01))
        with self._lock:
            self._working -= 1
        return 200

    def _part(self, asked: str | None) -> int:
        if asked is None:
            return self._size
        first, last = asked.removeprefix("bytes=").split("-")
        return int(last) - int(first) + 1
