"""What the package shows: few names, each of them documented, and everything else below an underscore."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import hotset
import hotset.integrations
import pytest
from hotset._dataset.options import OptionArguments, Options

INTEGRATIONS = ["accelerate", "lightning", "transformers"]


def _public(package: object) -> list[str]:
    found = pkgutil.iter_modules(package.__path__)  # type: ignore[attr-defined]
    return sorted(module.name for module in found if not module.name.startswith("_"))


def test_modules_that_are_not_for_users_begin_with_an_underscore() -> None:
    assert _public(hotset) == ["errors", "integrations"]
    assert _public(hotset.integrations) == INTEGRATIONS


@pytest.mark.parametrize("name", hotset.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(hotset, name).__doc__


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_every_integration_is_imported_by_name(name: str) -> None:
    assert importlib.import_module(f"hotset.integrations.{name}").__doc__


def test_options_are_the_same_for_datasets_and_for_type_checkers() -> None:
    assert [field.name for field in dataclasses.fields(Options)] == list(OptionArguments.__annotations__)


def test_an_argument_that_no_dataset_has_is_refused() -> None:
    with pytest.raises(TypeError, match="catch"):
        hotset.Shards("train.tar", catch="20%")  # type: ignore[call-arg]
