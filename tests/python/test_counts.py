"""What is read from storage is exactly what the specification says, to the sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hotset
import pytest
from hotset._dataset.numbers import numbers_of
from trees import equal_files

SAMPLES = 5000
BATCH = 250
WAIT = 60.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of equal size."""
    return equal_files(tmp_path_factory.mktemp("equal") / "tree", SAMPLES, 1024)


class Run:
    """One job, read through a raw client."""

    def __init__(
        self, client: hotset.Client, place: Path, name: str, *, policy: str, prefetch: bool = True
    ) -> None:
        self.client = client
        self.name = name
        opened = client.open_dataset(str(place), layout="files", wait=WAIT)
        assert opened["samples"] == SAMPLES
        self.dataset = opened["dataset"]
        asked = {
            "dataset": self.dataset,
            "cache": "20%",
            "strategy": "uniform",
            "policy": policy,
            "seed": 7,
            "prefetch": prefetch,
        }
        client.open_job(name, asked, wait=WAIT)

    def plan(self, epoch: int) -> list[int]:
        """The numbers of an epoch's samples, as a sampler yields them."""
        plan = self.client.begin_epoch(self.name, epoch, rank=0, world=1, start=0, wait=WAIT)
        return list(map(numbers_of(epoch), plan.block(0, len(plan))))

    def get(self, indices: list[int]) -> None:
        """Reads `indices`, batch by batch."""
        for first in range(0, len(indices), BATCH):
            batch = self.client.get_batch(self.name, indices[first : first + BATCH], rank=0, wait=WAIT)
            assert len(batch) == len(indices[first : first + BATCH])

    def epochs(self, count: int) -> list[dict[str, Any]]:
        """Reads `count` epochs; their counters."""
        for epoch in range(count):
            self.get(self.plan(epoch))
        counters = list(self.stats()["epochs"][:count])
        self.close()
        return counters

    def close(self) -> None:
        """Gives back what it kept, so that the next job does not find it."""
        self.client.close_job(self.name, wait=WAIT)

    def stats(self) -> dict[str, Any]:
        """The job's counters."""
        (job,) = json.loads(self.client.stats(self.name, wait=WAIT))["jobs"]
        return dict(job)


def counted(epoch: dict[str, Any]) -> dict[str, Any]:
    """The counters that do not depend on time."""
    names = (
        "planned",
        "served",
        "hit",
        "packed",
        "single",
        "distinct",
        "storage_reads",
        "storage_bytes",
        "abandoned",
    )
    return {name: epoch[name] for name in names}


def test_lru_hits_two_percent_and_minio_its_share_with_and_without_prefetch(place: Path) -> None:
    client = hotset.connect()
    epochs = {
        (policy, prefetch): Run(
            client, place, f"{policy}-{prefetch}", policy=policy, prefetch=prefetch
        ).epochs(5)
        for policy in ("lru", "minio")
        for prefetch in (True, False)
    }
    for (policy, prefetch), counters in epochs.items():
        assert [epoch["served"] for epoch in counters] == [SAMPLES] * 5
        assert [epoch["planned"] for epoch in counters] == [SAMPLES] * 5
        assert [epoch["distinct"] for epoch in counters] == [SAMPLES] * 5
        assert counters[0]["hit"] == 0, (policy, prefetch)
        for epoch in counters:
            assert epoch["storage_reads"] == epoch["single"] == SAMPLES - epoch["hit"]
            assert epoch["storage_bytes"] == epoch["single"] * 1024
    for prefetch in (True, False):
        lru = [epoch["hit"] for epoch in epochs["lru", prefetch][1:]]
        assert sum(lru) / len(lru) / SAMPLES == pytest.approx(0.0215, abs=0.003)
        assert [epoch["hit"] for epoch in epochs["minio", prefetch][1:]] == [SAMPLES // 5] * 4
    for policy in ("lru", "minio"):
        with_prefetch, without = (map(counted, epochs[policy, prefetch]) for prefetch in (True, False))
        assert list(with_prefetch) == list(without), policy
    client.close()


@pytest.mark.parametrize("policy", ["lru", "minio"])
def test_an_evaluation_pass_in_the_middle_of_an_epoch_changes_no_plan_and_no_count(
    place: Path, policy: str
) -> None:
    client = hotset.connect()
    calm = Run(client, place, "calm", policy=policy)
    plans: list[list[int]] = []
    for epoch in range(3):
        plans.append(calm.plan(epoch))
        calm.get(plans[epoch])
    expected = calm.stats()
    calm.close()

    disturbed = Run(client, place, "disturbed", policy=policy)
    for epoch, indices in enumerate(plans):
        assert disturbed.plan(epoch) == indices
        disturbed.get(indices[: SAMPLES // 2])
        if epoch == 1:
            disturbed.get(list(range(SAMPLES)))
        disturbed.get(indices[SAMPLES // 2 :])
    stats = disturbed.stats()
    assert [counted(epoch) for epoch in stats["epochs"][:3]] == [
        counted(epoch) for epoch in expected["epochs"][:3]
    ]
    assert stats["unplanned"]["served"] == SAMPLES
    assert expected["unplanned"]["served"] == 0
    client.close()


def test_two_jobs_with_one_seed_have_one_plan_and_other_seeds_and_epochs_another(place: Path) -> None:
    dataset = hotset.Dataset(place)
    plans = []
    for seed in (0, 0, 1):
        hotset.Sampler(dataset, seed=seed)
        plan = dataset.source.plan(0, 0)
        plans.append(plan.block(0, len(plan)))
    assert plans[0] == plans[1] != plans[2]
    assert sorted(plans[0]) == sorted(plans[2]) == list(range(SAMPLES))
