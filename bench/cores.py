#!/usr/bin/env python3
"""Peregrine beside CTranslate2 on all cores of a machine: tokens a second by the clock, in turns.

  python bench/cores.py DIR [--cores 16] [--rounds 5] [--beam 1 4] [--inter 8 16] [--not-alone] [--json FILE]

DIR/base is made by bench/make_model.py. Both sides translate 64 batches of 64 sentences of 25 words each to 25 words, in int8. Every way
that CTranslate2 has to share the cores among translators (`inter_threads`) and threads of one translator (`intra_threads`) is tried
twice, or those named by --inter; the best takes turns with Peregrine, which chooses by itself (`--threads auto`), and with Peregrine on
one core unless --not-alone is given. Loading is not counted. Python needs `ctranslate2`. The binary is target/release/peregrine or $PEREGRINE.
"""
import argparse, json, os, random, statistics, subprocess, sys, tempfile

LENGTH = 25
BATCH = 64
SENTENCES = 64 * BATCH

CT2 = r"""
import json, sys, time, ctranslate2
o = json.loads(sys.argv[1])
lines = [l.split() for l in open(o["source"], encoding="utf-8")]
t = ctranslate2.Translator(o["model"], device="cpu", compute_type="int8", inter_threads=o["inter"], intra_threads=o["intra"])
run = lambda lines: sum(len(r.hypotheses[0]) for r in t.translate_batch(
    lines, max_batch_size=o["batch"], beam_size=o["beam"], min_decoding_length=o["length"], max_decoding_length=o["length"]))
run(lines[:o["batch"] * o["inter"]])
begin = time.perf_counter()
tokens = run(lines)
print(json.dumps(tokens / (time.perf_counter() - begin)))
"""


def output(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1])


def peer(args, source, beam, inter):
    options = dict(source=source, model=os.path.join(args.folder, "base", "ct2_int8"), batch=BATCH, beam=beam, length=LENGTH,
                   inter=inter, intra=args.cores // inter)
    return output([sys.executable, "-c", CT2, json.dumps(options)])


def ours(args, source, beam, threads):
    report = output([os.environ.get("PEREGRINE", "target/release/peregrine"), "bench", "--device", "cpu", "--source", source,
                     "-m", os.path.join(args.folder, "base", "ct2_int8"), "--output-length", str(LENGTH), "--batch-sentences", str(BATCH),
                     "--batch-tokens", "100000", "--beam", str(beam), "--precision", "int8", "--threads", threads, "--repeat", "1", "--json"])
    return report["tokens"] / report["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beam", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--inter", type=int, nargs="*", help="numbers of CTranslate2's translators to try")
    parser.add_argument("--not-alone", action="store_true", help="leave out Peregrine on one core, which takes longest")
    parser.add_argument("--json", metavar="FILE", help="append an object for each beam to this file")
    args = parser.parse_args()
    rng = random.Random(7)
    ways = args.inter or [inter for inter in range(1, args.cores + 1) if args.cores % inter == 0]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        for _ in range(SENTENCES):
            text.write(" ".join(f"w{rng.randrange(2, 30000)}" for _ in range(LENGTH)) + "\n")
        text.flush()
        for beam in args.beam:
            sweep = {inter: max(peer(args, text.name, beam, inter) for _ in range(2)) for inter in ways}
            best = max(sweep, key=sweep.get)
            rounds, alone = [], []
            for _ in range(args.rounds):
                rounds.append((ours(args, text.name, beam, "auto"), peer(args, text.name, beam, best)))
                if not args.not_alone:
                    alone.append(ours(args, text.name, beam, "1"))
            ratios = sorted(own / theirs for own, theirs in rounds)
            own, theirs = map(statistics.median, zip(*rounds))
            one = statistics.median(alone) if alone else None
            line = dict(cores=args.cores, beam=beam, tokens=own, one_core=one, ctranslate2=theirs, inter_threads=best, sweep=sweep,
                        ratio=statistics.median(ratios), least=ratios[0], most=ratios[-1])
            times = f", {one:.0f} on one ({own / one:.1f} times)" if one else ""
            print(f"beam {beam}: {own:.0f} tokens/s on {args.cores} cores{times}; CTranslate2 {theirs:.0f} with {best}"
                  f" x {args.cores // best} threads; ratio {line['ratio']:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})", flush=True)
            if args.json:
                with open(args.json, "a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
