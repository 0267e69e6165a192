"""`Manifest`: the samples that a table names, served through the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Unpack

from .labels import LabelledDataset
from .options import OptionArguments, Options


class Manifest(LabelledDataset):
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
        decode: Callable[[memoryview], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        self.decode = decode
        self.target_transform = target_transform
        self._open(Options(**options), "manifest", table, label=label, root=root)
