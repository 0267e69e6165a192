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

    Members whose file names are equal up to the first dot are one sample: `0007.jpg` and `0007.cls`. The
    files must be plain, uncompressed tar. An index is made once and kept.

    - `place`: a tar file, a pattern of several (`"s3://bucket/train-{000..099}.tar"`), or a directory or
      prefix whose `.tar` files are taken in the order of their names.
    - `parts`: the extensions of a sample's parts, in the order wanted (`("jpg", "json")`); `"jpg;png"` takes
      the first that exists. Every sample must have them, except those with a question mark: `"mask.png?"` is
      `None` in samples without such a member. By default all members of the first sample except its label
      are parts.
    - `label`: where the label is: a member (`"cls"`), a field of one (`"json:label"`), or `"none"`. By
      default it is `cls`, where the first sample has one. Labels are numbers, lists of them, or class names.
    - `decode`: turns the read-only `memoryview` of each part, or `None` for a missing one, into a sample. By
      default a sample is `bytes`, or a tuple of `bytes`.
    - `transform`: turns what `decode` returns into what is trained; `target_transform`: the same of a label.

    For the other arguments see `Dataset`. Samples are `(sample, label)`, `(sample, label, id)` with
    `with_ids=True`, and have no label where the shards have none.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        parts: Sequence[str] = (),
        label: str = "",
        decode: Callable[..., Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        if isinstance(parts, str):
            raise InvalidError(f"`parts={parts!r}`: a sequence is needed, like `({parts!r},)`")
        self.decode = decode
        self.transform = transform
        self.target_transform = target_transform
        self._open(Options(**options), "shards", place, extensions=parts, label=label)
