#!/usr/bin/env python3
"""Peregrine and CTranslate2 side by side: same weights, same text, same core, in turns.

  python bench/compare.py MODEL [--rounds 5] [--core 0] [--case NAME ...]

MODEL is a directory with `model.npz`, `vocab.yml`, `ct2_int8` and `ct2_float32`, all from the same
weights, as bench/make_model.py writes it. Each case gives every sentence exactly as many target
tokens as it has source tokens. Each engine runs in a process of its own, pinned to one core, once a
round; printed are the median tokens per second of processor time and the median ratio with its
spread. Python with `ctranslate2` is needed; the binary is taken from target/release or $PEREGRINE.
"""
import argparse, json, os, random, statistics, subprocess, sys, tempfile

CASES = {  # name: (sentences in a batch, sentences in all, beam, Peregrine's precision, CTranslate2's)
    "float32-1": (1, 4, 1, "float32", "float32"),
    "float32-64": (64, 64, 1, "float32", "float32"),
    "int8-1": (1, 12, 1, "int8", "int8"),
    "int8-64": (64, 128, 1, "int8", "int8"),
    "int8-beam4-1": (1, 12, 4, "int8", "int8"),
    "int8-beam4-64": (64, 64, 4, "int8", "int8"),
}
LENGTH = 25

CT2 = r"""
import sys, time, json, ctranslate2
model, compute, batch, beam, length, source = sys.argv[1:7]
lines = [l.split() for l in open(source, encoding="utf-8")]
t = ctranslate2.Translator(model, device="cpu", compute_type=compute, inter_threads=1, intra_threads=1)
def run():
    n = int(batch)
    return sum(len(h.hypotheses[0]) for i in range(0, len(lines), n)
               for h in t.translate_batch(lines[i:i + n], beam_size=int(beam), max_batch_size=0,
                                          min_decoding_length=int(length), max_decoding_length=int(length)))
run()
best = []
for _ in range(3):
    c, w = time.process_time(), time.perf_counter()
    tokens = run()
    best.append((tokens / (time.process_time() - c), tokens / (time.perf_counter() - w)))
best.sort()
print(json.dumps({"cpu": best[1][0], "wall": best[1][1]}))
"""


def pinned(core, command, **kwargs):
    out = subprocess.run(["taskset", "-c", str(core), *command], capture_output=True, text=True, **kwargs)
    if out.returncode != 0:
        sys.exit(f"{command[0]}: {out.stderr.strip()}")
    return json.loads(out.stdout.strip().splitlines()[-1])


def peregrine(binary, model, case, source, core):
    batch, _, beam, precision, _ = case
    report = pinned(core, [
        binary, "bench", "-m", f"{model}/model.npz", "--vocab", f"{model}/vocab.yml", f"{model}/vocab.yml",
        "--source", source, "--batch-sentences", str(batch), "--batch-tokens", "100000", "--beam", str(beam),
        "--output-length", str(LENGTH), "--precision", precision, "--repeat", "3", "--json",
    ])
    return {"cpu": report["tokens"] / report["cpu_seconds"], "wall": report["tokens_per_second"]}


def ctranslate2(model, case, source, core):
    batch, _, beam, _, compute = case
    folder = f"{model}/ct2_{compute}"
    return pinned(core, [sys.executable, "-c", CT2, folder, compute, str(batch), str(beam), str(LENGTH), source])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    args = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    binary = os.environ.get("PEREGRINE", os.path.join(root, "target", "release", "peregrine"))
    rng = random.Random(7)
    print(f"{'case':16} {'peregrine':>10} {'ctranslate2':>12} {'ratio':>7}   spread   (tokens per CPU second, {args.rounds} rounds)")
    for name in args.case:
        case = CASES[name]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            for _ in range(case[1]):
                text.write(" ".join(f"w{rng.randrange(2, 32000)}" for _ in range(LENGTH)) + "\n")
            text.flush()
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(peregrine(binary, args.model, case, text.name, args.core)["cpu"])
                theirs.append(ctranslate2(args.model, case, text.name, args.core)["cpu"])
        ratios = sorted(a / b for a, b in zip(ours, theirs))
        print(f"{name:16} {statistics.median(ours):10.0f} {statistics.median(theirs):12.0f}"
              f" {statistics.median(ratios):7.2f}   {ratios[0]:.2f}-{ratios[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
