"""Manifests: the samples that a table names."""

from __future__ import annotations

import json
from pathlib import Path

import hotset
import pytest
import torch
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
    bare = hotset.Manifest(tmp_path / "train.jsonl", root=place, label="none")
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


def _labels(table: Path, **how: object) -> list[object]:
    """The labels of a table, asked for one by one and in a batch."""
    train = hotset.Manifest(table, **how)  # type: ignore[arg-type]
    single = [train[at][1] for at in range(len(train))]
    assert [label for _, label in train.__getitems__(list(range(len(train))))] == single
    assert train.classes == [] and train.class_to_idx == {}
    return single


@pytest.mark.parametrize("mode", ["served", "off"])
def test_labels_are_what_they_are_in_the_table(
    place: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "off":
        monkeypatch.setenv("HOTSET", "off")
    table = place / "train.csv"
    for texts, labels in [
        (("7", "-3", "10"), [7, -3, 10]),
        (("0.0", "2.0", "10.0"), [0.0, 2.0, 10.0]),
        (("2.5", "10.5", "0.5"), [2.5, 10.5, 0.5]),
        (("1", "2", "2.5"), [1.0, 2.0, 2.5]),
        (('"[0, 1]"', '"[]"', '"[5]"'), [[0, 1], [], [5]]),
    ]:
        table.write_text("key,label\n" + "".join(f"pack,{text}\n" for text in texts))
        found = _labels(table)
        assert found == labels and [type(label) for label in found] == [type(label) for label in labels]

    table = place / "train.jsonl"
    for values in [[3, 1, 2], [0.0, 2.0, 10.0], [[0, 1, 1], [1, 0, 0]], [[0.5, 1.0], [0.25, 0.0]]]:
        table.write_text("".join(json.dumps({"key": "pack", "target": value}) + "\n" for value in values))
        found = _labels(table, label="target")
        assert found == values and repr(found) == repr(values)


def test_lists_are_stacked_where_they_are_made_tensors(place: Path) -> None:
    rows = [{"key": "pack", "label": [at % 2, 1, 0]} for at in range(6)]
    (place / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    train = hotset.Manifest(place / "train.jsonl", decode=digest, target_transform=torch.tensor)
    loader = DataLoader(train, batch_size=6, num_workers=1, sampler=hotset.Sampler(train))
    ((_, targets),) = loader
    assert targets.shape == (6, 3) and targets.dtype == torch.int64
    assert targets.sum(0).tolist() == [3, 6, 0]


def test_samples_and_labels_are_transformed_and_a_reevaluation_may_transform_otherwise(place: Path) -> None:
    (place / "train.csv").write_text("key,label\n" + "".join(f"000/{at:06d}.bin,{at}\n" for at in range(6)))
    train = hotset.Manifest(
        place / "train.csv", decode=lambda view: view[0], transform=float, target_transform=str, with_ids=True
    )
    first = [content(f"{at:06d}.bin", 100)[0] for at in range(6)]
    assert [train[at] for at in range(6)] == [(float(first[at]), str(at), at) for at in range(6)]
    bare = hotset.Manifest(place / "train.csv", label="none", transform=len)
    assert bare[3] == 100, "without `decode` it gets the bytes"

    train = hotset.Manifest(place / "train.csv", decode=lambda view: view[0], transform=str)
    sampler = hotset.Sampler(train, "realtime", settings={"warmup": 0})
    list(sampler)
    sampler.set_epoch(1)
    seen: list[float] = []

    def loss(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        seen.extend(output.tolist())
        return output

    assert sampler.reevaluate(torch.nn.Identity(), loss, transform=float) == 6
    assert sorted(seen) == sorted(map(float, first))


def test_floats_stay_floats_in_the_kept_listing_and_in_a_selection(place: Path) -> None:
    (place / "train.csv").write_text("key,label\n" + "".join(f"pack,{at / 4}\n" for at in range(8)))
    first, second = (hotset.Manifest(place / "train.csv") for _ in range(2))
    assert [second[at][1] for at in range(8)] == [at / 4 for at in range(8)]
    assert second.source.catalog.dataset == first.source.catalog.dataset
    assert [label for _, label in second.select([7, 2])] == [1.75, 0.5]


def test_a_dataset_of_classes_has_the_same_name_from_its_kept_listing(place: Path) -> None:
    (place / "train.csv").write_text("key,label\npack,dog\npack,cat\npack,dog\n")
    first, second = (hotset.Manifest(place / "train.csv") for _ in range(2))
    assert first.source.catalog.dataset == second.source.catalog.dataset
    assert second.classes == ["cat", "dog"] and [label for _, label in second] == [1, 0, 1]


def test_a_column_that_mixes_kinds_is_refused_with_its_name_and_row(place: Path) -> None:
    for wrong, says in [("cat", "a class"), ("[1]", "a list"), ("0;1", "`[0, 1]`"), ("", "is empty")]:
        (place / "train.csv").write_text(f"key,kind\npack,3\npack,{wrong}\n")
        with pytest.raises(hotset.InvalidError, match=r"row `2`, column `kind`") as caught:
            hotset.Manifest(place / "train.csv", label="kind")
        assert says in str(caught.value)
