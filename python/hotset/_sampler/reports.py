"""Losses on their way from the trainer to the server.

A loss on a GPU is not there yet when the trainer hands it over: the kernels that make it are still queued.
Asking for its value would stop the trainer until the GPU has caught up, so it leaves by itself: the trainer's
stream copies it, and one beside it brings the copy into pinned memory and marks an event. The next call
sends what has arrived in the meantime. At most `_IN_FLIGHT` are on their way; the trainer waits for the
oldest only when it is that many steps ahead of its GPU. There is no thread.

One call to the server is one mini-batch, since some strategies rank losses within it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

_IN_FLIGHT = 32
"""Batches on their way. A trainer is seldom more than a few steps ahead of its GPU, and a report that late is
still in time for the next plan."""


class Event(Protocol):
    """What says that a copy is done."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...


Deliver = Callable[[list[int] | None, list[float]], None]
"""Takes the ids of a batch, where they had to be copied too, and its losses."""


@dataclass
class Departed:
    """The losses of one batch, being copied."""

    event: Event
    scores: torch.Tensor
    ids: torch.Tensor | None
    """The ids, where they were on the GPU too."""
    rooms: list[torch.Tensor]
    """The pinned memory that the two lie in."""
    deliver: Deliver


def as_it_is(loss: torch.Tensor) -> torch.Tensor:
    """A copy of the losses as they are now: the trainer may change them in place (`loss /= 4`)."""
    return loss.detach().to(torch.float32, copy=True)


class Reports:
    """Brings losses to what takes them, in order, without waiting for a GPU."""

    def __init__(self) -> None:
        self._departed: deque[Departed] = deque()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._spare: dict[torch.dtype, list[torch.Tensor]] = {}
        """Pinned memory to use again: taking it from the system stops the GPU."""
        self.waited = 0
        """How often the trainer had to wait for its GPU here."""

    def __len__(self) -> int:
        return len(self._departed)

    def send(self, loss: torch.Tensor, ids: torch.Tensor | None, deliver: Deliver) -> None:
        """Calls `deliver` with the losses, and the ids if they are given here: now, or when they arrived."""
        devices = [
            values.device for values in (loss, ids) if values is not None and values.device.type == "cuda"
        ]
        if not devices:
            # What left before must arrive before. Accelerators other than CUDA's are waited for.
            self.flush()
            deliver(None if ids is None else ids.tolist(), loss.detach().float().tolist())
            return
        self.poll()
        if len(self._departed) >= _IN_FLIGHT:
            self.waited += 1
            self._departed[0].event.synchronize()
            self.poll()
        self._departed.append(self._depart(devices[0], loss, ids, deliver))

    def poll(self) -> None:
        """Delivers what has arrived."""
        while self._departed and self._departed[0].event.query():
            self._deliver(self._departed.popleft())

    def flush(self) -> None:
        """Delivers everything, waiting for the GPU if need be."""
        while self._departed:
            self._departed[0].event.synchronize()
            self._deliver(self._departed.popleft())

    def _depart(
        self, device: torch.device, loss: torch.Tensor, ids: torch.Tensor | None, deliver: Deliver
    ) -> Departed:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)
        # On the trainer's own stream, before whatever the trainer does next.
        kept = as_it_is(loss)
        stream.wait_stream(torch.cuda.current_stream(device))
        rooms: list[torch.Tensor] = []
        with torch.cuda.stream(stream):
            scores = self._copied(kept, torch.float32, stream, rooms)
            copied = None if ids is None else self._copied(ids.detach(), torch.int64, stream, rooms)
            # Blocking: waiting for it leaves the processor to the loader's workers.
            event = torch.cuda.Event(blocking=True)
            event.record(stream)
        return Departed(event, scores, copied, rooms, deliver)

    def _copied(
        self, values: torch.Tensor, dtype: torch.dtype, stream: torch.cuda.Stream, rooms: list[torch.Tensor]
    ) -> torch.Tensor:
        """`values` in pinned memory, once `stream` has come so far."""
        if values.device != stream.device:
            return values.to("cpu", dtype)
        # The trainer may free it while the copy still waits for its turn.
        values.record_stream(stream)
        spare = self._spare.setdefault(dtype, [])
        room = spare.pop() if spare and len(spare[-1]) >= len(values) else None
        if room is None:
            room = torch.empty(len(values), dtype=dtype, pin_memory=True)
        rooms.append(room)
        target = room[: len(values)]
        target.copy_(values.to(dtype), non_blocking=True)
        return target

    def _deliver(self, arrived: Departed) -> None:
        ids = None if arrived.ids is None else arrived.ids.tolist()
        scores: list[float] = arrived.scores.tolist()
        for room in arrived.rooms:
            self._spare[room.dtype].append(room)
        arrived.deliver(ids, scores)
