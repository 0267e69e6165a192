"""Manifests: the samples that a table names."""

from __future__ import annotations

import json
from pathlib import Path

import hotset
import pytest
from torch.utils.data import DataLoader
from trees import content, digest, equal_files


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Twenty files of 100 bytes, and one of 60 that holds six samples."""
    place = equal_files(tmp_path / "tree", 20, 100)
    (place / "pack").write_bytes(content("pack", 60))
    return place


def test_a_csv_table_beside_its_files_gives_them_in_its_order(place: Path) -> None:
    rows = [f"000/{number:06d}.bin,{'dog' if number % 2 else 'cat'}" for number in reversed(range(20))]
    (place / "train.csv").write_text("\n".join(["key,label", *rows]))
    train = hotset.Manifest(place / "train.csv", with_ids=True)
    assert train.classes == ["cat", "dog"]
    loader = DataLoader(train, batch_size=4, num_workers=2, collate_fn=list)
    served = [sample for batch in loader for sample in batch]
    assert served == [
        (content(f"{19 - number:06d}.bin", 100), (19 - number) % 2, number) for number in range(20)
    ]


def test_json_lines_name_parts_of_files_below_another_root(place: Path, tmp_path: Path) -> None:
    rows = [{"path": "pack", "offset": 10 * at, "length": 10, "kind": at - 3} for at in range(6)]
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    train = hotset.Manifest(tmp_path / "train.jsonl", root=place, label="kind", decode=digest)
    whole = content("pack", 60)
    assert [train[at] for at in range(6)] == [(digest(whole[10 * at :][:10]), at - 3) for at in range(6)]
    bare = hotset.Manifest(tmp_path / "train.jsonl", root=place)
    assert bare[2] == whole[20:30]


def test_what_a_table_gets_wrong_is_told_with_its_row(place: Path) -> None:
    def told(text: str) -> str:
        (place / "wrong.csv").write_text(text)
        with pytest.raises(hotset.InvalidError) as caught:
            hotset.Manifest(place / "wrong.csv")
        return str(caught.value)

    assert "row `2`" in told("key\npack\nnowhere\n")
    assert "no column `key`" in told("name\npack\n")
    assert "does not lie below" in told("key\n/etc/passwd\n")
    with pytest.raises(hotset.InvalidError, match=r"ends in none of `\.csv`"):
        hotset.Manifest(place / "pack")
    with pytest.raises(hotset.InvalidError, match=r"no manifest `.*missing\.csv`"):
        hotset.Manifest(place / "missing.csv")
