"""`Shards`: tar files in the WebDataset layout, served sample by sample through the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ..errors import InvalidError
from .labels import LabelledDataset
from .options import OptionArguments, Options


class Shards(LabelledDataset):
    """The samples of tar files, in the order of the shards and of their members.

    Members that differ only in what follows the first dot of their file name are one sample: `0007.jpg` and
    `0007.cls`. The files must be plain tar, not compressed ones. An index is made once and kept.

    - `place`: a tar file, many by a pattern (`"s3://bucket/train-{000..099}.tar"`), or a directory or prefix
      whose `.tar` files are taken in the order of their names.
    - `parts`: the extensions of a sample's parts, in the order wanted (`("jpg", "json")`); `"jpg;png"` takes
      the first that is there. Every sample must have them, but for those with a question mark: `"mask.png?"`
      is `None` in samples that have no such member. Without `parts` all members of the first sample, but its
      label, are parts.
    - `label`: where a label is: a member (`"cls"`), a field of one (`"json:label"`), or `"none"`. Without it
      `cls` is, where the first sample has one. Labels are numbers, lists of them, or names of classes.
    - `decode`: makes a sample of the read-only `memoryview` of its part; of as many as there are parts, with
      `None` for one that is missing. Without it a sample is `bytes`, or a tuple of `bytes`.

    For the other arguments see `Dataset`. Samples are `(sample, label)`, `(sample, label, id)` with
    `with_ids=True`, and without a label in shards that have none.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        parts: Sequence[str] = (),
        label: str = "",
        decode: Callable[..., Any] | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        if isinstance(parts, str):
            raise InvalidError(f"`parts={parts!r}`: a sequence is needed, like `({parts!r},)`")
        self.decode = decode
        self._open(Options(**options), "shards", place, extensions=parts, label=label)
