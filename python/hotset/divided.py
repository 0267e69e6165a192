"""Finds out when a framework divides among ranks what the sampler has divided already.

Accelerate deals the batches of a loader out to its processes, whatever sampler the loader has, so that
each rank would train a share of its share, and nobody would notice. The call that begins an epoch comes
through the object that does so; that is looked for, once an epoch.
"""

from __future__ import annotations

import sys

from .errors import InvalidError

_DEEP = 32
"""Callers that are looked at."""


def judge_callers(world: int) -> None:
    """Refuses to be divided once more when there are already `world` ranks."""
    if world == 1 or "accelerate.data_loader" not in sys.modules:
        return
    frame = sys._getframe(1).f_back
    for _ in range(_DEEP):
        if frame is None:
            return
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            caller = frame.f_locals.get("self")
            if type(caller).__name__ == "BatchSamplerShard" and getattr(caller, "num_processes", 1) > 1:
                raise InvalidError(
                    f"the sampler has divided its samples among {world} ranks, and Accelerate divides them "
                    "once more; instead of `accelerator.prepare(loader)` write "
                    "`hotset.accelerate.Hook(accelerator, sampler).prepare(loader)`"
                )
        frame = frame.f_back
