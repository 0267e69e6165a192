"""Reports the losses of a batch to the server, and weights them, without waiting for a GPU.

Ids that are on a GPU are not known yet: the batch is taken for the next slots in their order, and its ids are
checked when they arrive.
"""

from __future__ import annotations

import torch

from .._client.source import Planning
from ..errors import InvalidError
from .epoch import Epoch
from .reports import Reports


def report_losses(
    running: Epoch, ids: torch.Tensor | list[int], loss: torch.Tensor, reports: Reports, source: Planning
) -> torch.Tensor:
    """Sends the losses of the samples `ids`, trained in `running`; `loss` times their weights."""
    if loss.is_cuda and torch.cuda.is_current_stream_capturing():
        raise InvalidError(
            "`update` was called while a CUDA graph is captured, where nothing can be sent; "
            "call it after the graph's replay"
        )
    if not len(ids):
        return loss
    if isinstance(ids, list):
        running.check(ids)
        running.train(ids)
        known, unknown = ids, None
    else:
        running.count(len(ids))
        known, unknown = [], ids
    upto = running.trained

    def deliver(copied: list[int] | None, scores: list[float]) -> None:
        if copied is not None:
            running.check(copied)
        source.report(running.number, upto, known if copied is None else copied, scores)

    reports.send(loss, unknown, deliver)
    return running.weighted(loss, ids)
