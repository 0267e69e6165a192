"""What `ServerSource` and `DirectSource` have in common: a listing, what was found, and how it is planned."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from .listing import Listing
from .rank import Ranks
from .source import KEPT, Catalog, Scheme


class ListedSource:
    """A source of what a listing found."""

    _catalog: Catalog
    """Set by the source's constructor, which lists."""

    def __init__(self, listing: Listing) -> None:
        self.identity = secrets.token_hex(8)
        self._listing = listing
        self._scheme: Scheme = KEPT
        self._ranks = Ranks()

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @property
    def listing(self) -> Listing:
        """What was listed, and how it is reached."""
        return self._listing

    @property
    def options(self) -> Mapping[str, str]:
        return self._listing.storage_options

    @property
    def planned(self) -> bool:
        return self._scheme.planned

    def ranks(self) -> tuple[int, int]:
        return self._ranks.resolve()
