"""Packages in a bucket that refuses to give them for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hotset
import pytest
import torch
from bucket import Bucket
from processes import until
from relay import Relay
from torch.utils.data import DataLoader
from trees import content

COUNT, SIZE = 800, 500
REFUSAL = b"<Error><Code>AccessDenied</Code><Message>not now</Message></Error>"
ANSWER = b"HTTP/1.1 403 Forbidden\r\ncontent-length: %d\r\n\r\n%s" % (len(REFUSAL), REFUSAL)


class Gate:
    """Refuses to give packages while it is shut; they are listed and written all the same."""

    shut = False
    refused = 0

    def __call__(self, head: str) -> bytes | None:
        first = head.partition("\r\n")[0]
        if not (self.shut and first.startswith("GET ") and ".hotset " in first):
            return None
        self.refused += 1
        return ANSWER


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """An empty one."""
    made = Bucket()
    yield made
    made.stop()


def test_packages_that_are_refused_are_not_lost(bucket: Bucket, tmp_path: Path) -> None:
    truth = {number: content(f"{number:04d}", SIZE) for number in range(COUNT)}
    (tmp_path / "data").mkdir()
    for number, data in truth.items():
        (tmp_path / "data" / f"{number:04d}.bin").write_bytes(data)
    gate = Gate()
    relay = Relay(bucket.port, judge=gate)
    try:
        train = hotset.Dataset(tmp_path / "data", cache="25%", with_ids=True)
        sampler = hotset.Sampler(
            train,
            "iis",
            policy="icache",
            prefetch=False,
            packages=bucket.url("packages"),
            package_size="8KiB",
            package_options={**bucket.options, "aws_endpoint": f"http://127.0.0.1:{relay.port}"},
        )
        loader = DataLoader(train, batch_size=25, sampler=sampler, collate_fn=list)
        packed, alone = [], []
        for epoch in range(6):
            # A plan uses the packages that are complete when it is made.
            until("all is packed", lambda: train.stats()["packages"]["packing"] == 0, 60.0)
            gate.shut = epoch == 4
            sampler.set_epoch(epoch)
            for batch in loader:
                ids = torch.tensor([number for _, number in batch])
                assert all(data == truth[number] for data, number in batch)
                sampler.update(ids, (ids % 13).float() + 1)
            counted = train.stats()["epochs"][epoch]
            assert (counted["packages_lost"], counted["failed"]) == (0, 0), counted
            packed.append(counted["packed"])
            alone.append(counted["recovery_reads"])
        assert gate.refused > 0
        # The epoch in which they were refused read their samples one by one, and no other did.
        assert min(packed[3:]) > COUNT // 4, packed
        assert alone[4] > packed[4] // 4 * 3 and alone[:4] + alone[5:] == [0] * 5, (packed, alone)
    finally:
        relay.stop()


def test_a_place_that_others_can_write_is_not_used_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(COUNT):
        (tmp_path / "data" / f"{number:04d}.bin").write_bytes(content(f"{number:04d}", SIZE))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    train = hotset.Dataset(tmp_path / "data", cache="25%")
    sampler = hotset.Sampler(train, "iis", policy="icache", packages=str(shared), package_size="8KiB")
    assert all(train[index] == content(f"{index:04d}", SIZE) for index in sampler)
    said = [remark for remark in train.stats()["remarks"] if "would not be safe" in remark]
    assert len(said) == 1 and f"chmod go-w {shared}" in said[0]
    assert list(shared.iterdir()) == []
