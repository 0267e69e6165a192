"""`Manifest`: the samples that a table names, served through the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Unpack

from .labels import LabelledDataset
from .options import OptionArguments, Options


class Manifest(LabelledDataset):
    """The samples of a table, in its order: whole files or objects, or parts of them.

    - `table`: a `.csv` with a header, a `.jsonl` or a `.parquet`, on disk or in a store. Columns: `key` (or
      `path`, or `file`), and optionally a label, `offset` and `length`. With `length` an object in a store is
      not checked before it is read, which saves a request for each.
    - `root`: the directory or prefix that keys are relative to; by default the one that holds the table.
    - `label`: the column of labels, or `"none"`. By default it is the column `label`, and a table with other
      columns instead is refused, so that labels are not overlooked. Labels keep their type: whole numbers
      are `int`, and if one of a column has a fraction, all are `float`; arrays (and `[0, 1]` in a CSV) are
      lists of numbers; other text is the name of a class, whose number is the label. A column that mixes
      these is refused.
    - `transform`: turns what `decode` returns into what is trained, as torchvision's transforms do; without
      `decode` it gets `bytes`. `Sampler.reevaluate` can replace it, to leave out its random parts.
    - `target_transform`: turns a label into a target: `torch.tensor` makes tensors of lists, which loaders
      can stack.

    For the other arguments see `Dataset`. Samples are `(sample, label)`, `(sample, label, id)` with
    `with_ids=True`, and have no label where the table has none.
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] = "",
        label: str = "",
        decode: Callable[[memoryview], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        self.decode = decode
        self.transform = transform
        self.target_transform = target_transform
        self._open(Options(**options), "manifest", table, label=label, root=root)
