"""What a `Sampler` may be made of: a dataset of ours, or torch's part of one, or torch's sum of several."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any

from torch.utils.data import ConcatDataset, Subset
from torch.utils.data import Dataset as TorchDataset

from .._client.source import Planning
from .._dataset.dataset import Dataset
from .._dataset.numbers import PlanMark, described, named
from .._dataset.parts import Part
from ..errors import InvalidError
from .concat import ConcatSource
from .given import Given


@dataclass(frozen=True)
class Target:
    """What is planned, in the numbering of the dataset that a Sampler was made of."""

    source: Planning
    datasets: list[tuple[int, Dataset]]
    """Its samples and no others: datasets, each with the number of its first sample."""
    part: Part | None = None
    """Where these are in the dataset that is asked for them, if that is another."""

    @property
    def sizes(self) -> list[int]:
        """The samples of each dataset."""
        return [len(dataset) for _, dataset in self.datasets]

    def given(self, ids: Any, pad: bool) -> Given:
        """What gives the orders of its epochs."""
        if len(self.datasets) > 1:
            raise InvalidError(
                "`ids=` with a `ConcatDataset`: each of its datasets is planned by itself; put the samples "
                "into one dataset (one root, or a `Manifest`)"
            )
        return Given(ids, self.source.catalog.samples, pad)

    def mark(self, dataset: object) -> PlanMark:
        """What numbers of its plans are marked with, where the Sampler was made of `dataset`."""
        sources = tuple(asked.source.identity for _, asked in self.datasets)
        return PlanMark(sources, described(dataset, sum(self.sizes)))


def target_of(dataset: object) -> Target:
    """What a Sampler of `dataset` plans; a refusal says what to write instead."""
    if isinstance(dataset, Dataset):
        dataset.number_from(0)
        return Target(dataset.source, [(0, dataset)])
    if isinstance(dataset, ConcatDataset):
        return _concat(dataset)
    ids, inner = within(dataset)
    if isinstance(inner, Dataset) and isinstance(dataset, Subset):
        if not ids:
            raise InvalidError("the `Subset` is empty: a plan needs a sample")
        samples = len(inner)
        # As torch has them, which looks them up in the dataset below.
        chosen, part = inner.part([number + samples if number < 0 else number for number in ids])
        return Target(chosen.source, [(0, chosen)], part)
    given = named(dataset)
    if inner is not dataset:
        given += f" of a {named(inner)}"
    raise InvalidError(
        f"this is a {given}, and `Sampler` plans a dataset of Hotset's (`hotset.ImageFolder`, `Dataset`, "
        "`Shards`, `Manifest`), a `Subset` or `random_split` part of one (or `train.select(ids)`), or a "
        "`ConcatDataset` of several; open the files with `hotset.ImageFolder(...)`, or, where yours wraps a "
        "dataset of Hotset's, make the Sampler of the one inside"
    )


def _concat(together: ConcatDataset[object]) -> Target:
    datasets: list[tuple[int, Dataset]] = []
    for first, dataset in zip([0, *together.cumulative_sizes], together.datasets, strict=False):
        if not isinstance(dataset, Dataset):
            raise InvalidError(
                f"the `ConcatDataset` has a {named(dataset)}, and each of its datasets must be one of "
                "Hotset's; take parts with `train.select(ids)` instead of `Subset`"
            )
        if any(dataset.source is known.source for _, known in datasets):
            raise InvalidError("the `ConcatDataset` has a dataset twice; open it a second time for that")
        datasets.append((first, dataset))
    for first, dataset in datasets:
        dataset.number_from(first)
    return Target(ConcatSource([dataset.source for _, dataset in datasets]), datasets)


def within(dataset: object) -> tuple[list[int], object]:
    """What lies below all `Subset`s, and which samples of it they take."""
    if not isinstance(dataset, Subset):
        return [], dataset
    ids = [index(number) for number in dataset.indices]
    below: TorchDataset[object] = dataset.dataset
    while isinstance(below, Subset):
        ids = [index(below.indices[number]) for number in ids]
        below = below.dataset
    return ids, below
