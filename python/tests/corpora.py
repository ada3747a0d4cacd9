"""What the tests of corpora share."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

#: The record of a run in its output.
RECORD = "_peregrine.json"


def make(folder: Path, files: dict[str, str]) -> Path:
    """A folder with files of these names and contents."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return folder


def json_lines(rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def run(*arguments, **more):
    command = [sys.executable, "-m", "peregrine", "corpus", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, **more)


def contents(folder: Path) -> dict[str, bytes]:
    """All files but those that are about the others."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("_")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
