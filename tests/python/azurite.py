"""A real Azure Blob server for the tests: Azurite on loopback, in memory, ended by its own id."""

from __future__ import annotations

import base64
import email.utils
import hmac
import http.client
import shutil
import urllib.parse
from pathlib import Path

from processes import StoreServer, free_port

ACCOUNT = "hotset"
KEY = base64.b64encode(b"a key of the tests, and of nobody else").decode()
PROGRAM = Path(__file__).parents[2] / ".cache/azurite/node_modules/.bin/azurite-blob"
MISSING = f"Azurite is not installed: `make azurite` needs npm and puts it at {PROGRAM}"


class Azurite(StoreServer):
    """A container of its own server."""

    name = "data"

    def __init__(self) -> None:
        super().__init__("hs-az-")
        self.port = free_port()
        node = shutil.which("node")
        assert node, "`node` is missing, and Azurite is there"
        self._start(
            [
                node,
                str(PROGRAM.resolve()),
                "--inMemoryPersistence",
                "--disableTelemetry",
                "--skipApiVersionCheck",
                "--blobHost=127.0.0.1",
                f"--blobPort={self.port}",
            ],
            self._made,
            {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}", "PATH": "/usr/bin:/bin"},
        )

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` that reach it."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_storage_endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
        }

    def url(self, key: str) -> str:
        """`az://` of a key."""
        return f"az://{self.name}/{key}"

    def put(self, key: str, data: bytes) -> None:
        """Writes one blob."""
        status, answer = self._request(f"/{self.name}/{key}", {"x-ms-blob-type": "BlockBlob"}, data)
        assert status == 201, (status, answer)

    def _made(self) -> bool:
        status, answer = self._request(f"/{self.name}?restype=container", {})
        assert status in (201, 500, 503), answer
        return status == 201

    def _request(self, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
        """One PUT, signed as Azure has it (shared key)."""
        address = urllib.parse.urlsplit(path)
        headers = {
            **headers,
            "x-ms-date": email.utils.formatdate(usegmt=True),
            "x-ms-version": "2023-11-03",
        }
        own = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        resource = f"/{ACCOUNT}/{ACCOUNT}{urllib.parse.quote(address.path)}"
        for name, value in sorted(urllib.parse.parse_qsl(address.query)):
            resource += f"\n{name}:{value}"
        length = str(len(body)) if body else ""
        signed = "PUT\n\n\n" + length + "\n" * 9 + own + resource
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")).decode()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
        query = f"?{address.query}" if address.query else ""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("PUT", f"/{ACCOUNT}{urllib.parse.quote(address.path)}{query}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
