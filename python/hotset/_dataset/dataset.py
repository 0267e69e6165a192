"""A dataset of files, served through the cache.

`dataset[i]` is always sample i, whatever the cache holds. A `Sampler` yields sample numbers marked with their
epoch (`numbers`); where it plans a part of the dataset, requests go to that part's own job (`parts`). The
object holds no connection and no thread: it can be forked, pickled to spawned workers and used from several
threads.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from .. import _core
from .._client.deadline import DEFAULT_WAIT, check_wait
from .._client.direct_source import DirectSource
from .._client.listing import Progress, cache_text, listed
from .._client.server_source import ServerSource
from .._client.settings import Settings
from .._client.source import Batch, Source
from ..errors import Error, InvalidError
from .numbers import Number, described
from .options import Options
from .parts import Part, Parts, places_of
from .progress import shown

if TYPE_CHECKING:
    from torch.utils.data import Dataset as _TorchDataset

    Base = _TorchDataset[Any]
else:
    # A loader needs `__len__` and `__getitem__` only, and importing torch takes seconds.
    Base = object

_dropped: deque[tuple[int, Source]] = deque()
"""Sources of garbage-collected datasets, with the process each was made in. A finaliser may run in the middle
of a call to the server, so the jobs are closed when the next dataset is made."""


class Dataset(Base):
    """The files below a directory, as bytes or decoded.

    - `place`: the directory, or the prefix of an object store.
    - `cache`: how much to keep in memory, in bytes (`"8GiB"`) or as a share of the dataset (`"20%"`).
    - `decode`: turns a read-only `memoryview` of the file into a sample. The view is the cache's memory: copy
      what you keep, and never pass it to torch. By default a sample is `bytes`.
    - `extensions`: the file name endings to take; by default all files.
    - `with_ids`: return `(sample, id)`, which `Sampler.update` needs.
    - `job`: a name shared by all processes of this training run, where no launcher gives them one.
    - `wait`: seconds to wait for storage or for a server that is being restarted.
    - `storage_options`: how to reach the store.
    - `progress`: called during long listings with what is being done and how much of it.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        cache: str | int = "20%",
        decode: Callable[[memoryview], Any] | None = None,
        extensions: Sequence[str] = (),
        with_ids: bool = False,
        job: str | None = None,
        wait: float = DEFAULT_WAIT,
        storage_options: Mapping[str, str | float] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.decode = decode
        options = Options(cache, with_ids, job, wait, storage_options, progress)
        self._open(options, "files", place, extensions=extensions)

    def _open(
        self,
        options: Options,
        layout: str,
        place: str | os.PathLike[str],
        *,
        extensions: Sequence[str] = (),
        label: str = "",
        root: str | os.PathLike[str] = "",
    ) -> None:
        """Lists what lies at `place`, and opens a job for it."""
        _close_dropped()
        self.with_ids = options.with_ids
        self._closed = False
        listing = listed(
            layout, place, options.storage_options, extensions=extensions, label=label, root=root
        )
        cache, wait, settings = cache_text(options.cache), check_wait(options.wait), Settings.read()
        source: Source
        with shown(listing.place, options.progress) as report:
            if settings.off:
                source = DirectSource(listing, progress=report)
            else:
                source = ServerSource(
                    listing, cache=cache, name=options.job, wait=wait, settings=settings, progress=report
                )
        weakref.finalize(self, _dropped.append, (os.getpid(), source)).atexit = False
        self._source: Source = source
        self._parts, self._first = Parts(), 0

    def __len__(self) -> int:
        return self._source.catalog.samples

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Any]:
        """The samples at `indices`, in one call to the server. Loaders use this for whole batches."""
        asked = _core.Indices(indices, len(self), self._check_plan)
        ids = asked.ids()
        if not ids:
            return []
        if asked.epochs():
            return self._samples(ids, self.source.batch(asked), self._first)
        if self._parts:
            return self._shared(ids)
        return self._samples(ids, self.source.batch(asked, matched=self._parts.had))

    def _check_plan(self, numbers: type[Number]) -> None:
        """Refuses numbers from a Sampler of another dataset, where they stand for other samples."""
        plan = numbers.plan
        if plan is not None and self.source.identity not in plan.sources:
            raise InvalidError(
                f"the loader has a {described(self, len(self))}, and its Sampler was made of another "
                f"dataset, a {plan.made_of}, whose numbers stand for other samples there; give both the "
                "same: `DataLoader(part, sampler=hotset.Sampler(part))`, or the Sampler what your dataset "
                "wraps"
            )

    def _shared(self, ids: list[int]) -> list[Any]:
        """The samples `ids`, those of parts from the parts' jobs."""
        found: dict[int, Any] = {}
        for part, places in self._parts.shares(ids):
            numbers = [ids[place] for place in places]
            if part is None:
                # The order of held-out samples says nothing.
                batch = self.source.batch(_core.Indices(numbers, len(self)), matched=True)
            else:
                batch = part.batch(numbers)
            found.update(zip(places, self._samples(numbers, batch), strict=True))
        return [found[place] for place in range(len(ids))]

    def reevaluated_items(self, epoch: int, ids: Sequence[int]) -> list[Any]:
        """Samples to re-evaluate before `epoch`, as from `__getitems__`; they do not count as servings.

        For `Sampler`; not for everyday use.
        """
        return self._samples(list(ids), self.source.reevaluation_batch(epoch, ids))

    @property
    def source(self) -> Source:
        """What answers its requests. For `Sampler`; not for everyday use."""
        if self._closed:
            raise InvalidError("the dataset was closed")
        return self._source

    def select(self, ids: Iterable[SupportsIndex]) -> Self:
        """The samples `ids` as a dataset of its own, for splits: in that order, numbered from 0.

        It has this dataset's settings and a cache of its own, of the same share. Each id may occur once.
        """
        chosen = _core.Indices(ids, len(self)).ids()
        if not chosen:
            raise InvalidError("`ids` is empty: a dataset needs a sample")
        part = copy.copy(self)
        # What was looked up for the whole does not hold for the part.
        for name in ("samples", "targets"):
            part.__dict__.pop(name, None)
        part._closed, part._parts, part._first = False, Parts(), 0
        part._source = self.source.select(chosen)
        weakref.finalize(part, _dropped.append, (os.getpid(), part._source)).atexit = False
        return part

    def part(self, ids: Sequence[int]) -> tuple[Self, Part]:
        """The samples `ids` as from `select`, to be planned while this dataset serves them.

        For `Sampler`, which keeps both as long as it lives; not for everyday use.
        """
        places = places_of(ids, len(self))
        chosen = self.select(ids)
        part = Part(places, chosen.source)
        self._parts.add(part)
        return chosen, part

    def number_from(self, first: int) -> None:
        """Numbers the samples from `first` on, where this is one of several datasets that a Sampler plans.

        For `Sampler`; not for everyday use.
        """
        self._first = first

    def key(self, index: SupportsIndex) -> str:
        """The name of a sample's file, relative to the dataset's place."""
        return self.source.describe(_core.Indices([index], len(self)).ids()[0], 1)[0][0]

    def stats(self) -> dict[str, Any]:
        """The counters of this dataset's job: by epoch in `epochs`, of its server in `server`.

        Where a Sampler plans a `Subset`, they are those of that part's job, or of the newest of several.
        """
        newest = next(iter(self._parts), None)
        return self.source.stats() if newest is None else newest.source.stats()

    def close(self) -> None:
        """Frees what the cache holds for this dataset. The end of the process does so too."""
        if not self._closed:
            self._closed = True
            self._source.close()

    def _samples(self, ids: list[int], batch: Batch, first: int = 0) -> list[Any]:
        """What a loader gets for `batch`, the samples `ids`; ids that `with_ids` adds begin at `first`."""
        if self.decode is None:
            samples: list[Any] = batch.bytes()
        else:
            samples = [
                self._decoded(self.decode, number, view)
                for number, view in zip(ids, batch.views(), strict=True)
            ]
        if not self.with_ids:
            return samples
        return [(sample, first + number) for sample, number in zip(samples, ids, strict=True)]

    def _decoded(self, decode: Callable[[memoryview], Any], number: int, view: memoryview) -> Any:
        """A sample as `decode` returns it; a failure names the sample."""
        try:
            return decode(view)
        except Exception as error:
            try:
                key = self.key(number)
            except Error:
                key = None
            named = f"sample {number}" if key is None else f"sample {number} (`{key}`)"
            raise InvalidError(
                f"{named}: its {len(view)} bytes cannot be decoded: {type(error).__name__}: {error}",
                number,
                key,
            ) from error


def _close_dropped() -> None:
    while _dropped:
        pid, source = _dropped.popleft()
        if pid == os.getpid():
            source.close()
