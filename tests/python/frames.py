"""Frames of the protocol, made by hand: what a client that does not keep to it can send.

Only the standard library is used, so that a process of another user can run it: `SOURCE` is its text.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from pathlib import Path

SOURCE = Path(__file__).read_text() if "__file__" in globals() else ""

GET, PUT = 30, 31
"""The fields of a request that ask for contents and give them; of a response, the answers."""
FAILURE = 1
PROTOCOL = 7
"""The version that a connection says hello with."""
_ADD_SEALS, _SHRINK, _GROW = 1033, 2, 4


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes | int) -> bytes:
    """A field of a message: a number or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def framed(message: bytes) -> bytes:
    """A message behind its length."""
    return struct.pack("<I", len(message)) + message


def parsed(message: bytes) -> dict[int, list[bytes | int]]:
    """The fields of a message."""
    fields: dict[int, list[bytes | int]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return value

    while at < len(message):
        tag = number()
        value: bytes | int = number()
        if tag & 7 == 2:
            assert isinstance(value, int)
            at += value
            value = message[at - value : at]
        fields.setdefault(tag >> 3, []).append(value)
    return fields


class Raw:
    """A connection over which anything can be said."""

    def __init__(self, path: str, greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        if greet:
            self.say(field(1, field(1, PROTOCOL) + field(2, b"0")))
            assert 4 in self.hear()

    def say(self, message: bytes, memory: int | None = None) -> None:
        """Sends a request."""
        if memory is None:
            self.socket.sendall(framed(message))
        else:
            socket.send_fds(self.socket, [framed(message)], [memory])

    def hear(self) -> dict[int, list[bytes | int]]:
        """The next response; nothing if the other end hung up."""
        head = self._exactly(4)
        return parsed(self._exactly(struct.unpack("<I", head)[0])) if head else {}

    def _exactly(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            piece = b""
            with contextlib.suppress(ConnectionResetError):
                piece = self.socket.recv(count - len(out))
            if not piece:
                return b""
            out += piece
        return out

    def contents(self, what: int, hashes: list[bytes], lengths: list[int], memory: int) -> tuple[bool, str]:
        """Asks for contents or gives them: whether all were there or kept, and what a refusal says."""
        packed = b"".join(varint(length) for length in lengths)
        named = b"".join(field(1, each) for each in hashes) + field(2, packed)
        self.say(field(what, field(1, named)), memory)
        answer = self.hear()
        if FAILURE in answer:
            failure = answer[FAILURE][0]
            assert isinstance(failure, bytes)
            return False, str(parsed(failure)[2][0], "utf-8")  # type: ignore[arg-type]
        told = answer[what][0]
        assert isinstance(told, bytes)
        verdicts = parsed(told).get(1, [b""])[0]
        assert isinstance(verdicts, bytes)
        return len(verdicts) == len(hashes) and all(verdicts), ""


def memory(content: bytes) -> int:
    """Memory of this process's own that holds `content`, sealed as a shared cache wants it."""
    descriptor = os.memfd_create("attack", os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, max(len(content), 1))
    os.pwrite(descriptor, content, 0)
    fcntl.fcntl(descriptor, _ADD_SEALS, _SHRINK | _GROW)
    return descriptor
