"""What can go wrong, named by what to do next.

Every error of Hotset is an `Error`, and each kind below says in one line what to do about it. `sample` and
`key` are set where the error concerns one sample. A `DataLoader` rebuilds an error of its workers from the
message alone, so the message always says everything and the other arguments may be left out.
"""


class Error(Exception):
    """Base class of every error that Hotset raises."""

    def __init__(self, message: str = "", sample: int | None = None, key: str | None = None) -> None:
        super().__init__(message)
        self.sample = sample
        """The id of the sample concerned, if there is one."""
        self.key = key
        """The name of that sample in its store, if known."""


class InvalidError(Error, ValueError):
    """An argument, a setting or a sample is wrong. Correct what the message names; retrying cannot help."""


class ChangedError(Error):
    """The data is no longer what was listed. Create the dataset again, which lists it again."""


class UnavailableError(Error):
    """The store or the server did not answer within `wait`. Retry later, or read past it (`HOTSET=off`)."""


class LostError(Error):
    """The server was restarted and does not know this job.

    A `Dataset` opens its job again by itself. With a raw `Client`, open the dataset and the job again.
    """


class HotsetWarning(UserWarning):
    """Nothing is broken, but the training may not be what you meant, or gain less than it could.

    Each is raised once a run, from rank 0. Filter them like all warnings:
    `warnings.simplefilter("ignore", hotset.HotsetWarning)`.
    """


class InternalError(Error):
    """A bug in Hotset. Please report it, with the message and the server's log."""


def kind_of(thing: object) -> str:
    """The type of a thing with its article, for messages: a `list`, an `int`."""
    name = type(thing).__name__
    return f"{'an' if name[:1].lower() in set('aeiou') else 'a'} `{name}`"
