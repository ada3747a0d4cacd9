#!/usr/bin/env python3
"""Draws the README's chart of speed from the raw results of a run.

    python bench/chart.py bench/runs/DATE-MACHINE [bench/runs/DATE-MACHINE …] > docs/speed.svg

Reads `cpu.jsonl` (bench/compare.py --json) and `gpu.json` (bench/gpu_compare.py --json). A case is that of the first folder that has it.
"""
import json
import os
import sys
from html import escape

CPU = {
    "base-1": "Transformer-base int8, 1 sentence",
    "base-64": "Transformer-base int8, 64 sentences",
    "base-beam4-64": "Transformer-base int8, beam 4, 64 sentences",
    "zhen-64": "Chinese-English int8, 64 sentences",
    "enpt-1": "Firefox model, 1 sentence",
    "enpt-many": "Firefox model, whole text",
    "gru-32": "GRU 1024, 32 sentences",
}
GPU = {
    ("base", 1, 1): "H200 Transformer-base float16, 1 sentence",
    ("base", 1, 64): "H200 Transformer-base float16, 64 sentences",
    ("base", 1, 2048): "H200 Transformer-base float16, 2,048 sentences",
    ("base", 4, 64): "H200 Transformer-base float16, beam 4, 64 sentences",
}
PEERS = {"ctranslate2": "CTranslate2", "bergamot": "Bergamot", "marian": "Marian"}
LABELS, BAR, ROW, TOP = 400, 420, 30, 64


def results(folders, name):
    """The results in the files of that name, those of the first folder last."""
    for folder in reversed(folders):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path) as file:
                text = file.read()
            yield from json.loads(text) if name.endswith(".json") else map(json.loads, text.splitlines())


def rows(folders):
    """(label, peer, ratio, least, most) for each case in the folders, in the order above."""
    found = {r["case"]: r for r in results(folders, "cpu.jsonl")}
    found |= {(r["network"], r["beam"], r["batch"]): r for r in results(folders, "gpu.json")}
    for case, label in [*CPU.items(), *GPU.items()]:
        if case in found:
            r = found[case]
            yield label, PEERS[r.get("peer", "ctranslate2")], r["ratio"], r["least"], r["most"]


def chart(lines):
    most = max(line[4] for line in lines)
    x = lambda ratio: LABELS + BAR * ratio / most
    height = TOP + ROW * len(lines) + 16
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABELS + BAR + 150} {height}" font-family="sans-serif" font-size="13">',
        "<style>text{fill:#222}.soft{fill:#666}.one{stroke:#888;stroke-dasharray:3 3}.bar{fill:#2a6fb0}.range{stroke:#222}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.soft{fill:#aaa}.bar{fill:#5aa0e0}.range{stroke:#ddd}}</style>",
        '<text x="12" y="24" font-size="16" font-weight="bold">Times as fast as the other engine</text>',
        '<text x="12" y="44" class="soft">same machine, weights and text, in turns; bar: median, line: least to most</text>',
        f'<line class="one" x1="{x(1):.1f}" x2="{x(1):.1f}" y1="{TOP - 8}" y2="{height - 12}"/>',
    ]
    for i, (label, peer, ratio, low, high) in enumerate(lines):
        y = TOP + ROW * i
        out += [
            f'<text x="{LABELS - 10}" y="{y + 15}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="bar" x="{LABELS}" y="{y}" width="{x(ratio) - LABELS:.1f}" height="20" rx="2"/>',
            f'<line class="range" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y + 10}" y2="{y + 10}"/>',
            f'<text x="{x(high) + 8:.1f}" y="{y + 15}">{ratio:.1f} × {escape(peer)}</text>',
        ]
    return "\n".join([*out, "</svg>"])


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    lines = list(rows(sys.argv[1:]))
    if not lines:
        sys.exit(f"{' '.join(sys.argv[1:])}: neither cpu.jsonl nor gpu.json has a case of the chart")
    print(chart(lines))


if __name__ == "__main__":
    main()
