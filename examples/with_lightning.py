"""Trains a ResNet-18 on an image folder through Hotset, with Lightning.

python examples/with_lightning.py --data images --devices 2
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import hotset
import lightning
import torch
import torch.nn.functional as F
from hotset.integrations.lightning import Callback
from torch.utils.data import DataLoader
from torchvision import models, transforms


class Classifier(lightning.LightningModule):
    """A ResNet-18 that reports the loss of each sample."""

    def __init__(self, classes: int, sampler: hotset.Sampler) -> None:
        super().__init__()
        self.model = models.resnet18(num_classes=classes)
        self.sampler = sampler

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The model's output."""
        return self.model(images)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """One step; the loss is reported here."""
        images, labels, ids = batch
        loss = F.cross_entropy(self(images), labels, reduction="none")
        return self.sampler.update(ids, loss).mean()

    def validation_step(self, batch: Any, _: int) -> None:
        """Logs the accuracy."""
        images, labels = batch
        self.log("accuracy", (self(images).argmax(1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def main() -> None:
    """Trains and tests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="a folder with `train` and `val` in it")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="pixels along an edge")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--strategy", default="uniform", help="see `hotset strategies`")
    parser.add_argument("--out", type=Path, default=Path("lightning_logs"))
    parser.add_argument("--resume", help="a checkpoint to go on from")
    args = parser.parse_args()

    shaken = [
        transforms.RandomResizedCrop(args.size),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
    still = [transforms.Resize(args.size), transforms.CenterCrop(args.size), transforms.ToTensor()]
    train = hotset.ImageFolder(args.data / "train", transforms.Compose(shaken), with_ids=True)
    val = hotset.ImageFolder(args.data / "val", transforms.Compose(still))
    sampler = hotset.Sampler(train, args.strategy)
    callback = Callback(sampler, loss=partial(F.cross_entropy, reduction="none"), accuracy="accuracy")
    trainer = lightning.Trainer(
        devices=args.devices,
        max_epochs=args.epochs,
        callbacks=[callback],
        default_root_dir=args.out,
        enable_progress_bar=False,
    )
    trainer.fit(
        Classifier(len(train.classes), sampler),
        DataLoader(train, args.batch_size, sampler=sampler, num_workers=args.workers),
        DataLoader(val, args.batch_size, num_workers=args.workers),
        ckpt_path=args.resume,
    )
    if trainer.is_global_zero:
        for name, value in sorted(trainer.callback_metrics.items()):
            print(f"{name}: {float(value):.4f}")


if __name__ == "__main__":
    main()
