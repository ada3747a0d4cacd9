"""The command: ``python -m peregrine``."""

from __future__ import annotations

import signal
import sys

from ._peregrine import command


def main() -> int:
    """Runs the command with the arguments of this process. Its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["corpus"] or arguments[:2] == ["help", "corpus"]:
        from .corpus._command import main as corpus

        return corpus(arguments[1:] if arguments[0] == "corpus" else ["--help"])
    # Python only takes notice of Ctrl-C; the command ends by it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if arguments in ([], ["-h"], ["--help"], ["help"]):
        # The command prints its help and ends the process; it does not know what only the package has.
        print("In this package also: peregrine corpus (a corpus of many files, on many machines)\n", flush=True)
    return command(["peregrine", *arguments])


if __name__ == "__main__":
    sys.exit(main())
