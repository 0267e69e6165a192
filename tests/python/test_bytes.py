"""Bytes out are bytes in, whatever happens on the way."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import hotset
import pytest
from hotset import _core
from torch.utils.data import DataLoader
from trees import content, digest, equal_files, labelled_files

EPOCHS = 3


@pytest.mark.parametrize("policy", ["lru", "minio"])
def test_every_sample_and_label_is_right_under_six_workers_eviction_and_faults(
    tmp_path: Path, policy: str
) -> None:
    truth = labelled_files(tmp_path / "tree", 900)
    faults = {"fault.seed": "3", "fault.rate": "0.03", "fault.stall": "0.02", "fault.stall_for": "20ms"}
    train = hotset.ImageFolder(
        tmp_path / "tree", loader=digest, cache="5%", with_ids=True, storage_options=faults
    )
    sampler = hotset.Sampler(train, policy=policy, seed=1)
    loader = DataLoader(train, batch_size=32, sampler=sampler, num_workers=6, collate_fn=list)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        served = [sample for batch in loader for sample in batch]
        assert {number: (found, label) for found, label, number in served} == truth
        assert len(served) == len(truth)
    stats = train.stats()
    assert [epoch["served"] for epoch in stats["epochs"][:EPOCHS]] == [len(truth)] * EPOCHS
    assert all(
        epoch["served"] == epoch["hit"] + epoch["packed"] + epoch["single"] for epoch in stats["epochs"]
    )
    assert stats["resident_bytes"] <= stats["capacity"]


def test_a_dataset_without_a_sampler_is_right_and_kept(tmp_path: Path) -> None:
    truth = labelled_files(tmp_path / "tree", 200)
    held_out = hotset.ImageFolder(tmp_path / "tree", loader=digest, cache="30%", with_ids=True)
    loader = DataLoader(held_out, batch_size=16, num_workers=2, collate_fn=list)
    for _ in range(2):
        served = [sample for batch in loader for sample in batch]
        assert [number for *_, number in served] == list(range(len(truth)))
        assert {number: (found, label) for found, label, number in served} == truth
    stats = held_out.stats()
    assert stats["policy"] == "minio"
    assert stats["unplanned"]["served"] == 2 * len(truth)
    # The second pass finds what the first one kept.
    assert stats["unplanned"]["hit"] >= stats["resident_samples"] > 0
    assert stats["resident_bytes"] <= stats["capacity"]


def test_files_come_as_bytes_decoded_or_with_ids(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 20, 100)
    expected = [content(f"{number:06d}.bin", 100) for number in range(20)]
    plain = hotset.Dataset(place)
    assert list(plain) == expected  # type: ignore[call-overload]
    assert plain[-1] == expected[-1]
    assert plain.key(3) == "000/000003.bin"
    assert hotset.Dataset(place, decode=digest)[7] == digest(expected[7])
    assert hotset.Dataset(place, with_ids=True).__getitems__([5, -1]) == [
        (expected[5], 5),
        (expected[19], 19),
    ]


def test_only_the_extensions_asked_for_are_taken(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 4, 10)
    (place / "notes.txt").write_text("hello")
    assert len(hotset.Dataset(place)) == 5
    assert hotset.Dataset(place, extensions=(".txt",)).__getitems__([0]) == [b"hello"]


def test_a_decoder_that_fails_names_the_sample(tmp_path: Path) -> None:
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 3, 10), decode=lambda view: 1 // 0)
    with pytest.raises(hotset.InvalidError, match=r"sample 1 \(`000/000001\.bin`\).*ZeroDivisionError"):
        dataset[1]


def test_no_python_code_runs_while_views_are_made(tmp_path: Path) -> None:
    """A signal's handler runs where Python code does, and what it raised there was lost."""
    dataset = hotset.Dataset(equal_files(tmp_path / "tree", 20, 100))
    batch = dataset.source.batch(_core.Indices(range(20), 20))
    ran: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        views = batch.views()
        last = batch[19]
    finally:
        sys.setprofile(None)
    assert ran == []
    assert (len(views), bytes(last)) == (20, content("000019.bin", 100))
