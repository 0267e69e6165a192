"""A relay in front of a node that changes bytes on their way, as a broken machine does; for the tests.

    lying_relay.py LISTEN:PORT TO:PORT CERTIFICATE KEY HONEST

It ends TLS on both sides, and speaks as the node does, with the node's certificate. One byte of every large
piece of data that the node sends is turned over, until the file `HONEST` is there. Frames of HTTP/2 stay
whole: what is wrong is found by checksums, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from pathlib import Path

DATA, HEAD, LARGE = 0, 9, 1000
"""HTTP/2: the type of frames with data, and the length of a frame's head; and what is a large frame."""


def place(text: str) -> tuple[str, int]:
    """A host and its port."""
    host, _, port = text.rpartition(":")
    return host, int(port)


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on as they are."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def turned_over(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, honest: Path) -> None:
    """Passes frames on, of which large ones have one byte that is wrong."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(HEAD)
            body = bytearray(await reader.readexactly(int.from_bytes(head[:3], "big")))
            if head[3] == DATA and len(body) >= LARGE and not honest.exists():
                body[len(body) // 2] ^= 0xFF
            writer.write(head + body)
            await writer.drain()
    writer.close()


async def main() -> None:
    """Relays until it is killed."""
    listen, to, certificate, key, honest = sys.argv[1:]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(certificate, key)
    for context in (server, client):
        context.set_alpn_protocols(["h2"])

    async def serve(asking: asyncio.StreamReader, answering: asyncio.StreamWriter) -> None:
        node, into = await asyncio.open_connection(*place(to), ssl=client)
        await asyncio.gather(
            passed_on(asking, into), turned_over(node, answering, Path(honest)), return_exceptions=True
        )

    await asyncio.start_server(serve, *place(listen), ssl=server)
    print("listening", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
