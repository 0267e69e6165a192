"""The command line: `hotset`, or `python -m hotset`."""

import signal
import sys

from . import _core


def main() -> int:
    """Runs the command line; its exit code."""
    # Ctrl-C is the native side's affair: Python would only remember it, and raise when all is over.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
