"""The names of classes, of datasets whose labels may be places in a list of them."""

from __future__ import annotations

from .._client.source import Source


class Classes:
    """`classes` and `class_to_idx`, as torchvision has them."""

    _source: Source

    @property
    def classes(self) -> list[str]:
        """The sorted names of the classes, where labels are text; a label is an index into this list."""
        return list(self._source.catalog.classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class."""
        return {name: label for label, name in enumerate(self._source.catalog.classes)}
