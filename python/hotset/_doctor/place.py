"""Where a loader's samples lie, as far as its dataset tells: then storage can be measured past the loader."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._client.listed_source import ListedSource
from .._dataset.dataset import Dataset


@dataclass(frozen=True)
class Place:
    """A dataset as `hotset doctor` measures it."""

    place: str
    layout: str = "files"
    extensions: tuple[str, ...] = ()
    root: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict)


def place_of(dataset: Any) -> Place | None:
    """The place of a dataset of Hotset's, or of one with a `root` as torchvision's folders have it."""
    inner = innermost(dataset)
    if isinstance(inner, Dataset):
        source = inner.source
        if not isinstance(source, ListedSource):
            return None
        listing = source.listing
        return Place(
            listing.place, listing.layout, listing.extensions, listing.root, dict(listing.storage_options)
        )
    root = getattr(inner, "root", None)
    if isinstance(root, str | os.PathLike) and os.path.isdir(root) and hasattr(inner, "samples"):
        return Place(os.path.abspath(os.fspath(root)))
    return None


def innermost(dataset: Any) -> Any:
    """The dataset below torch's parts (`Subset`) of one."""
    while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return dataset


def layout_of(place: str) -> str:
    """How files become samples, as far as the name of a place tells."""
    name = place.lower()
    if name.endswith(".tar"):
        return "shards"
    if name.endswith((".csv", ".tsv", ".jsonl", ".parquet")):
        return "manifest"
    return "files"
