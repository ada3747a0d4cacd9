"""The Python lines of the pages run, and give what is written behind them. So do the lines with ``peregrine corpus``."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    for name in ("book.en", "book.txt"):
        (tmp_path / name).write_text("Good morning!\n", encoding="utf-8")
    (tmp_path / "crawl").mkdir()
    for name in ("a", "b"):
        rows = [{"id": f"{name}{i}", "url": "https://example.com", "body": "Good morning!"} for i in range(2)]
        (tmp_path / "crawl" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "python/README.md", "docs/python.md", "docs/scale.md"])
def test_lines_of_a_page_run(page, files):
    assert blocks(page, "python")
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        # A model directory of CTranslate2 is not at hand.
        if "ctranslate2" in block:
            continue
        exec(block, names)
        for line in block.splitlines():
            call, _, comment = line.partition("  # ")
            if comment.startswith(("'", "[")):
                assert eval(call, names) == ast.literal_eval(comment), line


@pytest.mark.parametrize("page", ["README.md", "docs/scale.md"])
def test_commands_of_a_page_run(page, files):
    commands = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("peregrine corpus")]
    assert commands
    for line in commands:
        arguments = shlex.split(line, comments=True)[1:]
        # A cluster is not at hand.
        if "--engine" in arguments:
            continue
        done = subprocess.run([sys.executable, "-m", "peregrine", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(row) for file in Path("crawl-pt").glob("*.jsonl") for row in file.read_text(encoding="utf-8").splitlines()]
        assert sorted(rows, key=lambda row: row["id"])[0] == {"id": "a0", "translation": "Bom dia!"} and len(rows) == 4
