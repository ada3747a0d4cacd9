"""The Python lines of the pages run, and give what is written behind them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "python/README.md", "docs/python.md"])
def test_lines_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("book.en", "book.txt"):
        (tmp_path / name).write_text("Good morning!\n", encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        # A model directory of CTranslate2 is not at hand.
        if "ctranslate2" in block:
            continue
        exec(block, names)
        for line in block.splitlines():
            call, _, comment = line.partition("  # ")
            if comment.startswith(("'", "[")):
                assert eval(call, names) == ast.literal_eval(comment), line
