"""Trains a ResNet-18 on an image folder with torchvision, on one process or on many (torchrun). No Hotset.

    python examples/plain.py --data images
    torchrun --nproc-per-node 4 examples/plain.py --data images

Beside `with_hotset.py`, which differs from it in a few lines.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def main() -> None:
    """Trains and tests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="a folder with `train` and `val` in it")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="pixels along an edge")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--checkpoint", type=Path)
    args = parser.parse_args()
    if "RANK" in os.environ:
        distributed.init_process_group()
    else:
        distributed.init_process_group(store=distributed.HashStore(), rank=0, world_size=1)
    rank = distributed.get_rank()
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")

    shaken = [
        transforms.RandomResizedCrop(args.size),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
    still = [transforms.Resize(args.size), transforms.CenterCrop(args.size), transforms.ToTensor()]
    train = datasets.ImageFolder(args.data / "train", transforms.Compose(shaken))
    val = datasets.ImageFolder(args.data / "val", transforms.Compose(still))
    sampler = DistributedSampler(train)
    loader = DataLoader(train, args.batch_size, sampler=sampler, num_workers=args.workers, pin_memory=True)

    model = DistributedDataParallel(models.resnet18(num_classes=len(train.classes)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    first = 0
    if args.checkpoint and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        first = saved["epoch"] + 1

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        if rank == 0:
            reached = accuracy(model.module, val, args, device)
            print(f"epoch {epoch}: accuracy {reached:.3f}")
            if args.checkpoint:
                saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**saved, "schedule": schedule.state_dict(), "epoch": epoch}, args.checkpoint)
    distributed.barrier()
    distributed.destroy_process_group()


@torch.no_grad()
def accuracy(
    model: torch.nn.Module, val: datasets.ImageFolder, args: argparse.Namespace, device: torch.device
) -> float:
    """The share of `val` that `model` gets right."""
    model.eval()
    right = 0
    for images, labels in DataLoader(val, args.batch_size, num_workers=args.workers):
        right += (model(images.to(device)).argmax(1).cpu() == labels).sum().item()
    return right / len(val)


if __name__ == "__main__":
    main()
