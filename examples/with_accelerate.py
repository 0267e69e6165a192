"""Trains a ResNet-18 on an image folder through Hotset, with Accelerate.

accelerate launch examples/with_accelerate.py --data images
"""

import argparse
from functools import partial
from pathlib import Path

import hotset
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from hotset.integrations.accelerate import Hook
from torch.utils.data import DataLoader
from torchvision import models, transforms


def main() -> None:
    """Trains and tests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="a folder with `train` and `val` in it")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="pixels along an edge")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--strategy", default="uniform", help="see `hotset strategies`")
    parser.add_argument(
        "--checkpoint", type=Path, help="a folder to save to, and to go on from if it is there"
    )
    args = parser.parse_args()
    accelerator = Accelerator()

    shaken = [
        transforms.RandomResizedCrop(args.size),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
    still = [transforms.Resize(args.size), transforms.CenterCrop(args.size), transforms.ToTensor()]
    train = hotset.ImageFolder(args.data / "train", transforms.Compose(shaken), with_ids=True)
    val = hotset.ImageFolder(args.data / "val", transforms.Compose(still))
    sampler = hotset.Sampler(train, args.strategy)
    model = models.resnet18(num_classes=len(train.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    hook = Hook(accelerator, sampler)
    loader = hook.prepare(DataLoader(train, args.batch_size, sampler=sampler, num_workers=args.workers))
    model, optimizer, val_loader = accelerator.prepare(
        model, optimizer, DataLoader(val, args.batch_size, num_workers=args.workers)
    )
    if args.checkpoint and args.checkpoint.exists():
        accelerator.load_state(str(args.checkpoint))

    for epoch in range(sampler.epoch, args.epochs):
        loader.set_epoch(epoch)
        sampler.reevaluate(model, partial(F.cross_entropy, reduction="none"))
        model.train()
        for images, labels, ids in loader:
            loss = F.cross_entropy(model(images), labels, reduction="none")
            accelerator.backward(sampler.update(ids, loss).mean())
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        right = total = 0
        for images, labels in val_loader:
            with torch.no_grad():
                chosen = model(images).argmax(1)
            chosen, labels = accelerator.gather_for_metrics((chosen, labels))
            right += int((chosen == labels).sum())
            total += len(labels)
        measured = hook.end_epoch(accuracy=right / total)
        waits = ", ".join(f"{name} {value:.3f}" for name, value in sorted(measured.items()))
        accelerator.print(f"epoch {epoch}: accuracy {right / total:.3f}, {waits}")
        if args.checkpoint:
            accelerator.save_state(str(args.checkpoint))
    accelerator.end_training()


if __name__ == "__main__":
    main()
