"""What to list and how to reach it, from what a user wrote: the same in whatever working directory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import _core
from ..errors import InvalidError, kind_of

Progress = Callable[[str, int], None]
"""Called with what is being done and how much of it is."""


@dataclass(frozen=True)
class Listing:
    """What to list, and how to reach it."""

    place: str
    layout: str
    extensions: tuple[str, ...]
    storage_options: dict[str, str]
    label: str = ""
    """Where labels are, for shards and manifests."""
    root: str = ""
    """Where a manifest's keys lie."""
    selected: array[int] | None = None
    """The samples that are taken of it, by their ids in the whole; all without it."""

    def select(self, ids: Sequence[int]) -> Listing:
        """The samples `ids` of it; ids of a selection are those it has given its samples."""
        chosen = ids if self.selected is None else [self.selected[number] for number in ids]
        return replace(self, selected=array("I", chosen))


def absolute(place: str | os.PathLike[str]) -> str:
    """A place as it is called in whatever working directory; URLs stay as they are."""
    written = os.fspath(place)
    if written and "://" not in written:
        written = str(Path(written).expanduser().absolute())
    return written


def listed(
    layout: str,
    place: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None,
    *,
    extensions: Sequence[str] = (),
    label: str = "",
    root: str | os.PathLike[str] = "",
) -> Listing:
    """A listing as the user asks for it, with names that mean the same in the server's working directory."""
    if not isinstance(place, str | os.PathLike) and layout == "manifest":
        raise InvalidError(
            f"the table is {kind_of(place)}, and `Manifest` reads one from a file (`.csv`, `.jsonl` or "
            '`.parquet`): write it to one, like `pandas.DataFrame(rows).to_csv("train.csv")`, and give its '
            "name; many shards are named by a pattern (`hotset.Shards`)"
        )
    if not isinstance(place, str | os.PathLike):
        raise InvalidError(
            f"the place of the dataset is {kind_of(place)}, and one name is needed: a directory, a "
            'prefix of a store, or for many shards a pattern like "s3://bucket/train-{000..099}.tar". Files '
            "that lie in several places are named by a table (`hotset.Manifest`)"
        )
    if isinstance(extensions, str):
        raise InvalidError(f"`extensions={extensions!r}`: a sequence is needed, like `({extensions!r},)`")
    written = storage_texts(storage_options)
    return Listing(absolute(place), layout, tuple(extensions), written, label, absolute(root) if root else "")


def storage_texts(options: Mapping[str, object] | None) -> dict[str, str]:
    """`storage_options=` as the protocol has it. A value that cannot be may be a secret: it is not shown."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidError(f"`storage_options` is {kind_of(options)}: a dict of names and values is needed")
    for name, value in (options or {}).items():
        if not isinstance(name, str):
            raise InvalidError(f"`{name!r}` in `storage_options` is no name of an option: text is needed")
        if not isinstance(value, str | int | float):
            raise InvalidError(
                f"`{name}` in `storage_options` is {kind_of(value)}: text or a number is needed"
            )
    return texts("storage_options", options)


def texts(what: str, values: Mapping[str, object] | None) -> dict[str, str]:
    """Settings as the protocol has them."""
    written: dict[str, str] = {}
    for name, value in (values or {}).items():
        if isinstance(value, bool):
            written[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            written[name] = str(value)
        else:
            raise InvalidError(f"`{what}`: `{name}={value!r}` is no number, word or truth value")
    return written


def cache_text(cache: str | int) -> str:
    """`cache=` as the protocol has it: bytes with a unit, or a share of the dataset."""
    if isinstance(cache, str):
        text = cache.strip()
    elif isinstance(cache, int) and not isinstance(cache, bool):
        text = str(cache)
    else:
        raise InvalidError(
            f'`cache={cache!r}`: write a share of the dataset like "20%", or bytes like "8GiB"'
        )
    try:
        # Judged before the listing, which can take long; the size of the dataset has no part in it.
        _core.parse_size(text, 1 << 40)
    except InvalidError as error:
        raise InvalidError(f"`cache={cache!r}`: {error}") from error
    return text
