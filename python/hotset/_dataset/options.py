"""What every dataset is opened with, whatever it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from .._client.deadline import DEFAULT_WAIT
from .._client.listing import Progress


@dataclass(frozen=True)
class Options:
    """The arguments that all datasets share; `Dataset` says what they mean."""

    cache: str | int = "20%"
    with_ids: bool = False
    job: str | None = None
    wait: float = DEFAULT_WAIT
    storage_options: Mapping[str, str | float] | None = None
    progress: Progress | None = None


class OptionArguments(TypedDict, total=False):
    """The same, for type checkers: what `**options` of a constructor may hold."""

    cache: str | int
    with_ids: bool
    job: str | None
    wait: float
    storage_options: Mapping[str, str | float] | None
    progress: Progress | None
