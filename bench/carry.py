#!/usr/bin/env python3
"""What carry-through keeps and what it costs: odd lines, BLEU, processor time. What splitting into sentences gives.

  python bench/carry.py SHARED [--zhen DIR] [--only enpt|builtin|zhen ...] [--runs N] [--joined] [--show]

SHARED has `models/enpt`, `data/flores` and `data/text-features`. BLEU is sacrebleu's (13a, exponential smoothing), computed here. Times
are processor seconds of runs in turns, one thread. The binary is target/release/peregrine or $PEREGRINE.
"""
import argparse, collections, json, math, os, re, resource, subprocess, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.environ.get("PEREGRINE", os.path.join(ROOT, "target", "release", "peregrine"))


def lines(path):
    return open(path, encoding="utf-8").read().split("\n")[:-1]


def translate(model, text, *options):
    """The translation of some lines and its processor seconds."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as source, tempfile.NamedTemporaryFile() as out:
        source.write("".join(line + "\n" for line in text))
        source.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([BINARY, "translate", "-q", "-t", "1", *model, *options, "-i", source.name, "-o", out.name], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return lines(out.name), seconds


def tokenize(line):
    """sacrebleu's 13a."""
    line = f" {line} "
    for pattern, with_ in [(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])", r" \1 "), (r"([^0-9])([\.,])", r"\1 \2 "),
                           (r"([\.,])([^0-9])", r" \1 \2"), (r"([0-9])(-)", r"\1 \2 ")]:
        line = re.sub(pattern, with_, line)
    return line.split()


def bleu(texts, references):
    right, count, length, wanted = [0] * 4, [0] * 4, 0, 0
    for text, reference in zip(texts, references):
        text, reference = tokenize(text), tokenize(reference)
        length, wanted = length + len(text), wanted + len(reference)
        for n in range(1, 5):
            grams = lambda words: collections.Counter(tuple(words[i:i + n]) for i in range(len(words) - n + 1))
            found, there = grams(text), grams(reference)
            right[n - 1] += sum(min(k, there[g]) for g, k in found.items())
            count[n - 1] += max(0, len(text) - n + 1)
    smooth, total = 1.0, 0.0
    for r, c in zip(right, count):
        if r == 0:
            smooth *= 2
        total += math.log((r or 1 / smooth) / max(c, 1))
    return 100 * math.exp(total / 4 + min(0, 1 - wanted / max(length, 1)))


def lost(row, output):
    """What of a line's things that must survive is not in its translation."""
    digits = re.sub(r"(?<=\d)[.,'\s](?=\d)", "", output)
    return [k for k in row["keep"] if k not in output] + [k for k in row.get("keep_digits", []) if k not in digits]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared")
    parser.add_argument("--zhen")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--joined", action="store_true", help="lines of FLORES joined in pairs and threes")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--odd", nargs="*", help="files of odd lines: text, keep, keep_digits")
    args = parser.parse_args()
    flores = os.path.join(args.shared, "data", "flores")
    models = {"enpt": (["-m", os.path.join(args.shared, "models", "enpt")], "en", "pt"), "builtin": ([], "en", "pt")}
    if args.zhen:
        models["zhen"] = (["-m", args.zhen], "zh", "en")
    odd = args.odd if args.odd is not None else [os.path.join(args.shared, "data", "text-features", "odd-text.jsonl")]
    rows = [json.loads(line) for path in odd for line in lines(path)]
    for name, (model, source, target) in models.items():
        if args.only and name not in args.only:
            continue
        own = [row for row in rows if row.get("lang", "en") == source]
        if own:
            text = [row["text"] for row in own]
            off, on = (translate(model, text, "--carry", carry)[0] for carry in ("off", "on"))
            count = lambda outputs: sum(len(lost(row, output)) for row, output in zip(own, outputs))
            print(f"{name}: of {sum(len(r['keep']) + len(r.get('keep_digits', [])) for r in own)} things {count(off)} lost without, {count(on)} with carry")
            for row, output in zip(own, on):
                if args.show or lost(row, output):
                    print(f"  {row.get('id', '')} {row['text']!r} -> {output!r} {lost(row, output) or ''}")
        if args.runs:
            text, references = lines(f"{flores}/devtest.{source}"), lines(f"{flores}/devtest.{target}")
            times, outputs = {"off": [], "on": []}, {}
            for _ in range(args.runs):
                for carry in times:
                    outputs[carry], seconds = translate(model, text, "--split", "none", "--carry", carry)
                    times[carry].append(seconds)
            a, b = bleu(outputs["off"], references), bleu(outputs["on"], references)
            same = sum(x == y for x, y in zip(outputs["off"], outputs["on"]))
            ratio = min(times["off"]) / min(times["on"])
            print(f"{name}: BLEU {a:.2f} without, {b:.2f} with carry ({b - a:+.2f}), {same} of {len(text)} lines the same, speed {ratio:.3f}")
            if args.show:
                for s, x, y, r in zip(text, outputs["off"], outputs["on"], references):
                    if x != y:
                        print(f"  {s}\n    off {x}\n    on  {y}\n    ref {r}")
        if args.joined:
            text, references = lines(f"{flores}/devtest.{source}"), lines(f"{flores}/devtest.{target}")
            for count in (1, 2, 3):
                groups = range(0, len(text) - count + 1, count)
                joined = [("" if source == "zh" else " ").join(text[i:i + count]) for i in groups]
                wanted = [" ".join(references[i:i + count]) for i in groups]
                made = {how: translate(model, joined, "--carry", "off", "--split", how) for how in ("none", "sentence")}
                print(f"{name}: {count} sentences a line: " + ", ".join(
                    f"{how} BLEU {bleu(texts, wanted):.2f} in {seconds:.1f} s" for how, (texts, seconds) in made.items()))


if __name__ == "__main__":
    main()
