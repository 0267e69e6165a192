"""A process of Accelerate, for the tests: trains through Hotset and says what it got.

    torchrun accelerated.py OUT PLACE HOW

HOW is `hook`; `prepare` to give the loader to Accelerate itself; or `stateful`, with a state of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hotset
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from hotset.integrations.accelerate import Hook
from torch.utils.data import DataLoader


def main() -> None:
    """Trains two epochs."""
    out, place, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=how == "stateful")
    )
    train = hotset.Dataset(place, with_ids=True)
    sampler = hotset.Sampler(train)
    loader = DataLoader(train, 4, sampler=sampler, num_workers=0, collate_fn=_ids)
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    hook = Hook(accelerator, sampler)
    lines: list[dict[str, object]] = []
    try:
        loader = hook.prepare(loader) if how == "hook" else accelerator.prepare(loader)
        for epoch in range(2):
            for ids in loader:
                loss = model(ids[:, None].float()).flatten().square()
                accelerator.backward(sampler.update(ids, loss).mean())
                lines.append({"epoch": epoch, "ids": ids.tolist()})
            lines.append({"epoch": epoch, "measured": hook.end_epoch(), "length": len(loader)})
    except hotset.InvalidError as error:
        lines.append({"refused": str(error)})
    (out / f"{accelerator.process_index}.out").write_text("\n".join(map(json.dumps, lines)))
    accelerator.end_training()


def _ids(batch: list[tuple[bytes, int]]) -> torch.Tensor:
    return torch.tensor([number for _, number in batch])


if __name__ == "__main__":
    main()
