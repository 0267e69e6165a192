"""A relay on loopback in front of a store's server, with the faults of a network.

It stops answering and comes back, cuts answers short by seed, and answers in the store's place.

Requests are taken apart at the ends of their heads and bodies; answers pass as bytes.
One thread serves all connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections import Counter
from collections.abc import Callable

Judge = Callable[[str], bytes | None]
"""Takes the head of a request; what it returns is the whole answer, and `None` lets the store answer."""


class Relay:
    """Passes connections on to `port`, until it is told otherwise."""

    def __init__(self, port: int, *, cut: float = 0.0, seed: int = 0, judge: Judge | None = None) -> None:
        self._to, self._cut, self._seed, self._judge = port, cut, seed, judge
        self.requests: Counter[str] = Counter()
        """By their first line."""
        self.kept_waiting = 0
        """Requests that came while nothing was answered."""
        self.cuts = 0
        """Answers that were cut short."""
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._passing.set()
        self._last: int | None = None
        self.stalled = threading.Event()
        """Nothing is answered."""
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(120), "the relay does not start"

    def stall(self, after: int = 0) -> None:
        """When it has taken `after` more requests: connections are taken, and nothing is answered on any."""
        self._last = self.requests.total() + after
        self._loop.call_soon_threadsafe(self._count)

    def resume(self) -> None:
        """Goes on with what has come in meanwhile."""
        self._last = None
        self.stalled.clear()
        self._loop.call_soon_threadsafe(self._passing.set)

    def stop(self) -> None:
        """Closes all connections and ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        assert not self._thread.is_alive(), "the relay does not end"

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = int(server.sockets[0].getsockname()[1])
        started.set()
        self._loop.run_forever()
        server.close()
        for task in (left := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def _count(self) -> None:
        """Stalls once the last request that may be answered has come."""
        if self._last is not None and self.requests.total() >= self._last:
            self._passing.clear()
            self.stalled.set()

    async def _serve(self, asking: asyncio.StreamReader, answering: asyncio.StreamWriter) -> None:
        store, into = await asyncio.open_connection("127.0.0.1", self._to)
        connection = _Connection()
        back = asyncio.ensure_future(self._answers(store, answering, connection))
        try:
            # Cancelled by `stop` only, which looks at nobody's outcome.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not connection.cut:
                    head = await asking.readuntil(b"\r\n\r\n")
                    text = head.decode("latin-1")
                    first = text.partition("\r\n")[0]
                    length = re.search(r"\r\ncontent-length: *(\d+)", text, re.IGNORECASE)
                    body = await asking.readexactly(int(length[1])) if length else b""
                    self.requests[first] += 1
                    self.kept_waiting += not self._passing.is_set()
                    self._count()
                    await self._passing.wait()
                    instead = self._judge(text) if self._judge else None
                    if instead is not None:
                        answering.write(instead)
                        continue
                    # What happens to an answer is drawn from the seed, the request and how often it came.
                    draw = random.Random(f"{self._seed} {first} {self.requests[first]}").random()
                    connection.cuts = draw < self._cut and first.startswith("GET ")
                    into.write(head + body)
                    await into.drain()
        finally:
            back.cancel()
            _end(into)
            _end(answering)

    async def _answers(
        self, store: asyncio.StreamReader, answering: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await store.read(1 << 16):
                # Now: the next request may come while this answer is still on its way.
                cut = connection.cuts
                await self._passing.wait()
                if cut:
                    # Behind the head, so that the client has begun to take the bytes.
                    head = data.find(b"\r\n\r\n") + 4
                    data = data[: head + (len(data) - head) // 2]
                answering.write(data)
                await answering.drain()
                if cut:
                    self.cuts += 1
                    break
        connection.cut = True
        _end(answering)


class _Connection:
    """What is known of one connection."""

    cuts = False
    """The answer under way is to be cut short."""
    cut = False
    """It is over."""


def _end(writer: asyncio.StreamWriter) -> None:
    """Ends a connection. Said to the other side, since forked workers hold copies of our sockets."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
    writer.close()
