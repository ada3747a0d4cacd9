#!/usr/bin/env python3
"""Whether quality scores and flags tell anything: correlation with chrF, percentiles on other text, faults that were made.

  python bench/confidence.py SHARED [--only enpt|builtin ...] [--zhen DIR] [--show]
  python bench/confidence.py --pool TABLE TABLE ...

SHARED has `models/enpt`, `data/flores` and `data/text`. Tables are made anew by `peregrine calibrate`, of FLORES dev, and tried on devtest.
chrF is sacrebleu's (character n-grams to 6, beta 2, white space removed), computed here for each sentence. --pool prints the quantiles of
several tables together, as in `Calibration::default`. The binary is target/release/peregrine or $PEREGRINE.
"""
import argparse, bisect, collections, json, math, os, random, re, subprocess, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.environ.get("PEREGRINE", os.path.join(ROOT, "target", "release", "peregrine"))


def lines(path):
    return open(path, encoding="utf-8").read().split("\n")[:-1]


def stored(text):
    file = tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt")
    file.write("".join(line + "\n" for line in text))
    file.flush()
    return file


def calibrate(model, text):
    """The table of a model for some lines."""
    with stored(text) as source, tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([BINARY, "calibrate", *model, source.name, "-o", out.name], check=True, stderr=subprocess.DEVNULL)
        return json.load(open(out.name))


def translate(model, text, table, more=()):
    """Each line as the object that `--json --quality` prints."""
    with stored(text) as source, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(table, file)
        file.flush()
        done = subprocess.run([BINARY, "translate", "-q", *model, "--json", f"--quality={file.name}", "-i", source.name, *more],
                              check=True, stdout=subprocess.PIPE)
        return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def check(model, table, pairs):
    """The flags of given translations."""
    with stored([s for s, _ in pairs]) as source, stored([t for _, t in pairs]) as target, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(table, file)
        file.flush()
        done = subprocess.run([BINARY, "score", *model, "--json", f"--flags={file.name}", source.name, target.name], check=True, stdout=subprocess.PIPE)
        return [set(json.loads(line)["flags"]) for line in done.stdout.decode().split("\n")[:-1]]


def chrf(text, reference, order=6, beta=2):
    text, reference = "".join(text.split()), "".join(reference.split())
    precision, recall, orders = 0.0, 0.0, 0
    for n in range(1, order + 1):
        grams = lambda t: collections.Counter(t[i:i + n] for i in range(len(t) - n + 1))
        ours, theirs = grams(text), grams(reference)
        if not ours or not theirs:
            continue
        match = sum((ours & theirs).values())
        precision += match / sum(ours.values())
        recall += match / sum(theirs.values())
        orders += 1
    if not orders or precision + recall == 0:
        return 0.0
    p, r = precision / orders, recall / orders
    return 100 * (1 + beta ** 2) * p * r / (beta ** 2 * p + r) if p + r else 0.0


def pearson(a, b):
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    cov = sum((x - ma) * (y - mb) for x, y in zip(a, b))
    return cov / math.sqrt(sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b))


def mean_score(row):
    scores = row["alternatives"][0]["token_scores"]
    return sum(scores) / max(1, len(scores))


def deviation(ranks):
    """How far shares of ranks below each percentile are from it: greatest and mean."""
    ranks = sorted(ranks)
    off = [abs(bisect.bisect_left(ranks, q / 100) / len(ranks) - q / 100) for q in range(1, 100)]
    return max(off), sum(off) / len(off)


# Faults: a source and its translation with one of them, or None where there is no place for it.
def other_number(source, target, chance):
    places = list(re.finditer(r"\d+", target))
    kept = [m for m in places if m.group() in re.findall(r"\d+", source)]
    if not kept:
        return None
    m = chance.choice(kept)
    changed = m.group()
    while changed == m.group() or abs(int(changed) - int(m.group())) == 12:
        at = chance.randrange(len(changed))
        changed = changed[:at] + chance.choice("123456789") + changed[at + 1:]
    return source, target[:m.start()] + changed + target[m.end():]


def copied(source, target, chance):
    return source, source


def half_copied(source, target, chance):
    words = source.split()
    return source, " ".join(words[:int(0.9 * len(words))] + target.split()[-2:])


def other_english(source, target, chance):
    """Another sentence of the source language: no copy, but no translation."""
    return source, chance.choice(OTHERS)


def cut_short(source, target, chance):
    return source, " ".join(target.split()[:max(1, len(target.split()) // 3)])


def half_dropped(source, target, chance):
    return source, " ".join(target.split()[len(target.split()) // 2:])


def repeated(source, target, chance):
    words = target.split()
    end = chance.randrange(5, len(words) + 1) if len(words) > 5 else len(words)
    return source, " ".join(words[:end] + words[end - 5:end] * 2 + words[end:])


def looping(source, target, chance):
    words = target.split()
    return source, " ".join(words[:4] + words[4:7] * 12)


def unspelt(source, target, chance):
    words = source.split()
    words.insert(chance.randrange(len(words)), chance.choice(["Здравствуйте", "東京", "🦀", "ქართული", "{x}"]))
    return " ".join(words), target


FAULTS = [(other_number, "numbers"), (copied, "untranslated"), (half_copied, "untranslated"), (other_english, "untranslated"),
          (cut_short, "length"), (half_dropped, "length"), (repeated, "looped"), (looping, "looped"), (unspelt, "unknown")]
OTHERS = []


def flags(name, model, table, sources, rows, show):
    """Of translations with a fault, how many have its flag; of those without one, how many have a flag."""
    good = [(s, r["text"]) for s, r in zip(sources, rows)]
    clean = check(model, table, good)
    OTHERS[:] = sources
    counts = collections.Counter(flag for found in clean for flag in found)
    print(f"{name}: flags of {len(good)} translations as they are: {dict(counts)}; without any {sum(not f for f in clean)}")
    if show:
        for (s, t), found in zip(good, clean):
            if found:
                print(f"  {','.join(sorted(found))}\n    {s}\n    {t}")
    print(f"  {'fault':14} {'flag':13} {'made':>5} {'recall':>7} {'precision':>9}")
    for fault, flag in FAULTS:
        chance = random.Random(7)
        made = [(i, fault(s, t, chance)) for i, (s, t) in enumerate(good)]
        made = [(i, pair) for i, pair in made if pair]
        found = check(model, table, [pair for _, pair in made])
        right = sum(flag in f for f in found)
        # As many good ones as bad ones: precision where half of all have the fault.
        wrong = sum(flag in clean[i] for i, _ in made)
        print(f"  {fault.__name__:14} {flag:13} {len(made):5} {right / len(made):7.3f} {right / max(1, right + wrong):9.3f}", flush=True)
        if show:
            for (_, (s, t)), f in [(m, f) for m, f in zip(made, found) if flag not in f][:5]:
                print(f"    missed ({','.join(sorted(f))})\n      {s}\n      {t}")


def pool(paths):
    tables = [json.load(open(path)) for path in paths]
    for name in ("sentence_quantiles", "word_quantiles"):
        values = sorted(v for table in tables for v in table[name])
        at = lambda q: values[round(q * (len(values) - 1))]
        print(f"{name}: [{', '.join(f'{at(i / 32):.5f}' for i in range(33))}]")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", nargs="?")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--zhen", help="the package translate-zh_en-1_9")
    parser.add_argument("--pool", nargs="*")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    if args.pool:
        return pool(args.pool)
    flores, text = (os.path.join(args.shared, "data", folder) for folder in ("flores", "text"))
    models = {"enpt": (["-m", os.path.join(args.shared, "models", "enpt")], "en", "pt"), "builtin": ([], "en", "pt")}
    if args.zhen:
        models["zhen"] = (["-m", args.zhen], "zh", "en")
    for name, (model, source, target) in models.items():
        if args.only and name not in args.only:
            continue
        dev, devtest, references = (lines(f"{flores}/{file}") for file in (f"dev.{source}", f"devtest.{source}", f"devtest.{target}"))
        table = calibrate(model, dev)
        rows = translate(model, devtest, table)
        marks = [chrf(row["text"], reference) for row, reference in zip(rows, references)]
        raw, rank = pearson([math.exp(mean_score(r)) for r in rows], marks), pearson([r["quality"] for r in rows], marks)
        print(f"{name}: Pearson with chrF: exp(mean log-probability) {raw:.3f}, score {rank:.3f}; mean chrF {sum(marks) / len(marks):.1f}")
        order = sorted(range(len(rows)), key=lambda i: rows[i]["quality"])
        tenth = len(order) // 10
        for what, part in (("lowest", order[:tenth]), ("highest", order[-tenth:])):
            own = [marks[i] for i in part]
            print(f"  {what} tenth: mean chrF {sum(own) / tenth:.1f}, below 50 {sum(m < 50 for m in own) / tenth:.2f}")
        greatest, mean = deviation([r["quality"] for r in rows])
        print(f"  percentiles of dev on devtest: off by {100 * mean:.1f} points in the mean, {100 * greatest:.1f} at most", flush=True)
        both = dev + devtest
        if source == "en":
            for file in ("newstest2014.en", "europarl.en", "tatoeba.en"):
                both = both + lines(f"{text}/{file}")[:4000]
        random.Random(1).shuffle(both)
        middle = len(both) // 2
        rows_of_half = translate(model, both[middle:], calibrate(model, both[:middle]))
        greatest, mean = deviation([q for r in rows_of_half for s in r["sentences"] for q in s["quality"] if q is not None])
        print(f"  one half of {len(both)} lines on the other: sentences off by {100 * mean:.1f} points in the mean, {100 * greatest:.1f} at most")
        words = [w["quality"] for r in rows_of_half for w in r["alternatives"][0]["word_quality"] if w["quality"] is not None]
        greatest, mean = deviation(words)
        print(f"  words off by {100 * mean:.1f} points in the mean, {100 * greatest:.1f} at most", flush=True)
        flags(name, model, table, devtest, rows, args.show)


if __name__ == "__main__":
    main()
