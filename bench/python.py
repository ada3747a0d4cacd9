#!/usr/bin/env python3
"""The Python package beside the command, and beside CTranslate2's own: same model, same text, same core, in turns.

  python bench/python.py [--rounds 5] [--core 0] [--lines 20000] [--case NAME ...] [--json FILE]
                         [--enpt DIR] [--zhen DIR] [--flores DIR] [--text FILE ...] [--ct2-python PROGRAM]

  enpt     a Firefox model (model.*.bin, lex.*.bin, vocab.*.spm, config*.yml)     default ../shared/models/enpt
  zhen     the package translate-zh_en-1_9 (Argos; CTranslate2 int8)              default $PEREGRINE_ZHEN
  flores   devtest.en and devtest.zh of FLORES-200                                default ../shared/data/flores
  text     English lines for the longer text                                      default ../shared/data/text/*.en

The package is the one that this Python has (python/build installs it into environments of its own); its command is the command. CTranslate2
needs `ctranslate2` and `sentencepiece` in a Python that --ct2-python names. What is not there is skipped, and says so.

The ways, each in a process of its own with one thread, pinned to one core:
  command       peregrine translate -i IN -o OUT
  list          translator.translate(lines)
  iterator      for line in translator.translate(file): ...
  chunks        translator.translate(32 lines), again and again, as pipelines do
  ct2 iterable  ctranslate2.Translator.translate_iterable, tokens by sentencepiece
  ct2 chunks    ctranslate2.Translator.translate_batch(32 lines), again and again
A time is that of a process with the text less the median of the same process with an empty one, so that starting and loading are
not in it; reading, tokenising and writing are. Printed are lines a second, of processor time and of the wall clock, medians with
least and most, and the median ratio of processor time to the command's in the same round. `list` and `iterator` must reach 0.95 of
it; else the exit code is 1.
"""
import argparse
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
LEAST_RATIO = 0.95
MUST = ("list", "iterator")

OURS = r"""
import json, sys, peregrine
o = json.loads(sys.argv[1])
translator = peregrine.Translator(o["model"], threads=1, device="cpu")
options = o["options"]
source, target = open(o["source"], encoding="utf-8", newline="\n"), open(o["target"], "w", encoding="utf-8", newline="\n")
lines = (line.rstrip("\n") for line in source)
if o["how"] == "list":
    answers = translator.translate(list(lines), **options)
elif o["how"] == "iterator":
    answers = translator.translate(lines, **options)
else:
    import itertools
    chunks = iter(lambda: list(itertools.islice(lines, 32)), [])
    answers = (answer for chunk in chunks for answer in translator.translate(chunk, **options))
target.writelines(f"{answer}\n" for answer in answers)
target.close()
"""

THEIRS = r"""
import itertools, json, sys, ctranslate2, sentencepiece
o = json.loads(sys.argv[1])
translator = ctranslate2.Translator(o["model"], device="cpu", compute_type="int8", inter_threads=1, intra_threads=1)
pieces = sentencepiece.SentencePieceProcessor(model_file=o["spm"])
source, target = open(o["source"], encoding="utf-8", newline="\n"), open(o["target"], "w", encoding="utf-8", newline="\n")
tokens = (pieces.encode(line.rstrip("\n"), out_type=str) for line in source)
if o["how"] == "ct2 iterable":
    answers = translator.translate_iterable(tokens, max_batch_size=64, beam_size=o["beam"])
else:
    chunks = iter(lambda: list(itertools.islice(tokens, 32)), [])
    answers = (a for chunk in chunks for a in translator.translate_batch(chunk, beam_size=o["beam"]))
target.writelines("".join(a.hypotheses[0]).replace("\u2581", " ").strip() + "\n" for a in answers)
target.close()
"""


def process(command, core):
    """Seconds of processor time and of the wall clock."""
    begin = time.perf_counter()
    child = subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"failed: {' '.join(command)[:300]}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - begin


class Case:
    """A model and a text."""

    def __init__(self, name, model, lines, work, ct2=None, spm=None):
        self.name, self.model, self.count, self.work = name, str(model), len(lines), work
        self.ct2, self.spm = ct2, spm
        # CTranslate2 gets a line as a sentence, and so do both of ours beside it.
        self.options = {"beam": 1, **({"split": "none", "carry": False} if spm else {})}
        self.source, self.empty = work / f"{name}.txt", work / "empty.txt"
        self.source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.empty.write_text("")
        self.ways = ["command", "list", "iterator", "chunks", *(["ct2 iterable", "ct2 chunks"] if ct2 else [])]

    def command(self, how, source):
        target = str(self.work / f"{self.name}.{how.replace(' ', '-')}.out")
        if how == "command":
            flags = ["--split", "none", "--carry", "off"] if self.spm else []
            files = ["-q", "-i", str(source), "-o", target, "--format", "lines"]
            model = ["-m", self.model, "-t", "1", "--device", "cpu", "-b", "1"]
            return [sys.executable, "-m", "peregrine", "translate", *files, *model, *flags]
        given = {"how": how, "model": self.model, "source": str(source), "target": target, "options": self.options}
        if how.startswith("ct2"):
            given = {**given, "model": str(Path(self.model) / "model"), "spm": str(self.spm), "beam": 1}
            return [self.ct2, "-c", THEIRS, json.dumps(given)]
        return [sys.executable, "-c", OURS, json.dumps(given)]

    def measure(self, rounds, core):
        """Seconds by way and round: those of the text, less those of an empty one."""
        empty = {how: [process(self.command(how, self.empty), core) for _ in range(3)] for how in self.ways}
        none = {how: [statistics.median(times) for times in zip(*empty[how])] for how in self.ways}
        seconds = {how: [] for how in self.ways}
        for _ in range(rounds):
            for how in random.sample(self.ways, len(self.ways)):
                took = process(self.command(how, self.source), core)
                seconds[how].append([max(1e-9, all_of_it - start) for all_of_it, start in zip(took, none[how])])
        return seconds, none

    def same(self):
        """Whether all of ours gave the same lines."""
        outputs = [(self.work / f"{self.name}.{how}.out").read_bytes() for how in self.ways if not how.startswith("ct2")]
        return all(output == outputs[0] for output in outputs)


def show(case, seconds, none):
    """Prints a table, and returns what was measured."""
    rows, result = [], {"lines": case.count, "seconds": seconds, "start": none, "ratio": {}}
    for how in case.ways:
        processor, wall = ([case.count / times[kind] for times in seconds[how]] for kind in (0, 1))
        ratios = [ours[0] / other[0] for ours, other in zip(seconds["command"], seconds[how])]
        result["ratio"][how] = statistics.median(ratios)
        spread = [f"{statistics.median(x):,.0f} ({min(x):,.0f}-{max(x):,.0f})" for x in (processor, wall)]
        rows.append([how, *spread, f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})", f"{none[how][1] * 1000:.0f}"])
    print(f"\n{case.name}: {case.count:,} lines; the same lines by all of ours: {'yes' if case.same() else 'NO'}\n")
    print("| way | lines/s of processor time | lines/s of the wall clock | of the command | start and load, ms |\n|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    return result


def cases(given, work):
    """The cases whose files are there."""
    ct2 = given.ct2_python
    probe = [ct2, "-c", "import ctranslate2, sentencepiece"]
    has_ct2 = ct2 and shutil.which(ct2) and subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0
    if not has_ct2:
        print("skipped: CTranslate2 (--ct2-python names a Python with ctranslate2 and sentencepiece)")
    texts = {}
    for language in ("en", "zh"):
        path = given.flores / f"devtest.{language}"
        texts[language] = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    long = [line for path in given.text if path.exists() for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    random.Random(1).shuffle(long)
    # There are few Chinese lines: they come again, numbered, so that all differ.
    chinese = (f"{turn}. {line}" if turn else line for turn in itertools.count() for line in texts["zh"])
    wanted = {
        "enpt-flores": (given.enpt, texts["en"]),
        "enpt-long": (given.enpt, long[: given.lines]),
        "zhen-flores": (given.zhen, texts["zh"]),
        "zhen-long": (given.zhen, list(itertools.islice(chinese, given.lines)) if texts["zh"] else []),
    }
    for name, (model, lines) in wanted.items():
        if given.case and name not in given.case:
            continue
        if model is None or not Path(model).exists() or not lines:
            print(f"skipped: {name}, without its model or text")
            continue
        spm = Path(model) / "sentencepiece.model" if name.startswith("zhen") else None
        yield Case(name, model, lines, work, ct2 if spm and has_ct2 else None, spm)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--lines", type=int, default=20_000, help="lines of the longer text")
    parser.add_argument("--case", nargs="*")
    parser.add_argument("--enpt", type=Path, default=SHARED / "models/enpt")
    parser.add_argument("--zhen", type=Path, default=os.environ.get("PEREGRINE_ZHEN"))
    parser.add_argument("--flores", type=Path, default=SHARED / "data/flores")
    parser.add_argument("--text", type=Path, nargs="*", default=sorted((SHARED / "data/text").glob("*.en")))
    parser.add_argument("--ct2-python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results, slow = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(given, Path(folder)):
            results[case.name] = show(case, *case.measure(given.rounds, given.core))
            slow += [f"{case.name}, {how}" for how in MUST if results[case.name]["ratio"][how] < LEAST_RATIO]
            if not case.same():
                slow.append(f"{case.name}: lines differ")
    print(f"\nload {os.getloadavg()[0]:.1f}")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    if slow:
        sys.exit(f"below {LEAST_RATIO} of the command: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
