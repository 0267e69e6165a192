"""`make demo`: the same training from the same slow storage, with and without Hotset."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import textwrap
import traceback
from dataclasses import asdict
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms
from tqdm import tqdm

from . import report
from .arms import ARMS, Arm, Setting, Transform
from .data import DataError, Images, prepare
from .model import accuracy, network, train_epoch
from .report import Row


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="examples.demo", description=__doc__)
    parser.add_argument(
        "--data", type=Path, help="your images: train/<class>/ and test/<class>/, or <class>/"
    )
    parser.add_argument("--train", type=int, default=6000, help="training images at most (%(default)s)")
    parser.add_argument("--test", type=int, default=2000, help="test images at most (%(default)s)")
    parser.add_argument("--epochs", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="loader workers of every arm (%(default)s)")
    parser.add_argument("--cache", default="20%", help="Hotset's, of the dataset (%(default)s)")
    parser.add_argument("--latency", type=float, default=5, help="of one storage read, in ms (%(default)s)")
    parser.add_argument("--bandwidth", type=float, help="of the storage, in MB/s (all images in 4 s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--cache-folder", type=Path, default=Path(".cache/demo"), help="(%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="of demo.png and demo.json (%(default)s)"
    )
    return parser.parse_args()


def main() -> int:
    """Runs every arm; the exit code says whether all of them worked."""
    asked = arguments()
    try:
        images = prepare(asked.data, asked.cache_folder, asked.train, asked.test)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    setting = Setting(
        images=images,
        transform=transform_for(images),
        latency_ms=asked.latency,
        bandwidth=int(asked.bandwidth * 1e6) if asked.bandwidth else fitting_bandwidth(images),
        cache=asked.cache,
        workers=asked.workers,
        batch=asked.batch,
        epochs=asked.epochs,
        seed=asked.seed,
    )
    storage = f"{setting.latency_ms:g} ms per read, {setting.bandwidth / 1e6:g} MB/s"
    what = f"{images.name}: {images.train:,} images, {images.train_bytes / 1e6:.1f} MB"
    print(f"\n{what}; {images.test:,} test images")
    print(f"storage: {storage} (plain PyTorch's {setting.workers} workers share the bandwidth)")
    print(f"{asked.epochs} epochs, batches of {asked.batch}, {asked.workers} workers, cache {asked.cache}\n")

    # Loader workers need cores too: torch's threads wait for each other in loops, and would slow every arm.
    torch.set_num_threads(max((os.cpu_count() or 1) - setting.workers, 1))
    tested = test_images(setting)
    rows = [run(arm, setting, tested) for arm in ARMS]

    print(f"\n{report.settled_epochs(asked.epochs)}; accuracy on the test images\n")
    print(report.table(rows))
    print("\n" + textwrap.fill(report.sentence(rows, setting.workers), 98))
    numbers = {name: value for name, value in asdict(setting).items() if name != "transform"}
    report.save(rows, numbers, asked.out / "demo.json")
    failed = [row for row in rows if row.failure is not None]
    for row in failed:
        print(f"error: {row.name} failed: {row.failure}", file=sys.stderr)
    if len(failed) < len(rows):
        report.plot(rows, f"{what}; {storage}; cache {setting.cache}", asked.out / "demo.png")
        print(f"\n{asked.out / 'demo.png'}, {asked.out / 'demo.json'}")
    return 1 if failed else 0


def run(arm: Arm, setting: Setting, tested: tuple[Tensor, Tensor]) -> Row:
    """Trains with one arm from the same start as the others."""
    row, reached = Row(arm.name, [], [], 0.0), 0.0
    batches = setting.epochs * -(-setting.images.train // setting.batch)
    model = network(setting.images.classes, setting.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    try:
        with (
            arm.open(setting) as feed,
            tqdm(total=batches, desc=f"{arm.name:<22}", unit="batch", disable=None) as bar,
        ):
            for epoch in range(setting.epochs):
                times = train_epoch(model, optimizer, feed, epoch, bar.update)
                reached = accuracy(model, *tested)
                row.times.append(times)
                row.counts.append(feed.end(reached))
                bar.set_postfix_str(f"{times.seconds:.1f} s/epoch, loss {times.loss:.3f}")
                if bar.disable:
                    print(f"{arm.name}: epoch {epoch + 1}, {times.seconds:.1f} s", flush=True)
    except Exception as error:
        traceback.print_exc()
        return Row(arm.name, [], [], 0.0, failure=f"{type(error).__name__}: {error}")
    finally:
        # Loader workers end with their loader, before the next arm is timed.
        feed = None
        gc.collect()
    return Row(arm.name, row.times, row.counts, reached)


def fitting_bandwidth(images: Images) -> int:
    """Slow enough that all images take about four seconds: small images stand for large ones."""
    return max(images.train_bytes // 400_000, 1) * 100_000


def transform_for(images: Images) -> Transform:
    """Pixels to a tensor, the same in every arm."""
    size = (images.size, images.size)
    steps = [transforms.Resize(size), transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)]
    composed: Transform = transforms.Compose(steps)
    return composed


def test_images(setting: Setting) -> tuple[Tensor, Tensor]:
    """The test images and their labels, read once, past the throttle: only training is compared."""
    root = Path(setting.images.root)
    classes = sorted(folder.name for folder in (root / "train").iterdir())
    paths = sorted(path for path in (root / "test").glob("*/**/*") if path.is_file())
    labels = [classes.index(path.relative_to(root / "test").parts[0]) for path in paths]
    pixels = [setting.transform(Image.open(path).convert("RGB")) for path in paths]
    return torch.stack(pixels), torch.tensor(labels)


if __name__ == "__main__":
    # Hotset starts a server of its own here, whatever else runs on this machine.
    os.environ.pop("HOTSET", None)
    os.environ.pop("HOTSET_SERVER", None)
    with tempfile.TemporaryDirectory(prefix="hotset-demo-") as folder:
        os.environ["HOTSET_RUNTIME_DIR"] = os.environ["HOTSET_CACHE_DIR"] = folder
        try:
            code = main()
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
            code = 130
    sys.exit(code)
