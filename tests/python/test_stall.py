"""A store that takes requests, answers none of them for about a minute, and comes back.

One stall serves all of it: a training under way, an evaluation with short request timeouts, a reader who will
not wait, and a dataset that is being opened. It lasts until the evaluation has asked often enough; by the
clock it might end before that, or after the last time that anybody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import hotset
import pytest
from bucket import Bucket
from processes import Server, until
from relay import Relay
from torch.utils.data import DataLoader
from trees import content

OFTEN = 20
"""Times that each sample of the evaluation is asked for until there are answers; half of what is allowed."""
PLACE = f"s3://{Bucket.name}/train"
COUNT = 96
TRUTH = {number: content(f"{number:03d}", 2_000) for number in range(COUNT)}
EVALUATED = range(8, 24)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """A server with all samples below `train`."""
    made = Bucket()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: made.put(f"train/{item[0]:03d}", item[1]), TRUTH.items()))
    yield made
    made.stop()


@pytest.fixture
def relay(bucket: Bucket) -> Iterator[Relay]:
    """What stands before it."""
    made = Relay(bucket.port)
    yield made
    made.stop()


def opened(options: dict[str, str], timeout: str, **more: Any) -> hotset.Dataset:
    """The samples through the relay, listed now."""
    options = {**options, "timeout": timeout, "listing.max_age": "0s"}
    return hotset.Dataset(PLACE, cache=0, with_ids=True, storage_options=options, **more)


def epoch(loader: DataLoader[Any]) -> dict[int, bytes]:
    """Everything a loader brings."""
    return {number: data for batch in loader for data, number in batch}


def last(options: dict[str, str]) -> tuple[int, bytes]:
    """Opens the dataset, in a process of its own: how many samples there are, and the last."""
    dataset = opened(options, "10s")
    return len(dataset), dataset[COUNT - 1][0]


def asked(relay: Relay) -> int:
    """How often every sample of the evaluation was asked for, at least."""
    return min(relay.requests[f"GET /{Bucket.name}/train/{number:03d} HTTP/1.1"] for number in EVALUATED)


def test_a_minute_without_an_answer_costs_that_minute_and_nothing_else(
    bucket: Bucket, relay: Relay, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Requests enough for all of them: one that waits for its turn has no cause to tell yet.
    monkeypatch.setenv("HOTSET_SERVER", str(serve("outside.sock", "--concurrency", "200").socket))
    options = {**bucket.options, "aws_endpoint": f"http://127.0.0.1:{relay.port}"}
    # The long timeout passes twice meanwhile, the short one many times.
    training = opened(options, "15s")
    sampler = hotset.Sampler(training, seed=1)
    loader = DataLoader(training, batch_size=8, sampler=sampler, num_workers=2, collate_fn=list)
    evaluating = opened(options, "700ms")
    some = DataLoader(evaluating, batch_size=16, sampler=EVALUATED, num_workers=1, collate_fn=list)
    hasty = opened(options, "1s", wait=10)
    assert hasty[1] == (TRUTH[1], 1)

    with ThreadPoolExecutor() as threads, get_context("spawn").Pool(1) as processes:
        # In the middle of the epoch, however fast it is read.
        relay.stall(after=COUNT // 4)
        trained = threads.submit(epoch, loader)
        assert relay.stalled.wait(120)
        try:
            evaluated = threads.submit(epoch, some)
            opening = processes.apply_async(last, (options,))
            with pytest.raises(hotset.UnavailableError) as caught:
                hasty.__getitems__(range(32, 40))
            assert caught.value.sample in range(32, 40)
            assert caught.value.key == f"{caught.value.sample:03d}"
            assert "within 10 s (last: the store failed: " in str(caught.value)
            assert "raise `wait`" in str(caught.value)
            until("all are asked for again and again", lambda: asked(relay) > OFTEN, 600)
            # Nobody has given up, and nobody was given anything.
            assert not (trained.done() or evaluated.done() or opening.ready())
        finally:
            relay.resume()
        assert trained.result(600) == TRUTH
        assert evaluated.result(600) == {number: TRUTH[number] for number in EVALUATED}
        assert opening.get(600) == (COUNT, TRUTH[COUNT - 1])
    assert hasty[32] == (TRUTH[32], 32)

    counted = evaluating.stats()["unplanned"]
    assert counted["storage_reads"] == 16
    # Each was asked for again and again, and not more often than the budget allows.
    assert 16 * 10 < counted["storage_requests"] <= 16 * 41
    assert relay.kept_waiting > 16 * 10
    assert training.stats()["epochs"][0]["storage_reads"] == COUNT
