"""What one run is: its settings, by which lines of results are told apart."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

# With these policies the papers read easy samples in packages.
_PACKAGED = ("icache", "impact")


@dataclass(frozen=True)
class Run:
    """One training run."""

    strategy: str = "uniform"
    policy: str = ""
    """The strategy's own without it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the strategy."""
    policy_settings: dict[str, Any] = field(default_factory=dict)
    packages: bool | None = None
    """Whether easy samples may be read in packages; where nothing is said, with the policies made for it."""
    cache: str = "20%"
    model: str = "resnet18"
    seed: int = 0
    epochs: int = 30
    batch: int = 256
    rate: float = 0.2
    warm: float = 1.0
    """Epochs in which the learning rate rises, before it falls along a cosine."""
    images: int = 0
    """Training images, the first of each class; all without it."""
    dataset: str = "cifar10"
    """The name of the images, by which results of several datasets are told apart."""
    held_out: int = 0
    """Training images, the same for every seed, that are tested on instead of the test images."""
    subset: int = 0
    """A control: so many training images, drawn once by the seed, and no others; all without it."""
    echo: float = 1.0
    """A control: how often each batch is trained, one after the other, on average."""
    block: float = 0.0
    """A control: the share of the images that is gathered and trained `echo` times before the next."""
    augment: bool = True
    """Whether images are cropped and mirrored at random."""
    transform: str = ""
    """A further transform of training images: `erase` or `warp`; none without it."""
    repeats: bool = False
    """Whether `transform` is for images that come again within the window alone."""
    floor: float = 0.0
    """The share of `rate` that the learning rate does not fall below."""
    average: float = 0.0
    """Epochs, the last ones, over which weights are averaged, to be tested beside the last weights."""
    identify: bool = False
    """Whether to look, before each epoch, which of the hardest 1 % the scores know."""

    @property
    def packaged(self) -> bool:
        """Whether it gets a place for packages."""
        return self.policy in _PACKAGED if self.packages is None else self.packages

    @property
    def is_control(self) -> bool:
        """Whether strategies that read as little are held against it; fewer epochs alone do not show here."""
        return bool(self.subset or self.block) or self.echo != 1.0

    @property
    def name(self) -> str:
        """As people call it: `iis[fraction=0.5]+icache`, and behind it what makes it a control."""
        policy = f"+{self.policy}{_bracketed(self.policy_settings)}" if self.policy else ""
        said = [f"{self.strategy}{_bracketed(self.settings)}{policy}"]
        said += [f"subset {self.subset}"] if self.subset else []
        said += [f"blocks of {self.block:.0%}"] if self.block else []
        said += [f"each {self.echo:g} times"] if self.echo != 1.0 else []
        said += ["not augmented"] if not self.augment else []
        said += [f"{self.transform}{' on repeats' if self.repeats else ''}"] if self.transform else []
        said += [f"rate at least {self.floor:.0%}"] if self.floor else []
        return ", ".join(said)

    @property
    def key(self) -> str:
        """The same for the same settings, and for no others."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, line: dict[str, Any]) -> Self:
        """The run of a line of results."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in line["run"].items() if name in known})

    def arguments(self) -> list[str]:
        """The command line that says the same."""
        said: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            option = "--" + each.name.replace("_", "-")
            if isinstance(value, dict):
                said += [part for name, one in value.items() for part in (option, f"{name}={one}")]
            elif isinstance(value, bool):
                said.append(option if value else option.replace("--", "--no-", 1))
            elif value is not None:
                said += [option, str(value)]
        return said


def add_options(parser: argparse.ArgumentParser) -> None:
    """Lets `parser` take all that a run is made of."""
    for each in fields(Run):
        option, default = "--" + each.name.replace("_", "-"), getattr(Run(), each.name)
        if each.name in ("packages", "identify", "augment", "repeats"):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=default)
        elif isinstance(default, dict):
            parser.add_argument(option, action="append", default=[], metavar="NAME=VALUE")
        else:
            parser.add_argument(option, type=type(default), default=default)


def from_options(options: argparse.Namespace) -> Run:
    """The run that a command line asks for."""
    said = {each.name: getattr(options, each.name) for each in fields(Run)}
    for name in ("settings", "policy_settings"):
        said[name] = dict(_setting(text) for text in said[name])
    return Run(**said)


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    for read in (int, float):
        try:
            return name, read(value)
        except ValueError:
            continue
    return name, {"true": True, "false": False}.get(value.lower(), value)


def _bracketed(settings: dict[str, Any]) -> str:
    return "[" + ",".join(f"{name}={value}" for name, value in settings.items()) + "]" if settings else ""
