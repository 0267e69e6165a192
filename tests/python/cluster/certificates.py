"""Certificates of an authority of the tests' own, made by `openssl`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates. Its own is `certificate`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.certificate, self._key = folder / "authority.pem", folder / "authority.key"
        extensions = ("-addext", "keyUsage=critical,keyCertSign")
        out = ("-keyout", self._key, "-out", self.certificate)
        _openssl("req", "-x509", *_KEY, "-days", "2", "-subj", "/CN=tests", *extensions, *out)

    def sign(self, name: str, addresses: Sequence[str]) -> tuple[Path, Path]:
        """A certificate for a host of these addresses, and its key."""
        certificate, key, request = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        _openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions = self._folder / f"{name}.extensions"
        names = ",".join([f"DNS:{name}", *(f"IP:{address}" for address in addresses)])
        extensions.write_text(f"basicConstraints=CA:FALSE\nsubjectAltName={names}\n")
        signer = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "2")
        _openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", certificate)
        return certificate, key


def _openssl(*arguments: str | Path) -> None:
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise AssertionError("openssl is missing: install it (Debian: apt-get install openssl)") from None
    assert done.returncode == 0, done.stderr
