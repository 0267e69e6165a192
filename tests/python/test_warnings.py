"""What a user should know and is no error: said once, where the user can filter it."""

from __future__ import annotations

import warnings

import hotset
import pytest
from hotset.notes import warn_once


def test_a_warning_comes_once_from_rank_0_and_names_the_users_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in ("warm-up, epoch 1", "warm-up, epoch 2"):
            warn_once(text, rank=1, name="warmup")
            warn_once(text, name="warmup")
        warn_once("another")
        warn_once("another")
    assert [str(warning.message) for warning in caught] == ["warm-up, epoch 1", "another"]
    assert {warning.filename for warning in caught} == {__file__}
    assert all(warning.category is hotset.HotsetWarning for warning in caught)


def test_warnings_can_be_filtered_by_their_class() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", hotset.HotsetWarning)
        with pytest.raises(hotset.HotsetWarning, match="once"):
            warn_once("once")
