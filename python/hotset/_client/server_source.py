"""A dataset's job on a server.

Every process of a run joins the job on its own connection, when it first asks for something, and again on a
new connection: the server keeps a job as long as a process is in it. A server that was started again, or that
has given the job up meanwhile, opens dataset and job anew and says that it knows no epoch (`LostError`):
readers then enter the epoch of what they ask for, with the plan it had, and ask again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from .. import _core
from ..errors import Error, InvalidError, LostError
from . import hosts, job, server
from .deadline import Deadline
from .listed_source import ListedSource
from .listing import Listing, Progress
from .notes import warn_once
from .rank import Ranks
from .settings import Settings
from .source import Catalog, Label, Order, Scheme

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

_LOSSES = 5
"""How often one question survives that the server has lost the job; each means another restart."""

_PAUSE = 0.05
"""Seconds before the third try after a loss; the second comes at once, and later pauses grow."""

_FAREWELL = 5.0
"""Seconds that closing a job may take; whatever goes wrong then, the server will find out by itself."""


class ServerSource(ListedSource):
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
        super().__init__(listing)
        deadline = Deadline(wait)
        self.job = job.new(name, listing.place, settings)
        self._named = name
        self._cache = cache
        self._wait = wait
        self._plans = 0
        """Samplers so far; each has a job of its own."""
        self._loads = 0
        """States that this sampler has loaded; each makes its job another."""
        self._run = ""
        """The run that the job is."""
        self._resume: tuple[str, int | None, int] | None = None
        """Where the job resumes when it is next joined: a run, an epoch, and slots trained of it."""
        self._resumed: int | None = None
        self._newest = False
        """Whether the job resumes the newest run, at an epoch not yet known."""
        self._restored = False
        """Whether what was learned was put in, and no epoch has begun since."""
        self._note = ""
        """What the user should know of the run as it begins."""
        self._joined: _core.Client | None = None
        """The connection on which this process is in the job."""
        try:
            self._link = server.find(self.job.run, self.job.main_pid, settings, deadline)
            self._catalog = self._link.call(lambda client, left: self._list(client, left, progress), deadline)
        except BaseException:
            job.give_back(self.job, listing.place)
            raise

    @property
    def past_server(self) -> bool:
        return False

    @property
    def name(self) -> str:
        """What the job is called on the server now."""
        return self.job.planned(self._plans, self._loads) if self._scheme.planned else self.job.name

    def select(self, ids: Sequence[int]) -> ServerSource:
        return ServerSource(
            self._listing.select(ids),
            cache=self._cache,
            name=self._named,
            wait=self._wait,
            settings=Settings.read(),
            progress=None,
        )

    @property
    def run(self) -> str:
        return self._run

    @property
    def resumed(self) -> int | None:
        return self._resumed

    def attach(self, scheme: Scheme, rank: int | None, world: int | None, resume: bool = False) -> None:
        if resume and not self.job.lasting:
            raise InvalidError(
                "`resume=True` continues the newest run of a name: give the dataset a `job=`, the same in "
                "every run"
            )
        # The job so far is left first, so that the server's memory is not asked for twice.
        self.close()
        self._plans, self._loads = self._plans + 1, 0
        self._open(scheme, Ranks(rank, world), ("", None, 0) if resume else None)
        self._newest = resume

    def resume(self, run: str, epoch: int, position: int) -> None:
        # A checkpoint that holds what was learned needs nothing of the server's, nor does one made past it.
        if run and not self._restored:
            self._move(self._scheme, (run, epoch, position))

    def _move(self, scheme: Scheme, resume: tuple[str, int, int] | None) -> None:
        """Goes on in another job of the same name."""
        self.close(moves=True)
        self._loads += 1
        self._open(scheme, self._ranks, resume)

    def _open(self, scheme: Scheme, ranks: Ranks, resume: tuple[str, int | None, int] | None) -> None:
        self._scheme, self._ranks, self._resume = scheme, ranks, resume
        self._run, self._resumed, self._newest, self._note = "", None, False, ""
        self._restored = scheme.state is not None
        self._on_job(lambda client, left: None)

    def _settle(self, epoch: int) -> None:
        """Before an epoch: resumes the newest run there, and raises pending warnings."""
        if self._newest and self._resumed not in (None, epoch):
            self.resume(self._run, epoch, 0)
        self._newest = self._restored = False
        if self._note:
            warn_once(self._note, rank=self.ranks()[0])
            self._note = ""

    def batch(self, asked: _core.Indices, *, matched: bool = False) -> _core.Batch:
        rank, _ = self.ranks()
        batch = self._on_job(
            lambda client, left: client.get_batch(self.name, asked, rank=rank, matched=matched, wait=left),
            epochs=asked.epochs,
        )
        if batch.remark:
            warn_once(f"{self._listing.place}: {batch.remark}", rank=rank)
        return batch

    def plan(self, epoch: int, start: int, order: Order | None = None) -> _core.Plan:
        self._settle(epoch)
        rank, world = self.ranks()
        if order is not None:
            hosts.compare(order, self.name, epoch, world)

        def begun(client: _core.Client, left: float) -> _core.Plan:
            asked: dict[str, Any] = {"rank": rank, "world": world, "start": start, "wait": left}
            if order is None:
                return client.begin_epoch(self.name, epoch, **asked)
            asked["order"] = order.digest
            # The ids are for the first rank that comes.
            plan = client.begin_given(self.name, epoch, **asked)
            if plan is None:
                plan = client.begin_given(self.name, epoch, **asked, ids=order.ids())
            return cast(_core.Plan, plan)

        plan = self._on_job(begun)
        for name, text in plan.warnings:
            warn_once(text, rank=rank, name=f"{self.name} {name}")
        return plan

    def report(self, epoch: int, upto: int, ids: Sequence[int], scores: Sequence[float]) -> None:
        rank, _ = self.ranks()
        _, rejected = self._on_job(
            lambda client, left: client.report(
                self.name, epoch, rank=rank, upto=upto, ids=ids, scores=scores, wait=left
            ),
            epochs=lambda: {epoch},
        )
        if rejected:
            _log.debug(
                "%d of %d scores were not finite and non-negative, and were left out", rejected, len(ids)
            )

    def reevaluation(self, epoch: int) -> array[int]:
        self._settle(epoch)
        rank, world = self.ranks()
        said = self._on_job(
            lambda client, left: client.reevaluate(self.name, epoch, rank=rank, world=world, wait=left)
        )
        return array("I", said)

    def reevaluated(self, epoch: int, ids: Sequence[int], losses: Sequence[float], last: bool) -> None:
        rank, _ = self.ranks()
        self._on_job(
            lambda client, left: client.reevaluated(
                self.name, epoch, rank=rank, ids=ids, losses=losses, last=last, wait=left
            )
        )

    def reevaluation_batch(self, epoch: int, ids: Sequence[int]) -> _core.Batch:
        rank, _ = self.ranks()
        return self._on_job(
            lambda client, left: client.get_batch(
                self.name, list(ids), rank=rank, reevaluation=epoch, wait=left
            )
        )

    def end_epoch(self, epoch: int, accuracy: float | None) -> None:
        rank, _ = self.ranks()
        self._on_job(
            lambda client, left: client.end_epoch(self.name, epoch, rank=rank, accuracy=accuracy, wait=left)
        )

    def importance(self) -> bytes:
        return self._on_job(lambda client, left: client.state(self.name, wait=left))

    def restore(self, state: bytes) -> None:
        self._move(replace(self._scheme, state=state), None)

    def scores(self) -> array[float]:
        return array("f", self._on_job(lambda client, left: client.scores(self.name, wait=left)))

    def describe(self, first: int, count: int) -> tuple[list[str], list[Label], list[int]]:
        deadline = Deadline(self._wait)

        def described(client: _core.Client, left: float) -> tuple[list[str], list[Label], list[int]]:
            try:
                return client.describe(self._catalog.dataset, first, count, wait=left)
            except LostError:
                self._list(client, left, expect=self._catalog.dataset)
                return client.describe(self._catalog.dataset, first, count, wait=deadline.left())

        return self._link.call(described, deadline)

    def stats(self) -> dict[str, Any]:
        text = self._on_job(lambda client, left: client.stats(self.name, wait=left))
        said: dict[str, Any] = json.loads(text)
        jobs = [found for found in said["jobs"] if found["job"] == self.name]
        return {**(jobs[0] if jobs else {}), "server": said["server"]}

    def close(self, moves: bool = False) -> None:
        """Leaves the job, if this process is in it; its run may move on to another."""
        client, self._joined = self._joined, None
        if client is not None and not client.closed:
            with contextlib.suppress(Error):
                client.close_job(self.name, moves=moves, wait=_FAREWELL)

    def _on_job(
        self,
        work: Callable[[_core.Client, float], _Answer],
        epochs: Callable[[], Iterable[int]] = lambda: (),
    ) -> _Answer:
        """What `work` returns, in the job and, after a loss, with the `epochs` entered."""
        deadline = Deadline(self._wait)
        entering: Iterable[int] = ()

        def joined(client: _core.Client, left: float) -> _Answer:
            if client is not self._joined:
                self._join(client, deadline)
            for number in sorted(entering):
                self._enter(client, number, deadline)
            return work(client, deadline.left())

        for losses in range(_LOSSES):
            try:
                return self._link.call(joined, deadline)
            except LostError as error:
                _log.debug("joining the job again: %s", error)
                self._joined, entering = None, epochs()
            # On a cluster a job that moves to another node is known there a moment later.
            time.sleep(min(_PAUSE * (2**losses - 1), max(deadline.left(), 0.0)))
        return self._link.call(joined, deadline)

    def _list(
        self, client: _core.Client, left: float, progress: Progress | None = None, expect: str = ""
    ) -> Catalog:
        listing = self._listing
        return Catalog.of(
            client.open_dataset(
                listing.place,
                layout=listing.layout,
                extensions=listing.extensions,
                storage_options=listing.storage_options,
                label=listing.label,
                root=listing.root,
                select=listing.selected or (),
                progress=progress,
                expect=expect,
                wait=left,
            )
        )

    def _join(self, client: _core.Client, deadline: Deadline) -> None:
        self._list(client, deadline.left(), expect=self._catalog.dataset)
        scheme = self._scheme
        said = client.open_job(
            self.name,
            {**scheme.settings, "dataset": self._catalog.dataset, "cache": self._cache},
            lasting=self.job.lasting,
            package_options=scheme.package_options,
            state=scheme.state,
            run=self._run,
            launch=self.job.launch,
            attempt=self.job.attempt,
            parent=self.job.parent,
            rank=self.job.rank,
            reader=os.getpid() != self.job.main_pid,
            resume=self._resume,
            wait=deadline.left(),
        )
        again, self._joined = self._joined is not None, client
        if not self._run:
            self._run, self._resumed = said["run"], said["resumed"]
            self._note = self._remark(said)
        # From now on the server's own state is newer.
        self._scheme, self._resume = replace(scheme, state=None), None
        if said["one_host"] and not said["cluster"]:
            self._check_hosts(said["strategy"])
        # The server says these to the client that opens the job; one that opened it before has heard them.
        for remark in () if again else said["remarks"]:
            warn_once(remark)

    def _remark(self, said: dict[str, Any]) -> str:
        """What the user should know of the run that the server has opened."""
        if said["earlier"] is not None and self._resume is not None:
            return (
                f"`resume=True`: what job `{self.job.run}` had learned by epoch {said['earlier']} could not "
                "be read, as the log of the server says, and this run starts afresh; load its checkpoint "
                "(`sampler.load_state_dict`, `sampler.load_importance_state`) if there is one"
            )
        if said["earlier"] is not None:
            used, packages = "uses nothing of it", self._scheme.settings["packages"]
            if packages not in ("", "off"):
                used = (
                    "uses nothing that it had learned; its packages, which hold unchanged samples, are "
                    f"found again at `{packages}` and used from the first epoch on, so that this run reads "
                    "less than the first did, and may serve other samples"
                )
            return (
                f"job `{self.job.run}` was trained before, as far as epoch {said['earlier']}; this run "
                f"starts afresh and {used}. To continue that run, load its checkpoint "
                "(`sampler.load_state_dict`), or make the sampler with `resume=True`"
            )
        run, epoch, position = self._resume or ("", 0, 0)
        if run and (epoch or position) and said["resumed"] is None and said["one_host"]:
            return (
                f"the server no longer has what run `{run}` had learned by epoch {epoch}, and continues "
                "without it: it keeps the last four epochs of the two newest runs of a `job=`. Load what the "
                "checkpoint has, with `sampler.load_importance_state`"
            )
        return ""

    def _check_hosts(self, strategy: str) -> None:
        """Refuses ranks on several hosts, whose servers would plan differently."""
        _, world = self.ranks()
        here = Settings.read().local_world
        if here is not None and here < world:
            self.close()
            alone = ", ".join(f"`{each.name}`" for each in _core.strategies() if each.follows_seed)
            raise InvalidError(
                f"{world} ranks run on several hosts, {here} of them here, and `strategy={strategy!r}` plans "
                "from what one server alone knows: start the server of each host as a node of one cluster "
                "(`hotset serve --cluster etcd://HOST:2379/NAME`), train on one host, or choose a strategy "
                f"that plans from its seed alone ({alone})"
            )

    def _enter(self, client: _core.Client, number: int, deadline: Deadline) -> None:
        """Enters the epoch of that number as a reader."""
        if self._scheme.planned:
            rank, world = self.ranks()
            client.begin_epoch(
                self.name, number, rank=rank, world=world, start=0, join=True, wait=deadline.left()
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ranks": self._ranks.settled(), "_joined": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} at {self._link.path!r}, process {os.getpid()})"
