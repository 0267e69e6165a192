"""A part of a dataset as a dataset of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hotset
import pytest
from torch.utils.data import DataLoader
from trees import digest, equal_files, labelled_files


def test_a_split_has_its_own_ids_plan_and_cache(tmp_path: Path) -> None:
    right = labelled_files(tmp_path / "tree", 100)
    whole = hotset.ImageFolder(str(tmp_path / "tree"), loader=digest, with_ids=True)
    train, held_out = whole.select(range(20, 100)), whole.select(range(20))
    assert (len(train), len(held_out)) == (80, 20)
    assert held_out.targets == whole.targets[:20] and train.classes == whole.classes
    sampler = hotset.Sampler(train, policy="minio")
    loader: DataLoader[object] = DataLoader(train, batch_size=16, sampler=sampler, num_workers=2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        served = [triple for batch in loader for triple in zip(*batch, strict=True)]  # type: ignore[call-overload]
        assert sorted(int(number) for _, _, number in served) == list(range(80))
        assert all((image, int(label)) == right[int(number) + 20] for image, label, number in served)
    assert [held_out[i][:2] for i in range(20)] == [right[i] for i in range(20)]


def test_a_selection_of_a_selection_and_one_after_a_kill(tmp_path: Path) -> None:
    whole = hotset.Dataset(equal_files(tmp_path / "tree", 30, 200))
    odd = whole.select(range(1, 30, 2))
    some = odd.select([14, 0])
    assert list(some) == [whole[29], whole[1]] and some.key(0) == whole.key(29)
    os.kill(some.stats()["server"]["pid"], signal.SIGKILL)
    assert list(some) == [whole[29], whole[1]]


def test_what_cannot_be_selected_is_named(tmp_path: Path) -> None:
    whole = hotset.Dataset(equal_files(tmp_path / "tree", 5, 10))
    with pytest.raises(IndexError):
        whole.select([5])
    with pytest.raises(hotset.InvalidError, match="twice"):
        whole.select([1, 1])
    with pytest.raises(hotset.InvalidError, match="`ids` is empty"):
        whole.select([])


def test_a_selection_works_past_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTSET", "off")
    whole = hotset.Dataset(equal_files(tmp_path / "tree", 10, 20))
    assert list(whole.select([7, 2])) == [whole[7], whole[2]]
