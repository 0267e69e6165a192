"""Servers of the tests' own that speak HTTP: a web server with byte ranges, and Google's storage protocol.

Objects lie in memory. Every request is counted, and answered by a thread of its own.
"""

from __future__ import annotations

import email.utils
import hashlib
import ssl
import threading
import time
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

Answer = tuple[int, dict[str, str], bytes]


class Web:
    """A web server. It cannot be listed, as most cannot."""

    def __init__(self, *, tags: bool = True, ranges: bool = True, certificate: Path | None = None) -> None:
        """Without `tags` versions are told by times alone; with a `certificate` it speaks HTTPS."""
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.requests: Counter[str] = Counter()
        """By their method."""
        self._tags, self._ranges = tags, ranges
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = answer(self.command, self.path, dict(self.headers.items()))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET
            do_PROPFIND = do_GET

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "https" if certificate else "http"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, key: str, data: bytes, *, later: float = 0.0) -> None:
        """Sets an object, written `later` seconds from now."""
        self.objects[key] = (data, time.time() + later)

    def url(self, key: str) -> str:
        """The address of a key."""
        return f"{self._scheme}://127.0.0.1:{self.port}/{urllib.parse.quote(key)}"

    def answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        """What to say to a request."""
        self.requests[method] += 1
        if method == "PROPFIND":
            return 405, {}, b"this is no WebDAV"
        return self._object(urllib.parse.unquote(path.lstrip("/")), headers)

    def _object(self, key: str, headers: dict[str, str]) -> Answer:
        if key not in self.objects:
            return 404, {}, b"there is none"
        data, written = self.objects[key]
        said = {"Last-Modified": email.utils.formatdate(written, usegmt=True)}
        if self._tags:
            said["ETag"] = tag(data)
        wanted = next((value for name, value in headers.items() if name.lower() == "range"), None)
        if wanted is None or not self._ranges:
            return 200, said, data
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        if int(first) >= len(data):
            return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
        part = data[int(first) : int(last) + 1]
        said["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        return 206, said, part


class Google(Web):
    """Buckets as Google's XML interface has them, for whoever has the token."""

    token = "a-token-of-the-tests"
    page = 7

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` that reach it."""
        return {"google_base_url": f"http://127.0.0.1:{self.port}", "google_bearer_token": self.token}

    def url(self, key: str) -> str:
        """`gs://` of a key."""
        return f"gs://data/{key}"

    def put(self, key: str, data: bytes, *, later: float = 0.0) -> None:
        """Sets an object of the bucket `data`."""
        super().put(f"data/{key}", data, later=later)

    def answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        """What to say to a request: to a listing with a page."""
        given = {name.lower(): value for name, value in headers.items()}.get("authorization")
        if given != f"Bearer {self.token}":
            self.requests["refused"] += 1
            return 401, {}, b"<Error><Code>AuthenticationRequired</Code><Message>Who?</Message></Error>"
        address = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(address.query))
        if query.get("list-type") != "2":
            return super().answer(method, address.path, headers)
        self.requests["list"] += 1
        if address.path != "/data":
            return 404, {}, b"<Error><Code>NoSuchBucket</Code><Message>There is none.</Message></Error>"
        return 200, {}, self._listed(query).encode()

    def _listed(self, query: dict[str, str]) -> str:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        entries: dict[str, str] = {}
        for key, (data, written) in sorted(self.objects.items()):
            key = key.removeprefix("data/")
            if not key.startswith(prefix):
                continue
            head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if cut:
                common = prefix + head + cut
                entries[common] = f"<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>"
                continue
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(written))
            entries[key] = (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{stamp}</LastModified>"
                f"<ETag>{tag(data)}</ETag><Size>{len(data)}</Size></Contents>"
            )
        left = [name for name in sorted(entries) if name > after]
        more = ""
        if len(left) > self.page:
            more = f"<NextContinuationToken>{escape(left[self.page - 1])}</NextContinuationToken>"
        return (
            f"<ListBucketResult>{more}"
            f"{''.join(entries[name] for name in left[: self.page])}</ListBucketResult>"
        )


def tag(data: bytes) -> str:
    """The ETag of a content."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
