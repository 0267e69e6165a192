"""`hotset.doctor`: any loader, with its own transforms and its own training step, measured and judged.

Four rates, as DS-Analyzer has them: the loader alone (fetching and preparing), the step alone on a batch
that is there, and of single samples what is waited for (fetching) and what is computed (preparing). Where
it is known in which place samples lie, its storage is measured past the loader too; otherwise no more is
taken for possible than the loader was seen to get.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import _core
from .._client.listing import absolute, storage_texts
from .._dataset.dataset import Dataset
from ..errors import Error, InvalidError, kind_of
from .diagnosis import Diagnosis
from .line import Line
from .patience import within
from .place import Place, innermost, layout_of, place_of
from .stages import Loaded, Sampled, loading, sampling, training

_SHORTEST = 2.0
"""Seconds in which something can be measured at all."""

_BYTES = 256 << 20
"""What is read past the loader at most."""

_APART = 4_096
"""Samples at most that are taken single by single of a dataset of Hotset's."""

_SHARES = {"loading": 0.4, "training": 0.2, "sampling": 0.15, "storage": 0.25}
"""Of the time there is."""

_WORTH = 0.8
"""A loader that gets less than this share of what its workers would get alone meets a limit of storage."""


def doctor(
    loader: Iterable[Any],
    step: Callable[[Any], object] | None = None,
    *,
    seconds: float = 30.0,
    place: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    extensions: Sequence[str] = (),
    epochs: int = 30,
    html: str | os.PathLike[str] | None = None,
) -> Diagnosis:
    """Finds out what a training waits for, and what would help.

    - `loader`: a `DataLoader`, of Hotset's or any other dataset; or anything that gives batches.
    - `step`: called with a batch as the loader gives it: your forward, backward and update. It runs some
      hundred times on one and the same batch, so give it a model that you do not go on with. Without it the
      verdict says for what trainings it holds.
    - `seconds`: how long it may take, about. A loader that gives nothing is given up after 1.4 times as long.
    - `place`: where the samples lie, as `hotset doctor` takes it, where the dataset does not tell. Storage
      is then measured past the loader too (at most 256 MiB are read), and ways of reading are compared with
      what it can do.
    - `storage_options`, `extensions`: how to reach `place`, and what to take there.
    - `epochs`: of the training, for strategies that learn which samples to read.
    - `html`: a file for the report as a page.

    Run it in a process of its own, before you train: it takes samples out of their order.
    """
    _check(loader, step, seconds, epochs)
    if place is None and (storage_options or extensions):
        raise InvalidError("`storage_options` and `extensions` say how to read `place`: give it too")
    _check_page(html)
    parts = _Parts(loader)
    where = _place(parts.dataset, place, storage_options, extensions)
    line = Line(f"hotset doctor: measuring for about {seconds:.0f} s")
    with line:
        line.say("loading, without training")
        loaded = within(
            "the loader",
            seconds * _SHARES["loading"],
            seconds,
            loading(loader, parts.workers, parts.size),
        )
        computing: float | None = None
        if step is not None:
            line.say("training, on a batch that is there")
            computing = training(step, loaded.batch, seconds * _SHARES["training"]) / loaded.size
        sampled: Sampled | None = None
        if parts.dataset is not None:
            line.say("single samples")
            with _apart(parts.dataset) as (dataset, in_order):
                sampled = within(
                    "the loader's dataset",
                    seconds * _SHARES["sampling"],
                    seconds,
                    sampling(dataset, parts.collate, loaded.size, in_order=in_order),
                )
        survey = _survey(where, seconds * _SHARES["storage"], line) if where is not None else None
        line.say("comparing ways of reading")
        measured = _measured(parts, loaded, computing, sampled, survey, epochs)
        found = Diagnosis.of(
            _core.diagnose(json.dumps(measured), shutil.get_terminal_size((100, 24)).columns)
        )
    if html is not None:
        Path(html).write_text(found.page, encoding="utf-8")
    return found


def _check_page(html: str | os.PathLike[str] | None) -> None:
    """Refuses a file that cannot be written, before anything is measured; what lies there stays."""
    try:
        if html is not None:
            Path(html).open("a", encoding="utf-8").close()
    except OSError as error:
        raise InvalidError(f"`html={html!r}` cannot be written: {error.strerror}") from error


def _check(loader: object, step: object, seconds: float, epochs: int) -> None:
    if not hasattr(loader, "__iter__"):
        raise InvalidError(f"`loader` is {kind_of(loader)}: give a `DataLoader`, or what gives batches")
    if step is not None and not callable(step):
        raise InvalidError(f"`step` is {kind_of(step)}: give a function of one batch")
    if not (isinstance(seconds, int | float) and _SHORTEST <= seconds <= 3_600.0):
        raise InvalidError(f"`seconds={seconds!r}`: give a number from {_SHORTEST:g} to 3600")
    if not (isinstance(epochs, int) and 1 <= epochs <= 10_000):
        raise InvalidError(f"`epochs={epochs!r}`: give a whole number from 1 to 10000")


@contextmanager
def _apart(dataset: Any) -> Iterator[tuple[Any, bool]]:
    """A dataset to take samples of that no plan asked for, and whether in order.

    Of Hotset's a random part with a job of its own, in order: a random one without a plan is warned of.
    """
    if not isinstance(dataset, Dataset) or len(dataset) == 0:
        yield dataset, False
        return
    part = dataset.select(sorted(random.Random(0).sample(range(len(dataset)), min(len(dataset), _APART))))
    try:
        yield part, True
    finally:
        part.close()


class _Parts:
    """What a loader is made of, as far as it tells."""

    def __init__(self, loader: Any) -> None:
        self.dataset: Any = getattr(loader, "dataset", None)
        self.workers = int(getattr(loader, "num_workers", 0) or 0)
        self.stay = bool(getattr(loader, "persistent_workers", False))
        size = getattr(loader, "batch_size", None)
        self.size: int | None = size if isinstance(size, int) else None
        collate = getattr(loader, "collate_fn", None)
        self.collate: Callable[[list[Any]], Any] | None = collate if callable(collate) else None
        self.name = (
            type(innermost(self.dataset)).__name__ if self.dataset is not None else type(loader).__name__
        )
        self.samples = _length(self.dataset)
        if self.samples is None and (batches := _length(loader)) is not None:
            self.samples = batches * (self.size or 1)

    @property
    def is_hotset(self) -> bool:
        """Whether it is read through Hotset already."""
        return isinstance(innermost(self.dataset), Dataset)


def _length(thing: object) -> int | None:
    try:
        return len(thing)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def _place(
    dataset: object,
    place: str | os.PathLike[str] | None,
    storage_options: Mapping[str, object] | None,
    extensions: Sequence[str],
) -> Place | None:
    if place is None:
        return place_of(dataset)
    written = absolute(place)
    return Place(
        written, layout_of(written), tuple(extensions), storage_options=storage_texts(storage_options)
    )


def _survey(where: Place, seconds: float, line: Line) -> dict[str, Any] | str:
    """What storage can do; in words, why that could not be measured."""
    try:
        found = _core.survey(
            where.place,
            layout=where.layout,
            seconds=max(seconds, _SHORTEST),
            most_bytes=_BYTES,
            extensions=list(where.extensions),
            root=where.root,
            storage_options=dict(where.storage_options),
            progress=lambda what, _: line.say(f"storage: {what}"),
        )
    except Error as error:
        return f"The storage of `{where.place}` could not be measured: {error}."
    survey: dict[str, Any] = json.loads(found)
    return survey


def _measured(
    parts: _Parts,
    loaded: Loaded,
    computing: float | None,
    sampled: Sampled | None,
    survey: dict[str, Any] | str | None,
    epochs: int,
) -> dict[str, Any]:
    """The input of the verdict."""
    host = _core.host()
    cores = host["cores"]
    workers = parts.workers
    preparing = None if sampled is None else sampled.preparing
    notes: list[str] = []
    opening, mean_bytes, place_samples = None, None, None
    if isinstance(survey, str):
        notes.append(survey)
    if isinstance(survey, dict):
        storage, opening = survey["storage"], survey["opening"]
        mean_bytes, place_samples = survey["mean_bytes"], survey["samples"]
        notes += [note for note in survey["notes"] if not note.startswith("Decoding")]
    else:
        storage = _seen(loaded, sampled, workers, cores)
        notes.append(
            "How much storage could give to more readers was not measured: give `place=`, where the "
            "samples lie, "
            "to have it measured."
        )
    samples, complete = parts.samples, True
    if not samples and isinstance(survey, dict):
        samples, complete = place_samples, survey["complete"]
    if not samples:
        samples, complete = loaded.batches * loaded.size, loaded.ended
    rate = loaded.rate
    if rate is None:
        notes.append(
            f"Only {loaded.batches} batches came in the time there was: their rate is not known, and a "
            f"model of "
            "the loader stands for it. Give it longer with `seconds`."
        )
    if parts.is_hotset:
        notes.append("This loader reads through Hotset already: what it waits for is what Hotset leaves.")
    return {
        "name": parts.name,
        "samples": samples,
        "complete": complete,
        "mean_bytes": mean_bytes,
        "storage": storage,
        "preparing": preparing,
        "decoding_only": False,
        "computing": computing,
        "loaded": rate,
        "starting": _starting(parts, loaded),
        "loader": {"batch": loaded.size, "workers": workers, "cores": cores},
        "memory": host["memory"],
        "disk": host["disk"],
        "reads": host["reads"],
        "epochs": epochs,
        "opening": opening,
        "hotset": parts.is_hotset,
        "notes": notes,
    }


def _starting(parts: _Parts, loaded: Loaded) -> float:
    """What an epoch takes besides its batches: workers that start and end, unless they stay."""
    if parts.workers == 0 or parts.stay or loaded.rate is None:
        return 0.0
    return max(loaded.first - loaded.size * parts.workers / loaded.rate, 0.0) + loaded.closing


def _seen(loaded: Loaded, sampled: Sampled | None, workers: int, cores: int) -> dict[str, Any]:
    """Storage as the loader met it: no faster than it was seen to be."""
    readers = max(workers, 1)
    if sampled is None:
        latency = readers / loaded.rate if loaded.rate else loaded.first / loaded.size
        return {"latency": latency, "requests": None, "bandwidth": None, "at_a_time": float(readers)}
    latency = max(sampled.fetching, 1e-7)
    crowd = max(readers / cores, 1.0)
    alone = readers / (latency + sampled.preparing * crowd)
    limited = loaded.rate is not None and loaded.rate < _WORTH * alone and latency > sampled.preparing
    requests = loaded.rate if limited else None
    return {"latency": latency, "requests": requests, "bandwidth": None, "at_a_time": float(readers)}
