"""The command: ``python -m peregrine``."""

from __future__ import annotations

import signal
import sys

from ._peregrine import command


def main() -> int:
    """Runs the command with the arguments of this process. Its exit code."""
    # Python only takes notice of Ctrl-C; the command ends by it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return command(["peregrine", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
