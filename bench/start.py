#!/usr/bin/env python3
"""From `exec` to the first word: wall clock of a whole process that translates one word, in turns.

  python bench/start.py [DIR] [--huggingface MODEL] [--rounds 31]

The built-in model; with DIR (see bench/compare.py) also DIR/base in int8, and CTranslate2 in this Python, its import included; with
a MarianMT directory also that, and `transformers` in this Python. The binary is target/release/peregrine or $PEREGRINE.
"""
import argparse, os, statistics, subprocess, sys, time

CT2 = """
import sys, ctranslate2
translator = ctranslate2.Translator(sys.argv[1], compute_type="int8", intra_threads=1)
print(translator.translate_batch([["w5", "w6"]], beam_size=1, max_decoding_length=1)[0].hypotheses)
"""

TRANSFORMERS = """
import sys
from transformers import MarianMTModel, MarianTokenizer
tokenizer, model = MarianTokenizer.from_pretrained(sys.argv[1]), MarianMTModel.from_pretrained(sys.argv[1])
print(model.generate(**tokenizer(["Hello"], return_tensors="pt"), max_new_tokens=1, num_beams=1))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--huggingface", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=31)
    args = parser.parse_args()
    translate = [os.environ.get("PEREGRINE", "target/release/peregrine"), "translate", "-q"]
    commands = {"built-in": [*translate, "Hello."]}
    if args.folder:
        model = os.path.join(args.folder, "base", "ct2_int8")
        commands["base"] = [*translate, "-m", model, "--beam", "1", "--max-length", "1", "w5 w6"]
        commands["base, CTranslate2"] = [sys.executable, "-c", CT2, model]
    if args.huggingface:
        model = args.huggingface
        commands["Hugging Face"] = [*translate, "-m", model, "--beam", "1", "--max-length", "1", "Hello"]
        commands["Hugging Face, transformers"] = [sys.executable, "-c", TRANSFORMERS, model]
    times = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            begin = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times[name].append(1000 * (time.perf_counter() - begin))
    for name, found in times.items():
        print(f"{name}: {statistics.median(found):.1f} ms ({min(found):.1f}-{max(found):.1f})")


if __name__ == "__main__":
    main()
