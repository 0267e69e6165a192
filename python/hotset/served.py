"""A dataset's job on a server.

The process that makes the dataset opens it there; the job is opened on first use by whoever comes first,
since a sampler may still change what job that is. Loader workers only ask. A server that was started again
knows neither dataset nor job nor epoch and says so (`LostError`): then all are opened again, the epoch with
the plan it had, and the question is put again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from . import _core, job, server
from .deadline import Deadline
from .errors import ChangedError, Error, LostError
from .rank import Ranks
from .settings import Settings
from .source import EPOCH_SHIFT, KEPT, Catalog, Listing, Progress, Scheme

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

_LOSSES = 5
"""How often one question survives that the server forgot the job; each means another restart."""

_FAREWELL = 5.0
"""Seconds that closing a job may take; whatever goes wrong then, the server will find out by itself."""


class Served:
    """Answers a dataset through a server."""

    def __init__(
        self,
        listing: Listing,
        *,
        cache: str,
        name: str | None,
        wait: float,
        settings: Settings,
        progress: Progress | None,
    ) -> None:
        deadline = Deadline(wait)
        self.job = job.new(name, listing.place, settings)
        self._listing = listing
        self._cache = cache
        self._wait = wait
        self._scheme = KEPT
        self._ranks = Ranks()
        self._opened = False
        self._link = server.find(self.job.run, self.job.main_pid, settings, deadline)
        self._catalog = self._link.call(lambda client, left: self._list(client, left, progress), deadline)

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @property
    def name(self) -> str:
        """What the job is called on the server now."""
        return self.job.planned if self._scheme.planned else self.job.name

    def attach(self, scheme: Scheme, rank: int | None, world: int | None) -> None:
        # The job so far is closed first, so that the server's memory is not asked for twice.
        if self._opened:
            self.close()
        self._scheme, self._ranks = scheme, Ranks(rank, world)
        self._on_job(lambda client, left: None)

    def ranks(self) -> tuple[int, int]:
        return self._ranks.resolve()

    def batch(self, indices: list[int]) -> _core.Batch:
        rank, _ = self.ranks()
        return self._on_job(
            lambda client, left: client.get_batch(self.name, indices, rank=rank, wait=left),
            epochs=lambda: {index >> EPOCH_SHIFT for index in indices},
        )

    def plan(self, epoch: int, start: int) -> _core.Plan:
        rank, world = self.ranks()
        return self._on_job(
            lambda client, left: client.begin_epoch(
                self.name, epoch, rank=rank, world=world, start=start, wait=left
            )
        )

    def report(self, epoch: int, upto: int, ids: Sequence[int], scores: Sequence[float]) -> None:
        rank, _ = self.ranks()
        _, rejected = self._on_job(
            lambda client, left: client.report(
                self.name, epoch, rank=rank, upto=upto, ids=ids, scores=scores, wait=left
            ),
            epochs=lambda: {epoch + 1},
        )
        if rejected:
            _log.debug(
                "%d of %d scores were not finite and non-negative, and were left out", rejected, len(ids)
            )

    def describe(self, first: int, count: int) -> tuple[list[str], list[int], list[int]]:
        deadline = Deadline(self._wait)
        for _ in range(_LOSSES):
            with contextlib.suppress(LostError):
                return self._link.call(
                    lambda client, left: client.describe(self._catalog.dataset, first, count, wait=left),
                    deadline,
                )
            self._link.call(self._list_again, deadline)
        raise LostError(
            f"the server at `{self._link.path}` forgets the dataset `{self._listing.place}` again and again"
        )

    def stats(self) -> dict[str, Any]:
        text = self._on_job(lambda client, left: client.stats(self.name, wait=left))
        said: dict[str, Any] = json.loads(text)
        jobs = [found for found in said["jobs"] if found["job"] == self.name]
        return {**(jobs[0] if jobs else {}), "server": said["server"]}

    def close(self) -> None:
        """Closes the job on the server, if this process can say so at once."""
        client = self._link.standing()
        if client is not None:
            with contextlib.suppress(Error):
                client.close_job(self.name, wait=_FAREWELL)
        self._opened = False

    def _on_job(
        self,
        work: Callable[[_core.Client, float], _Answer],
        epochs: Callable[[], Iterable[int]] = lambda: (),
    ) -> _Answer:
        """What `work` returns, with the job open and, after a loss, the `epochs` (counted from 1) begun."""
        deadline = Deadline(self._wait)
        lost = 0
        while True:
            try:
                if not self._opened:
                    self._link.call(self._open, deadline)
                    self._opened = True
                return self._link.call(work, deadline)
            except LostError:
                lost += 1
                if lost == _LOSSES or deadline.passed:
                    raise
                self._restore(epochs(), deadline)

    def _restore(self, epochs: Iterable[int], deadline: Deadline) -> None:
        rank, world = self.ranks()

        def restore(client: _core.Client, left: float) -> None:
            # One call after the other on one connection: should the server go in between, all is done again.
            self._list_again(client, left)
            self._open(client, deadline.left())
            for number in sorted(epochs):
                if number and self._scheme.planned:
                    client.begin_epoch(
                        self.name, number - 1, rank=rank, world=world, start=0, wait=deadline.left()
                    )

        with contextlib.suppress(LostError):
            self._link.call(restore, deadline)
            self._opened = True

    def _list(self, client: _core.Client, left: float, progress: Progress | None = None) -> Catalog:
        listing = self._listing
        return Catalog.of(
            client.open_dataset(
                listing.place,
                layout=listing.layout,
                extensions=listing.extensions,
                storage_options=listing.storage_options,
                progress=progress,
                wait=left,
            )
        )

    def _list_again(self, client: _core.Client, left: float) -> None:
        found = self._list(client, left)
        if found.dataset != self._catalog.dataset:
            raise ChangedError(
                f"`{self._listing.place}` holds other files than when it was opened; make the dataset again"
            )

    def _open(self, client: _core.Client, left: float) -> None:
        scheme = self._scheme
        said = client.open_job(
            self.name,
            self._catalog.dataset,
            cache=self._cache,
            strategy=scheme.strategy,
            policy=scheme.policy,
            seed=scheme.seed,
            prefetch=scheme.prefetch,
            pad=scheme.pad,
            wait=left,
        )
        if said["granted"] < said["asked"] and not self._opened:
            _log.warning(
                "the server grants %s bytes of the %s that cache=%r asks for; raise its --memory for more",
                f"{said['granted']:,}",
                f"{said['asked']:,}",
                self._cache,
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ranks": self._ranks.settled()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} at {self._link.path!r}, process {os.getpid()})"
