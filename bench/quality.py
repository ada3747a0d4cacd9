#!/usr/bin/env python3
"""What int8 and shortlists cost in quality: BLEU against float32, and the share of lines left identical.

  python bench/quality.py SHARED [--zhen DIR] [--only NAME ...] [--core N]

SHARED has `models/enpt`, `models/golden` and `data/flores`. Greedy search, guards off, batches of 64
(which change nothing). Lines whose translation ran to the length limit in either precision are left out
for the golden models. CTranslate2's own share of identical lines comes from its recorded outputs. Needs
`sacrebleu`; the binary is target/release/peregrine or $PEREGRINE.
"""
import argparse, glob, json, os, subprocess, sys, tempfile

import sacrebleu

GOLDEN = {  # source text, reference
    "transformer-post": ("src300.en", "ref300.de"), "transformer-pre": ("src300.bpe.en", "ref300.de"),
    "transformer-aan": ("src300.en", "ref300.de"), "transformer-aan-plain": ("src300.en", "ref300.de"),
    "transformer-ssru": ("src300.en", "ref300.de"), "transformer-options": ("src300.en", "ref300.de"),
    "gru": ("src300.bpe.en", "ref300.bpe.de"), "lstm": ("src300.en", "ref300.de"),
    "mlstm": ("src300.en", "ref300.de"), "bideep": ("src300.en", "ref300.de"),
}


def lines(path):
    return open(path, encoding="utf-8").read().splitlines()


class Quality:
    def __init__(self, args):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.binary = os.environ.get("PEREGRINE", os.path.join(root, "target", "release", "peregrine"))
        self.core = args.core

    def translate(self, model, source, precision, extra=()):
        pin = ["taskset", "-c", self.core] if self.core else []
        with tempfile.NamedTemporaryFile() as out:
            subprocess.run([*pin, self.binary, "translate", "-q", *model, "-i", source, "-o", out.name, "--beam", "1", "--guards", "off", "--carry", "off", "--split", "none",
                            "--precision", precision, "--json", *extra], check=True)
            objects = [json.loads(line) for line in lines(out.name)]
        return [o["text"] for o in objects], [o["alternatives"][0]["ended"] for o in objects]

    def compare(self, name, model, source, reference, only_ended=False, shortlist=(), tokenized=False):
        reference = lines(reference)
        tokenizer = "none" if tokenized else "13a"
        full, full_ended = self.translate(model, source, "float32", ["--shortlist", "off"])
        int8, int8_ended = self.translate(model, source, "int8", ["--shortlist", "off"])
        kept = [i for i in range(len(full)) if not only_ended or (full_ended[i] and int8_ended[i])]
        bleu = lambda texts: sacrebleu.corpus_bleu([texts[i] for i in kept], [[reference[i] for i in kept]], tokenize=tokenizer).score
        same = lambda a, b: sum(a[i] == b[i] for i in kept)
        row = {"name": name, "lines": len(kept), "float32": bleu(full), "int8": bleu(int8), "same": same(full, int8)}
        if shortlist:
            short, _ = self.translate(model, source, "int8", shortlist)
            row["shortlist"], row["shortlist_same"] = bleu(short), same(int8, short)
        text = f"{name:24} {row['lines']:5} {row['float32']:8.2f} {row['int8']:7.2f} {row['int8'] - row['float32']:+6.2f} {row['same']:6} {100 * row['same'] / max(1, len(kept)):5.1f}%"
        if shortlist:
            text += f" {row['shortlist']:9.2f} {row['shortlist'] - row['int8']:+6.2f}"
        print(text, flush=True)
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared")
    parser.add_argument("--zhen", help="the package translate-zh_en-1_9")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--core")
    parser.add_argument("--builtin-shortlist", help="a table for the built-in model, as `peregrine shortlist build` makes it")
    args = parser.parse_args()
    quality, flores, models = Quality(args), f"{args.shared}/data/flores", f"{args.shared}/models"
    wanted = lambda name: not args.only or name in args.only
    print(f"{'model':24} {'lines':>5} {'float32':>8} {'int8':>7} {'':6} {'same':>6} {'':6} {'shortlist':>9}")
    if wanted("enpt") and os.path.isdir(f"{models}/enpt"):
        quality.compare("enpt", ["-m", f"{models}/enpt"], f"{flores}/devtest.en", f"{flores}/devtest.pt", shortlist=["--shortlist", "auto"])
    if wanted("built-in"):
        table = args.builtin_shortlist
        quality.compare("built-in", [], f"{flores}/devtest.en", f"{flores}/devtest.pt", shortlist=["--shortlist", table] if table else ())
    if wanted("zhen") and args.zhen:
        quality.compare("zhen", ["-m", args.zhen], f"{flores}/devtest.zh", f"{flores}/devtest.en")
        float32, int8 = (lines(f"{flores}/devtest.zh-en.ct2-{p}.greedy.txt") for p in ("float32", "int8"))
        bleu = lambda texts: sacrebleu.corpus_bleu(texts, [lines(f"{flores}/devtest.en")]).score
        same = sum(a == b for a, b in zip(float32, int8))
        print(f"{'zhen, CTranslate2':24} {len(int8):5} {bleu(float32):8.2f} {bleu(int8):7.2f} {bleu(int8) - bleu(float32):+6.2f} {same:6} {100 * same / len(int8):5.1f}%", flush=True)
    golden = []
    for name, (source, reference) in GOLDEN.items():
        if wanted(name) or wanted("golden"):
            folder = f"{models}/golden/inputs"
            golden.append(quality.compare(name, ["-m", f"{models}/golden/{name}"], f"{folder}/{source}", f"{folder}/{reference}",
                                          only_ended=True, tokenized="bpe" in reference))
    if golden:
        mean = lambda key: sum(row[key] for row in golden) / len(golden)
        print(f"{'golden, mean':24} {'':5} {mean('float32'):8.2f} {mean('int8'):7.2f} {mean('int8') - mean('float32'):+6.2f}")


if __name__ == "__main__":
    main()
