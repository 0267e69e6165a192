"""What a forked child inherits: views, which show what its parent saw, and a sampler, which is one run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import hotset
import pytest
import torch
from trees import content, equal_files

SAMPLES, SIZE, HELD = 1024, 65536, 60
WAIT = 120.0


def _opened(place: Path) -> hotset.Client:
    client = hotset.connect()
    opened = client.open_dataset(str(place), layout="files", wait=WAIT)
    asked = {
        "dataset": opened["dataset"],
        "cache": "10%",
        "strategy": "uniform",
        "policy": "lru",
        "prefetch": True,
    }
    client.open_job("turning", asked, wait=WAIT)
    return client


def _turn_over(client: hotset.Client, epochs: range) -> None:
    """Epochs of ten times the cache each: every place in the arena is written again."""
    for epoch in epochs:
        plan = client.begin_epoch("turning", epoch, rank=0, world=1, start=0, wait=WAIT)
        for first in range(0, len(plan), 64):
            client.get_batch("turning", plan.block(first, first + 64), rank=0, wait=WAIT)


def _in_child(work: Any) -> tuple[int, int, int]:
    """Forks; the child's id, and the ends of two pipes: what it says, and where it is told to go on."""
    said, says = os.pipe()
    waits, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said)
        os.close(told)
        try:
            work(lambda text: os.write(says, text), lambda: os.read(waits, 1))
        finally:
            os._exit(0)
    os.close(says)
    os.close(waits)
    return child, said, told


@pytest.mark.parametrize("parent", ["drops them", "ends its connection"])
def test_a_child_keeps_the_views_it_inherited(tmp_path: Path, parent: str) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, SIZE)
    client = _opened(place)
    ids = list(range(0, SAMPLES, SAMPLES // HELD))[:HELD]
    views = client.get_batch("turning", ids, rank=0, wait=WAIT).views()
    truth = [content(f"{number:06d}.bin", SIZE) for number in ids]

    def look(say: Any, wait: Any) -> None:
        say(b"%d " % sum(view == right for view, right in zip(views, truth, strict=True)))
        wait()
        say(b"%d" % sum(view == right for view, right in zip(views, truth, strict=True)))

    child, said, told = _in_child(look)
    views.clear()
    if parent == "drops them":
        _turn_over(client, range(3))
    else:
        client.close()
        other = _opened(place)
        _turn_over(other, range(3))
        other.close()
    os.write(told, b"!")
    os.waitpid(child, 0)
    assert os.read(said, 100) == b"%d %d" % (HELD, HELD)
    os.close(said)
    os.close(told)
    client.close()


def test_a_batch_that_a_child_inherited_can_be_looked_at_first_there(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", SAMPLES, SIZE)
    client = _opened(place)
    batch = [client.get_batch("turning", [5, 6], rank=0, wait=WAIT)]

    def look(say: Any, wait: Any) -> None:
        wait()
        right = batch[0].bytes() == [content(f"{number:06d}.bin", SIZE) for number in (5, 6)]
        say(b"right" if right else b"wrong")

    child, said, told = _in_child(look)
    batch.clear()
    _turn_over(client, range(3))
    os.write(told, b"!")
    os.waitpid(child, 0)
    assert os.read(said, 100) == b"right"
    os.close(said)
    os.close(told)
    client.close()


def test_a_sampler_made_before_a_fork_is_not_trained_by_one_child_after_the_other(tmp_path: Path) -> None:
    place = equal_files(tmp_path / "tree", 32, 100)
    train = hotset.Dataset(place, cache="50%")
    sampler = hotset.Sampler(train, "iis", seed=3)

    def one_epoch(say: Any, wait: Any) -> None:
        while True:
            try:
                ids = [int(number) for number in sampler]
                sampler.update(ids, torch.ones(len(ids)))
                say(b"%d" % len(set(ids)))
            except hotset.InvalidError as error:
                # Until the server has noticed that the child before is gone.
                if "another training runs" in str(error):
                    time.sleep(0.01)
                    continue
                say(str(error).encode())
            return

    said = []
    for _ in range(2):
        child, says, told = _in_child(one_epoch)
        os.waitpid(child, 0)
        said.append(os.read(says, 1000).decode())
        os.close(says)
        os.close(told)
    assert said[0] == "32"
    assert "make the `Sampler` in the process that trains" in said[1]
