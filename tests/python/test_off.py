"""`HOTSET=off` serves the same without a server."""

from __future__ import annotations

import logging
from pathlib import Path

import hotset
import hotset._client.direct_source
import pytest
from processes import naming
from torch.utils.data import DataLoader
from trees import digest, labelled_files


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (1, "spawn")])
def test_the_same_samples_come_in_the_same_order(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, workers: int, method: str | None
) -> None:
    truth = labelled_files(tmp_path / "tree", 60, largest=500)

    def served() -> list[tuple[str, int, int]]:
        train = hotset.ImageFolder(tmp_path / "tree", loader=digest, with_ids=True)
        sampler = hotset.Sampler(train, seed=9)
        loader = DataLoader(
            train,
            batch_size=7,
            sampler=sampler,
            collate_fn=list,
            num_workers=workers,
            multiprocessing_context=method,
        )
        assert len(sampler) == 60
        return [sample for batch in loader for sample in batch]

    expected = served()
    hotset.stop_private()
    monkeypatch.setenv("HOTSET", "off")
    assert served() == expected
    assert {number: (found, label) for found, label, number in expected} == truth
    assert naming(str(runtime)) == {}


def test_it_is_said_once_and_errors_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    labelled_files(tmp_path / "tree", 10, largest=500)
    monkeypatch.setenv("HOTSET", "off")
    monkeypatch.setattr(hotset._client.direct_source, "_said", False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            dataset = hotset.ImageFolder(tmp_path / "tree", loader=len)
    assert sum("HOTSET=off" in record.message for record in caplog.records) == 1
    assert dataset.targets == sorted(dataset.targets)
    assert dataset.stats()["total"]["served"] == 0
    with pytest.raises(hotset.InvalidError, match=r"known: .*`uniform`"):
        hotset.Sampler(dataset, "unifrom")
    with pytest.raises(hotset.InvalidError, match="nowhere"):
        hotset.ImageFolder(tmp_path / "nowhere")
    (tmp_path / "tree" / dataset.key(2)).unlink()
    with pytest.raises(hotset.ChangedError) as caught:
        dataset[2]
    assert caught.value.sample == 2


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_what_is_read_is_counted_over_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, method: str | None
) -> None:
    labelled_files(tmp_path / "tree", 60, largest=500)
    sizes = sum(path.stat().st_size for path in (tmp_path / "tree").rglob("*.*"))
    monkeypatch.setenv("HOTSET", "off")
    train = hotset.ImageFolder(tmp_path / "tree", loader=digest)
    loader = DataLoader(
        train,
        batch_size=7,
        sampler=hotset.Sampler(train),
        collate_fn=list,
        num_workers=workers,
        multiprocessing_context=method,
    )
    for _ in range(2):
        assert len(list(loader)) == 9
    train[3]
    stats = train.stats()
    assert [epoch["epoch"] for epoch in stats["epochs"]] == [0, 1]
    for epoch in stats["epochs"]:
        assert (epoch["served"], epoch["single"], epoch["storage_reads"]) == (60, 60, 60)
        assert epoch["storage_bytes"] == sizes
        assert epoch["waits"][0]["batches"] == 9 and epoch["waits"][0]["sum"] > 0.0
        # Of the mean reader, as a server tells it.
        assert epoch["waited"] == pytest.approx(epoch["waits"][0]["sum"] / max(workers, 1))
    assert stats["total"]["waited"] >= sum(epoch["waited"] for epoch in stats["epochs"])
    assert stats["unplanned"]["served"] == 1 and stats["total"]["served"] == 121
    assert "HOTSET=off" in stats["remarks"][0]
