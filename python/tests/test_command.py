"""``python -m peregrine`` is the command."""

from __future__ import annotations

import subprocess
import sys

import peregrine
from conftest import SENTENCE, TRANSLATION


def run(*arguments, **more):
    command = [sys.executable, "-m", "peregrine", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, **more)


def test_it_translates():
    done = run("translate", "-q", input=f"{SENTENCE}\n\n{SENTENCE}\n")
    assert (done.returncode, done.stdout) == (0, f"{TRANSLATION}\n\n{TRANSLATION}\n")


def test_it_gives_the_lines_that_the_package_gives(translator):
    lines = [SENTENCE, "Visit https://example.com 🦀!", "A. B. C.", "  Indented text"]
    done = run("translate", "-q", input="\n".join(lines) + "\n")
    assert done.stdout.split("\n")[:-1] == translator.translate(lines)


def test_it_has_versions_help_and_exit_codes():
    assert run("--version").stdout == f"peregrine {peregrine.__version__}\n"
    assert "Usage: peregrine" in run("--help").stdout
    wrong = run("translate", "--no-such-option")
    assert wrong.returncode == 2 and "no-such-option" in wrong.stderr
    missing = run("translate", "-m", "/no/such/model", "Hello")
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1
