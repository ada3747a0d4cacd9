#!/usr/bin/env python3
"""Peregrine beside CTranslate2 on one GPU: same shapes, same lengths, in turns.

  python bench/gpu_compare.py [--rounds 3] [--quick] [--json FILE]

Random weights; 25 source tokens, 25 target tokens a sentence, tokenisation not counted on either side.
For every case the engines take turns, after a warm-up each, and the median of milliseconds a step is
compared. From 512 sentences on Peregrine also runs with its KV cache in fp8. Before CTranslate2 is timed
its words on the GPU are compared with those it finds on the CPU in float32.

Python needs `ctranslate2` 4.x and numpy. On a machine with CUDA 13 a folder on $LD_LIBRARY_PATH must have
a link `libcublas.so.12` to `libcublas.so.13`. The binary is target/release/peregrine or $PEREGRINE.
"""
import argparse, json, os, random, statistics, subprocess, sys, tempfile, time

import random_ct2

LENGTH = 25
# encoder layers, decoder layers, width, inner width, heads, words
SHAPES = {"base": (6, 6, 512, 2048, 8, 32000), "student": (6, 3, 256, 1024, 8, 32000)}
# shape, beam, batch, wanted ratio
CASES = [
    ("base", 1, 1, 12), ("base", 1, 64, 8), ("base", 1, 512, 6), ("base", 1, 2048, 4.5), ("base", 1, 8192, 4.5),
    ("base", 4, 1, 11), ("base", 4, 64, 8), ("base", 4, 512, 5.5), ("base", 4, 2048, 5.5),
    ("student", 1, 1, 5), ("student", 1, 2048, 3),
]


def make_ctranslate2(folder, shape):
    """A model of CTranslate2 with random weights."""
    encoder, decoder, width, inner, heads, words = SHAPES[shape]
    vocabulary = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(words - 3)]
    random_ct2.save(folder, (encoder, decoder), width, inner, heads, vocabulary)


def sources(count):
    choose = random.Random(count)
    return [[f"t{choose.randrange(31000)}" for _ in range(LENGTH - 1)] + ["</s>"] for _ in range(count)]


class CTranslate2:
    def __init__(self, folder):
        import ctranslate2

        self.models = {}
        for shape in SHAPES:
            path = os.path.join(folder, shape)
            make_ctranslate2(path, shape)
            self.models[shape] = ctranslate2.Translator(path, device="cuda", compute_type="float16")
        reference = ctranslate2.Translator(os.path.join(folder, "student"), device="cpu", compute_type="float32")
        lines = sources(8)
        same = [a.hypotheses[0] == b.hypotheses[0] for a, b in zip(
            reference.translate_batch(lines, beam_size=1, max_decoding_length=LENGTH),
            ctranslate2.Translator(os.path.join(folder, "student"), device="cuda", compute_type="float32")
            .translate_batch(lines, beam_size=1, max_decoding_length=LENGTH))]
        print(f"CTranslate2 {ctranslate2.__version__}: {sum(same)} of {len(same)} lines on the GPU as on the CPU",
              file=sys.stderr)

    def step(self, shape, beam, batch):
        lines = sources(batch)
        begin = time.perf_counter()
        self.models[shape].translate_batch(
            lines, beam_size=beam, max_batch_size=batch, min_decoding_length=LENGTH, max_decoding_length=LENGTH)
        return 1e3 * (time.perf_counter() - begin) / LENGTH


def ours(binary, shape, beam, batch, *settings):
    command = [binary, "bench", "gpu", "--shapes", shape, "--beam", str(beam), "--batch", str(batch),
               "--repeat", "5", "--json", *settings]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return json.loads(lines[-1])["ms_per_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, without the largest batch")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    binary = os.environ.get("PEREGRINE", "target/release/peregrine")
    rounds = 1 if args.quick else args.rounds
    found = []
    with tempfile.TemporaryDirectory() as folder:
        peer = CTranslate2(folder)
        print(f"{'network':8} {'beam':>4} {'batch':>5} {'ours, ms':>9} {'theirs':>8} {'ratio':>6} {'range':>12} {'wanted':>6} {'fp8 cache':>9}")
        for shape, beam, batch, wanted in CASES:
            if args.quick and batch > 2048:
                continue
            peer.step(shape, beam, batch)
            pairs, fp8 = [], []
            for _ in range(rounds):
                theirs = statistics.median(peer.step(shape, beam, batch) for _ in range(3))
                pairs.append((ours(binary, shape, beam, batch), theirs))
                if batch >= 512:
                    fp8.append(theirs / ours(binary, shape, beam, batch, "--set", "gpu-cache=fp8"))
            ratios = sorted(theirs / own for own, theirs in pairs)
            own, theirs = (statistics.median(side) for side in zip(*pairs))
            line = dict(network=shape, beam=beam, batch=batch, ms=own, ctranslate2_ms=theirs,
                        ratio=statistics.median(ratios), least=ratios[0], most=ratios[-1], wanted=wanted, fp8_cache=sorted(fp8))
            found.append(line)
            print(f"{shape:8} {beam:4} {batch:5} {own:9.3f} {theirs:8.3f} {line['ratio']:6.2f}"
                  f" {ratios[0]:5.2f}-{ratios[-1]:5.2f} {wanted or '':>6}"
                  f" {statistics.median(fp8) if fp8 else 0:9.2f}", flush=True)
    if args.json:
        with open(args.json, "w") as out:
            json.dump(found, out, indent=1)


if __name__ == "__main__":
    main()
