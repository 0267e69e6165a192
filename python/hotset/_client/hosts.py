"""Orders of a trainer's own on several hosts, each of which has a server that knows nothing of the others.

Ranks of one host are compared by their server. Those of several are compared here, through the store by which
torch's process group has found its ranks: the first that comes puts its digest there.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import InvalidError
from .settings import Settings
from .source import Order


def compare(order: Order, job: str, epoch: int, world: int) -> None:
    """Refuses an order that is not the one that ranks on other hosts have for the epoch."""
    here = Settings.read().local_world
    if here is None or here >= world:
        return
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise InvalidError(
            f"{world} ranks run on several hosts, {here} of them here, and `ids=` must give all of them the "
            "same order, which is compared through the process group: call "
            "`torch.distributed.init_process_group(...)` before the first epoch"
        )
    store = distributed.distributed_c10d._get_default_store()
    first = store.compare_set(f"hotset/{job}/{epoch}", "", str(order.digest))
    if int(first) != order.digest:
        raise InvalidError(
            f"`ids=` gives another order for epoch {epoch} here than on another host: every rank must give "
            "the same one, of all ranks together; seed its generator equally on all ranks"
        )
