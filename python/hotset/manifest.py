"""`Manifest`: the samples that a table names, served through the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from . import deadline
from .labelled import Labelled
from .source import Progress


class Manifest(Labelled):
    """The samples of a table, in its order: whole files or objects, or parts of them.

    - `table`: a `.csv` with a head, a `.jsonl` or a `.parquet`, on disk or in a store. Columns: `key` (or
      `path`, or `file`), and if they are there a label, `offset` and `length`. With `length` an object in a
      store is not looked at before it is read, which saves a request for each.
    - `root`: the directory or prefix that keys lie below; without it the one that the table lies in.
    - `label`: the column of labels, or `"none"`. Without it `label` is, and a table that has other columns
      instead is refused, so that none is overlooked. Labels are what they are in the table: whole numbers
      are `int`, and where one of a column has a fraction all are `float`; arrays (and `[0, 1]` in a CSV) are
      lists of them; other text is the name of a class, whose number is the label. A column that mixes them
      is refused.
    - `target_transform`: makes a target of a label, such as `torch.tensor` of a list, for loaders to stack.

    For the other arguments see `Dataset`. Samples are `(sample, label)`, `(sample, label, id)` with
    `with_ids=True`, and without a label in tables that have none.
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] = "",
        label: str = "",
        cache: str | int = "20%",
        decode: Callable[[memoryview], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        with_ids: bool = False,
        job: str | None = None,
        wait: float = deadline.DEFAULT_WAIT,
        storage_options: Mapping[str, str | float] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.decode = decode
        self.target_transform = target_transform
        self.with_ids = with_ids
        self._closed = False
        self._source = self._open(
            "manifest", table, cache, (), job, wait, storage_options, progress, label=label, root=root
        )
