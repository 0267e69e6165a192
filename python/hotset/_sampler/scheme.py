"""A `Scheme` from what a user wrote, or an error that names the argument that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from .. import _core
from .._client.listing import absolute, storage_texts, texts
from .._client.source import Scheme
from ..errors import InvalidError
from .losses import quoted


def check_names(strategy: str, policy: str | None, seed: int) -> None:
    """Refuses a strategy or a policy that there is not, and a seed that is none."""
    _check_name("strategy", strategy, [known.name for known in _core.strategies()])
    if policy is not None:
        _check_name("policy", policy, [name for name, _ in _core.policies()])
    if not 0 <= seed < 1 << 64:
        raise InvalidError(f"`seed={seed}`: a whole number from 0 to 2^64 - 1 is needed")


def scheme_of(
    *,
    settings: Mapping[str, object] | None,
    policy_settings: Mapping[str, object] | None,
    epochs: int | None,
    packages: str | os.PathLike[str] | None,
    package_size: str | int | None,
    package_options: Mapping[str, str | float],
    **plain: str | int | bool,
) -> Scheme:
    """How a job is planned and kept. The `plain` ones are settings of the protocol's message as they are."""
    if settings is not None and "epoch_length" in settings:
        raise InvalidError(
            "`epoch_length` in `settings`: it is an argument of its own, "
            f"`Sampler(..., epoch_length={settings['epoch_length']!r})`"
        )
    asked = {
        **plain,
        "strategy_settings": texts("settings", settings),
        "policy_settings": texts("policy_settings", policy_settings),
        "epochs": _epochs(epochs),
        "packages": _place(packages),
        "package_bytes": _bytes(package_size),
    }
    return Scheme(asked, package_options=storage_texts(package_options))


def _check_name(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise InvalidError(f"there is no {what} `{name}`; known: {quoted(known)}")


def _epochs(epochs: int | None) -> int:
    if epochs is not None and epochs < 1:
        raise InvalidError(
            f"`epochs={epochs}`: a run has at least one epoch; leave it out where it is not known"
        )
    return epochs or 0


def _bytes(size: str | int | None) -> int:
    if size is None:
        return 0
    if str(size).rstrip().endswith("%"):
        raise InvalidError(f'`package_size={size!r}`: a package has bytes, not a share: write "1MiB"')
    try:
        return _core.parse_size(str(size), 1 << 40)
    except InvalidError as error:
        raise InvalidError(f"`package_size={size!r}`: {error}") from error


def _place(packages: str | os.PathLike[str] | None) -> str:
    if packages is None or packages == "off":
        return packages or ""
    return absolute(packages)
