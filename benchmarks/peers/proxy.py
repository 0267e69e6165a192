"""A slow network in front of a store: every request waits, few are served at a time, and all share one rate.

HTTP/1.1 is taken apart at the ends of heads and bodies; what is inside passes as bytes, signatures included.
A request takes one of `requests` places, its answer begins `latency` after that at the earliest, and the
place is free again when the last byte has passed. Bodies of all connections pass one after the other at
`rate`. One thread serves all connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

PIECE = 16 << 10
"""Bytes of a body that pass at once."""
UNTIMED = 0.001
"""Seconds for which nothing sleeps: the clock of an event loop is no finer. What is due is not forgotten."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """What the network allows."""

    latency: float = 0.020
    """Seconds to the first byte."""
    requests: int = 32
    """At a time."""
    rate: float = 20e6
    """Bytes a second, all connections together."""


@dataclass
class Counts:
    """What has passed."""

    get: int = 0
    head: int = 0
    list: int = 0
    other: int = 0
    down: int = 0
    """Bytes of bodies of answers."""
    up: int = 0
    """Bytes of bodies of requests."""
    most: int = 0
    """Requests that were served at a time."""
    late: int = 0
    """Answers for which the store itself took longer than the latency."""

    @property
    def requests(self) -> int:
        """Of every kind."""
        return self.get + self.head + self.list + self.other


class Pace:
    """One line that all bytes pass, one after the other."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free = rate, 0.0

    def wait(self, now: float, size: int) -> float:
        """Seconds until `size` bytes that come now have passed, behind all that came before."""
        self._free = max(self._free, now) + size / self._rate
        return self._free - now


class Proxy:
    """Passes connections on to `port` of loopback, slowly."""

    def __init__(self, port: int, limits: Limits, sleep: Sleep = asyncio.sleep) -> None:
        self._to, self._limits, self._sleep = port, limits, sleep
        self._counts = Counts()
        self._under_way = 0
        self._pace = Pace(limits.rate)
        self._loop = asyncio.new_event_loop()
        self._places = asyncio.Semaphore(limits.requests)
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        if not started.wait(20):
            raise RuntimeError("the proxy did not start")

    def counts(self) -> Counts:
        """What has passed so far."""
        return replace(self._counts)

    def begin(self) -> None:
        """Counts from nothing again."""
        self._counts = Counts()

    def stop(self) -> None:
        """Closes all connections and ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512))
        self.port = int(server.sockets[0].getsockname()[1])
        started.set()
        self._loop.run_forever()
        server.close()
        for task in (left := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _serve(self, asking: asyncio.StreamReader, answering: asyncio.StreamWriter) -> None:
        """All requests of one connection, each of which is answered before the next is read."""
        into: asyncio.StreamWriter | None = None
        # Cancelled by `stop` only, which looks at nobody's outcome.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            store, into = await asyncio.open_connection("127.0.0.1", self._to)
            goes_on = True
            while goes_on:
                head = Head(await asking.readuntil(b"\r\n\r\n"))
                self._counted(head)
                async with self._places:
                    self._under_way += 1
                    self._counts.most = max(self._counts.most, self._under_way)
                    try:
                        goes_on = await self._exchange(head, asking, answering, store, into)
                    finally:
                        self._under_way -= 1
        for writer in (into, answering):
            if writer is not None:
                writer.close()

    async def _exchange(
        self,
        head: Head,
        asking: asyncio.StreamReader,
        answering: asyncio.StreamWriter,
        store: asyncio.StreamReader,
        into: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; whether the connection can have another."""
        begun = self._loop.time()
        if "100-continue" in head.field("expect"):
            answering.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        into.write(head.raw)
        async for piece, size in head.body(asking):
            self._counts.up += size
            await self._passed(size)
            into.write(piece)
            await into.drain()
        answer = Head(await store.readuntil(b"\r\n\r\n"))
        while answer.status // 100 == 1:
            answer = Head(await store.readuntil(b"\r\n\r\n"))
        rest = begun + self._limits.latency - self._loop.time()
        if rest > 0:
            await self._sleep(rest)
        else:
            self._counts.late += 1
        answering.write(answer.raw)
        if head.method != "HEAD" and answer.status not in (204, 304):
            async for piece, size in answer.body(store):
                self._counts.down += size
                await self._passed(size)
                answering.write(piece)
                await answering.drain()
        await answering.drain()
        return "close" not in answer.field("connection") and "close" not in head.field("connection")

    async def _passed(self, size: int) -> None:
        wait = self._pace.wait(self._loop.time(), size)
        if wait > UNTIMED:
            await self._sleep(wait)

    def _counted(self, head: Head) -> None:
        if head.method == "GET" and re.search(r"[?&](list-type|prefix|delimiter)=", head.target):
            self._counts.list += 1
        elif head.method == "GET":
            self._counts.get += 1
        elif head.method == "HEAD":
            self._counts.head += 1
        else:
            self._counts.other += 1


class Head:
    """The head of a request or of an answer."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        first, _, fields = raw.decode("latin-1").partition("\r\n")
        self.method, self.target, *_ = first.split(" ")
        lines = (line.partition(":") for line in fields.split("\r\n"))
        self._fields = {name.lower(): value.strip() for name, _, value in lines}

    @property
    def status(self) -> int:
        """Of an answer, in which it stands where a request has its target."""
        return int(self.target)

    def field(self, name: str) -> str:
        """The value in lower case, nothing if there is none."""
        return self._fields.get(name, "").lower()

    async def body(self, reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, int]]:
        """Its pieces as they are on the line, and how many bytes of content each has."""
        if "chunked" in self.field("transfer-encoding"):
            size = 1
            while size:
                line = await reader.readuntil(b"\r\n")
                size = int(line.partition(b";")[0], 16)
                yield line + await reader.readexactly(size + 2), size
            return
        left = int(self.field("content-length") or 0)
        while left:
            piece = await reader.read(min(left, PIECE))
            if not piece:
                raise asyncio.IncompleteReadError(piece, left)
            left -= len(piece)
            yield piece, len(piece)
