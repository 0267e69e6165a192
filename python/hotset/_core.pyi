"""The native part: one connection to a server, and the views it hands out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, SupportsIndex, final

from ._dataset.numbers import Number

__version__: str

@final
class Client:
    """One connection. Not for two processes: open another after a fork. Usable from several threads.

    Every call releases the GIL while it waits, runs pending signal handlers (Ctrl-C) at least every
    200 ms, and raises a class of `hotset.errors`. A call that ends early closes the connection.
    """

    def __new__(cls, path: str, *, main_pid: int, timeout: float, user: int | None = None) -> Self: ...
    @property
    def instance(self) -> str: ...
    @property
    def server_pid(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def open_dataset(
        self,
        place: str,
        *,
        layout: str,
        extensions: Sequence[str] = ...,
        storage_options: dict[str, str] | None = None,
        progress: Callable[[str, int], None] | None = None,
        expect: str = ...,
        label: str = ...,
        root: str = ...,
        select: Sequence[int] = ...,
        wait: float,
    ) -> dict[str, Any]:
        """The fields of `DatasetOpened`, as a dict.

        `expect` names the dataset that another process of the job has opened, to be joined as it is.
        """
    def open_job(
        self,
        job: str,
        settings: Mapping[str, Any],
        *,
        lasting: bool = False,
        package_options: dict[str, str] | None = None,
        state: bytes | None = None,
        run: str = ...,
        launch: str = ...,
        attempt: int = ...,
        parent: str = ...,
        rank: int | None = None,
        reader: bool = False,
        resume: tuple[str, int | None, int] | None = None,
        wait: float,
    ) -> dict[str, Any]:
        """The fields of `JobOpened`, as a dict. With `state` it resumes from there, unless it is open.

        `run` is the one this process was in before; `resume` is a run, an epoch and slots trained of it.
        """
    def close_job(self, job: str, *, moves: bool = False, wait: float) -> None: ...
    def begin_epoch(
        self, job: str, epoch: int, *, rank: int, world: int, start: int, join: bool = False, wait: float
    ) -> Plan:
        """The rank's plan. `join` is a reader's that found its server restarted: nothing begins over."""
    def begin_given(
        self,
        job: str,
        epoch: int,
        *,
        rank: int,
        world: int,
        start: int,
        order: int,
        ids: bytes | None = None,
        wait: float,
    ) -> Plan | None:
        """The rank's plan in the order of that digest; `None` where the server wants its `ids`, and has none.

        They are 32-bit little-endian integers.
        """
    def get_batch(
        self,
        job: str,
        indices: Indices | Sequence[int],
        *,
        rank: int,
        matched: bool = False,
        reevaluation: int | None = None,
        wait: float,
    ) -> Batch:
        """Samples of a plan or, with `reevaluation`, such as are re-evaluated before that epoch.

        With `matched` numbers without a mark are taken for such of the epoch that the rank has begun.
        """
    def reevaluate(self, job: str, epoch: int, *, rank: int, world: int, wait: float) -> bytes:
        """The ids that this rank must re-evaluate before `epoch`, as 32-bit little-endian integers."""
    def reevaluated(
        self,
        job: str,
        epoch: int,
        *,
        rank: int,
        ids: Sequence[int],
        losses: Sequence[float],
        last: bool,
        wait: float,
    ) -> None:
        """Tells losses under the current model; `last` when there are no more."""
    def end_epoch(
        self, job: str, epoch: int, *, rank: int, accuracy: float | None = None, wait: float
    ) -> None: ...
    def state(self, job: str, *, wait: float) -> bytes:
        """All that a job's plans are made from, to resume elsewhere."""
    def scores(self, job: str, *, wait: float) -> bytes:
        """The last score of each sample, as 32-bit little-endian floats; not a number where there is none."""
    def report(
        self,
        job: str,
        epoch: int,
        *,
        rank: int,
        upto: int,
        ids: Sequence[int],
        scores: Sequence[float],
        wait: float,
    ) -> tuple[int, int]:
        """How many scores were accepted, and how many rejected."""
    def describe(
        self, dataset: str, first: int, count: int, *, wait: float
    ) -> tuple[list[str], list[Any], list[int]]:
        """Keys, labels (empty without labels) and sizes of `count` samples from `first`."""
    def stats(self, job: str = ..., *, wait: float) -> str:
        """The `Stats` message as JSON."""

@final
class Indices:
    """Numbers of samples, checked as a list's indices are, with the epochs of those that are marked.

    `check` is called with the class of marked numbers before any of them is looked at, to refuse it.
    """

    def __new__(
        cls,
        asked: Iterable[SupportsIndex],
        samples: int,
        check: Callable[[type[Number]], None] | None = None,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def ids(self) -> list[int]:
        """The numbers, without marks, counted from 0."""
    def epochs(self) -> set[int]:
        """The epochs that planned some of them."""

@final
class Plan:
    """One rank's ids of one epoch, in the server's sealed memory."""

    def __len__(self) -> int: ...
    def block(self, start: int, stop: int) -> list[int]:
        """The ids of slots `start..stop`, clipped to the plan."""
    def weights(self, start: int, stop: int) -> list[float] | None:
        """The weights of slots `start..stop` in the loss, clipped to the plan; `None` where all are 1."""
    @property
    def warnings(self) -> list[tuple[str, str]]:
        """What the trainer should be told: a name, of which one warning comes a run, and a text."""

@final
class Batch:
    """Samples in the arena. Its bytes stay until the last view of it is dropped."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int, /) -> memoryview: ...
    def views(self) -> list[memoryview]: ...
    def bytes(self) -> list[bytes]: ...
    def copy_into(self, buffer: Any) -> list[tuple[int, int]]:
        """Copies all samples one after the other into a writable buffer; the (offset, length) of each."""
    @property
    def labels(self) -> list[Any]:
        """Empty when the dataset has no labels."""
    @property
    def remark(self) -> str:
        """What the user should be told; mostly empty."""
    @property
    def parts(self) -> list[int]:
        """Begin and length of every part of every sample; empty unless samples have several parts.

        2^32 - 1 and 0 stand for a part that a sample does not have.
        """

@final
class Catalog:
    """A listing made and read in this process, past the server (`HOTSET=off`)."""

    def __new__(
        cls,
        place: str,
        *,
        layout: str,
        extensions: Sequence[str] = ...,
        storage_options: dict[str, str] | None = None,
        progress: Callable[[str, int], None] | None = None,
        label: str = ...,
        root: str = ...,
        select: Sequence[int] = ...,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def info(self) -> dict[str, Any]:
        """As `Client.open_dataset` answers."""
    def read(self, sample: int) -> bytes:
        """The bytes of one sample, read from the store (throttled as `storage_options` says)."""
    def parts(self, sample: int) -> list[int]:
        """Begin and length of every part of a sample; empty unless there are several."""
    def label(self, sample: int) -> Any | None: ...
    def describe(self, first: int, count: int) -> tuple[list[str], list[Any], list[int]]: ...

@final
class Strategy:
    """A registered strategy, with its settings: what a trainer must know of it before its first plan."""

    def __new__(
        cls, name: str, settings: Sequence[tuple[str, str]] = ..., epochs: int | None = None
    ) -> Self: ...
    def __getnewargs__(self) -> tuple[str, list[tuple[str, str]], int | None]: ...
    @property
    def name(self) -> str: ...
    @property
    def policy(self) -> str:
        """The policy that belongs to it, used where none is named."""
    @property
    def summary(self) -> str: ...
    @property
    def needs_losses(self) -> bool: ...
    @property
    def reevaluates(self) -> bool:
        """Whether its plans may need losses under the current model."""
    @property
    def takes_irreducible(self) -> bool:
        """Whether `irreducible` losses may be subtracted from those."""
    @property
    def pads(self) -> bool:
        """Whether its plans are padded whatever the job says."""
    @property
    def follows_seed(self) -> bool:
        """Whether its plans follow from the seed alone, so that it has nothing to keep."""
    @property
    def is_whole(self) -> bool:
        """Whether every epoch is of all samples."""
    @property
    def shuffles(self) -> bool:
        """Whether its orders are drawn from the seed."""
    @property
    def takes_order(self) -> bool:
        """Whether the trainer gives the order of each epoch, by `ids=`."""
    def may_be_full(self, epoch: int) -> bool:
        """Whether `epoch` may be of all samples, as far as its settings tell."""
    def selected(self, samples: int) -> int:
        """The most of `samples` that an epoch has which is not full."""

LAST_EPOCH: int
"""The last epoch that can be planned."""

def seed_plan(strategy: str, samples: int, seed: int, epoch: int, rank: int, world: int, pad: bool) -> Plan:
    """The plan that the server makes by a strategy that goes by its seed alone, without a server."""

def order_digest(ids: bytes) -> int:
    """Tells one order from another; ids are 32-bit little-endian integers."""

def given_plan(ids: bytes, epoch: int, rank: int, world: int, pad: bool) -> Plan:
    """The plan that the server makes of an order, without a server."""

def parse_size(text: str, whole: int) -> int:
    """The bytes of `8GiB`, or of `20%` of `whole`."""

def strategies() -> list[Strategy]:
    """Every strategy, with the defaults of its settings."""

def policies() -> list[tuple[str, str]]:
    """(name, one line) of every policy."""

def survey(
    place: str,
    *,
    layout: str,
    seconds: float,
    most_bytes: int,
    extensions: Sequence[str] = ...,
    root: str = ...,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str, float], object] | None = None,
) -> str:
    """What was found of a dataset's listing, storage and decoding, as JSON."""

def diagnose(measured: str, width: int) -> tuple[str, str, str]:
    """The verdict on what was measured (JSON): as JSON, as text so many columns wide, and as a page."""

def host() -> dict[str, Any]:
    """What this host has: `cores`, free bytes of `memory` and `disk`, `reads` of a server at a time."""

def main(arguments: Sequence[str]) -> int:
    """The command line; the process's exit code."""

def before_fork() -> None:
    """Copies what this process leases, for the child that this thread is about to fork."""

def after_fork_in_parent() -> None:
    """Ends what `before_fork` began."""

def after_fork_in_child() -> None:
    """Closes this process's copies of its parent's connections."""
