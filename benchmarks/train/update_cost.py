"""What `sampler.update` adds to a GPU step of 10 ms, beside `loss.tolist()`, which waits for the GPU.

    python -m benchmarks.train.update_cost

Steps are matrix products that take the GPU about 10 ms. Blocks of steps with and without a call take turns,
so that a change of clocks hits all alike; shown are medians and ranges over blocks. The server is a real one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median

import hotset
import torch

_BATCH, _STEPS = 256, 100


def main() -> None:
    """Measures, from the command line."""
    parser = argparse.ArgumentParser(description="Measure what reporting a loss adds to a GPU step.")
    parser.add_argument("--milliseconds", type=float, default=10.0, help="of one step")
    parser.add_argument("--blocks", type=int, default=10, help=f"of {_STEPS} steps, of each kind")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2 * _BATCH):
            (Path(folder) / f"{number:04d}.bin").write_bytes(b"x" * 64)
        train = hotset.Dataset(folder, with_ids=True)
        sampler = hotset.Sampler(train)
        ids = torch.tensor(list(islice(sampler, _BATCH)))
        on_gpu = ids.cuda()
        step = _step_of(options.milliseconds / 1000.0)
        kinds: dict[str, Callable[[torch.Tensor], object]] = {
            "nothing": lambda loss: loss,
            "update, ids on the CPU": lambda loss: sampler.update(ids, loss),
            "update, ids on the GPU": lambda loss: sampler.update(on_gpu, loss),
            "loss.tolist()": lambda loss: loss.tolist(),
        }
        took: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(options.blocks + 1):
            for name, after in kinds.items():
                took[name].append(_block(step, after))
                sampler.flush()
        plain = median(took["nothing"][1:])
        for name, blocks in took.items():
            each = median(blocks[1:])
            low, high = min(blocks[1:]), max(blocks[1:])
            sys.stdout.write(
                f"{name:24} {1000 * each:8.4f} ms a step ({1000 * low:.4f} to {1000 * high:.4f})"
                f"  {100 * (each / plain - 1):+6.2f} %\n"
            )
        train.close()


def _block(step: Callable[[], torch.Tensor], after: Callable[[torch.Tensor], object]) -> float:
    """Seconds of one step, of `_STEPS` that follow each other."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(_STEPS):
        after(step())
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / _STEPS


def _step_of(seconds: float) -> Callable[[], torch.Tensor]:
    """A step that keeps the GPU busy about that long and gives a loss for each sample."""
    left, right = torch.randn(2, 4096, 4096, device="cuda", dtype=torch.bfloat16)

    def product() -> torch.Tensor:
        made: torch.Tensor = (left @ right)[:_BATCH, 0].float()
        return made.square()

    for _ in range(20):
        product()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(100):
        product()
    torch.cuda.synchronize()
    times = max(round(seconds / ((time.perf_counter() - began) / 100)), 1)

    def step() -> torch.Tensor:
        for _ in range(times - 1):
            product()
        return product()

    return step


if __name__ == "__main__":
    main()
