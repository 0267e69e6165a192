"""The command line: `hotset`, or `python -m hotset`."""

import sys

from . import _core


def main() -> int:
    """Runs the command line; its exit code."""
    return _core.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
