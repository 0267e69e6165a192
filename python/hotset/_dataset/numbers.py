"""What a `Sampler` yields: the numbers of samples, marked with the plan and the epoch they belong to.

A marked number is an `int` in every respect: it indexes lists, arrays and tensors, is a key of dicts, and
shows as a number. Its mark goes with it through a loader's queues and through the arithmetic by which
wrappers such as `ConcatDataset` find their way, so that a request tells its epoch even from a worker that
outlives epochs, and a dataset can refuse the numbers of another dataset's plan. `int(number)`, or a look-up
such as `indices[number]`, gives a number without a mark, which no plan waits for.

The mark is the number's class, one for each plan and epoch: so a number takes no more memory than an `int`,
and a batch of them is recognised by type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar


def _keeping(operation: Callable[[int, Any], Any]) -> Callable[[Number, Any], Any]:
    """`operation` of `int`, with the mark of the number it is called on."""

    def marked(self: Number, other: Any) -> Any:
        result = operation(self, other)
        return type(self)(result) if type(result) is int else result

    return marked


@dataclass(frozen=True)
class PlanMark:
    """Whose numbers a plan has."""

    sources: tuple[str, ...]
    """The identities of the sources that are asked for them."""
    made_of: str
    """What the Sampler was made of, for messages."""


class Number(int):
    """The number of a sample, planned for `epoch` by the Sampler that `plan` describes."""

    __slots__ = ()
    epoch: ClassVar[int] = 0
    plan: ClassVar[PlanMark | None] = None

    __add__ = _keeping(int.__add__)
    __radd__ = _keeping(int.__radd__)
    __sub__ = _keeping(int.__sub__)
    __rsub__ = _keeping(int.__rsub__)
    __mul__ = _keeping(int.__mul__)
    __rmul__ = _keeping(int.__rmul__)
    __floordiv__ = _keeping(int.__floordiv__)
    __mod__ = _keeping(int.__mod__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _number, (int(self), self.epoch, self.plan)


def numbers_of(epoch: int, plan: PlanMark | None = None) -> type[Number]:
    """Makes marked numbers of `epoch` from plain ones; without `plan` every dataset takes them."""
    return _class_of(epoch, plan)


@lru_cache(maxsize=64)
def _class_of(epoch: int, plan: PlanMark | None) -> type[Number]:
    mark = {"__slots__": (), "__module__": __name__, "epoch": epoch, "plan": plan}
    return type("Number", (Number,), mark)


def described(dataset: object, samples: int) -> str:
    """What a dataset is, for messages."""
    return f"{named(dataset)} of {samples} samples"


def named(thing: object) -> str:
    """The type of a thing, for messages."""
    kind = type(thing)
    return f"`{kind.__module__}.{kind.__qualname__}`".replace("`builtins.", "`")


def _number(value: int, epoch: int, plan: PlanMark | None) -> Number:
    return _class_of(epoch, plan)(value)
