#!/usr/bin/env python3
"""Peregrine beside other engines: same weights, same text, same core, in turns.

  python bench/compare.py DIR [--rounds 5] [--core 0] [--case NAME ...] [--json FILE]

DIR holds what the cases need; a case without its files is skipped, and says so:
  base, student            made by bench/make_model.py
  gru, bideep              made by bench/make_recurrent.py
  nllb600                  made by bench/make_large.py speed
  zhen                     the package translate-zh_en-1_9 (Argos; CTranslate2 int8)
  enpt                     a Firefox model: model.*.bin, lex.*.bin, vocab.*.spm, config*.yml
  flores                   devtest.en and devtest.zh of FLORES-200
Links will do. Python needs `ctranslate2`, `sentencepiece` and `pymarian`; Bergamot runs in a Python of
its own (3.10, `pip install bergamot==0.4.5`) that $BERGAMOT_PYTHON names. The binary is
target/release/peregrine or $PEREGRINE.

Random models give every sentence as many target tokens as it has source tokens, and tokens a second are
compared; real models give what they give, and sentences a second are compared. Each engine runs in a
process of its own, pinned to one core. First every setting of the peer runs twice; the best then takes
turns with Peregrine. Times are processor time without loading; each run warms up first. Printed are
medians, and the median ratio with the least and the most.
"""
import argparse, glob, json, os, random, statistics, subprocess, sys, tempfile

LENGTH = 25
CT2_SETTINGS = {
    "default": {},
    "AVX512": {"CT2_FORCE_CPU_ISA": "AVX512"},
    "MKL held to AVX2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "oneDNN": {"CT2_USE_MKL": "0"},
}
CT2_AVX2 = {
    "AVX2 only": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "CT2_FORCE_CPU_ISA": "AVX2"},
    "AVX2 only, oneDNN": {"CT2_USE_MKL": "0", "ONEDNN_MAX_CPU_ISA": "AVX2", "CT2_FORCE_CPU_ISA": "AVX2"},
}
BERGAMOT_SETTINGS = {f"alignment {a}, {w} words": {"alignment": a, "words": w}
                     for w in ("1024", "512", "4096") for a in ("soft", "off")}

# name: what is run; `sentences` and `batch` may differ by case, the rest are defaults.
CASES = {
    "base-1": dict(model="base", batch=1, sentences=12),
    "base-1-vmap500": dict(model="base", batch=1, sentences=24, vmap=500),
    "base-64-vmap500": dict(model="base", batch=64, sentences=128, vmap=500),
    "base-64": dict(model="base", batch=64, sentences=128),
    "base-beam4-1": dict(model="base", batch=1, sentences=8, beam=4),
    "base-beam4-64": dict(model="base", batch=64, sentences=64, beam=4),
    "student-1": dict(model="student", batch=1, sentences=32),
    "student-64": dict(model="student", batch=64, sentences=256),
    "zhen-1": dict(model="zhen", batch=1, sentences=40, text="devtest.zh"),
    "zhen-64": dict(model="zhen", batch=64, sentences=256, text="devtest.zh"),
    "zhen-beam4-64": dict(model="zhen", batch=64, sentences=128, beam=4, text="devtest.zh"),
    "enpt-1": dict(model="enpt", batch=1, sentences=200, text="devtest.en", peer="bergamot"),
    "enpt-many": dict(model="enpt", batch=64, sentences=1012, text="devtest.en", peer="bergamot", batching="sorted"),
    "base-float32-1": dict(model="base", batch=1, sentences=4, precision="float32"),
    "base-float32-64": dict(model="base", batch=64, sentences=64, precision="float32"),
    "base-bfloat16-64": dict(model="base", batch=64, sentences=64, precision="bfloat16", peer_precision="float32"),
    "base-vnni-64": dict(model="base", batch=64, sentences=128, isa="avx512-vnni"),
    "base-avx2-1": dict(model="base", batch=1, sentences=12, isa="avx2"),
    "base-avx2-64": dict(model="base", batch=64, sentences=64, isa="avx2"),
    # For the time to load: one sentence, so that neither engine finds what a long run of the other has left of caches.
    "base-load": dict(model="base", batch=1, sentences=1),
    "student-load": dict(model="student", batch=1, sentences=1),
    "zhen-load": dict(model="zhen", batch=1, sentences=1, text="devtest.zh"),
    "nllb600-1": dict(model="nllb600", batch=1, sentences=4),
    "nllb600-64": dict(model="nllb600", batch=64, sentences=64),
    "nllb600-beam4-64": dict(model="nllb600", batch=64, sentences=64, beam=4),
    "gru-32": dict(model="gru", batch=32, sentences=64, peer="marian"),
    "bideep-32": dict(model="bideep", batch=32, sentences=32, peer="marian"),
}

CT2 = r"""
import json, resource, sys, time, ctranslate2
o = json.loads(sys.argv[1])
lines = [l.rstrip("\n") for l in open(o["source"], encoding="utf-8")]
if o["spm"]:
    import sentencepiece
    lines = sentencepiece.SentencePieceProcessor(model_file=o["spm"]).encode(lines, out_type=str)
else:
    lines = [l.split() for l in lines]
start = time.perf_counter()
t = ctranslate2.Translator(o["model"], device="cpu", compute_type=o["compute"], inter_threads=1, intra_threads=1)
load = time.perf_counter() - start
options = dict(beam_size=o["beam"], use_vmap=o["vmap"])
if o["length"]:
    options.update(min_decoding_length=o["length"], max_decoding_length=o["length"])
def run(lines):
    n = o["batch"]
    if n == 1:
        results = [t.translate_batch([l], **options)[0] for l in lines]
    else:  # sorted by length and cut into batches
        results = t.translate_batch(lines, max_batch_size=n, **options)
    return sum(len(r.hypotheses[0]) for r in results)
run(lines[:o["batch"]])
seconds = []
for _ in range(o["repeat"]):
    c = time.process_time()
    tokens = run(lines)
    seconds.append(time.process_time() - c)
seconds.sort()
s = seconds[len(seconds) // 2]
print(json.dumps({"tokens": tokens / s, "sentences": len(lines) / s, "load": load,
                  "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""

BERGAMOT = r"""
import glob, json, os, sys, sysconfig, time
sys.path.insert(0, os.path.join(sysconfig.get_paths()["platlib"], "bergamot"))
import _bergamot as b  # the package itself asks a server for models when it is imported
o = json.loads(sys.argv[1])
find = lambda pattern: glob.glob(o["model"] + "/" + pattern)[0]
config = {"models": "[%s]" % find("model.*.bin"), "vocabs": "[%s, %s]" % ((find("vocab.*.spm"),) * 2),
          "shortlist": "[%s, false]" % find("lex.*.bin"), "beam-size": 1, "normalize": 1.0, "word-penalty": 0,
          "cpu-threads": 0, "max-length-break": 256 if int(o["words"]) > 512 else 128, "mini-batch-words": o["words"], "workspace": 128,
          "max-length-factor": 2.5, "skip-cost": "true", "gemm-precision": "int8shiftAlphaAll", "quiet": "true",
          "quiet-translation": "true", "ssplit-mode": "sentence"}
if o["alignment"] != "off":
    config["alignment"] = o["alignment"]
service = b.Service(b.ServiceConfig(numWorkers=1, cacheSize=0, logLevel="off"))
model = service.modelFromConfig("".join("%s: %s\n" % pair for pair in config.items()))
options = b.ResponseOptions(qualityScores=False, alignment=False, HTML=False)
lines = [l.rstrip("\n") for l in open(o["source"], encoding="utf-8")]
def run(lines):
    if o["batch"] == 1:
        return [service.translate(model, b.VectorString([l]), options)[0].target.text for l in lines]
    return [r.target.text for r in service.translate(model, b.VectorString(lines), options)]
run(lines[:16])
seconds = []
for _ in range(o["repeat"]):
    c = time.process_time()
    run(lines)
    seconds.append(time.process_time() - c)
seconds.sort()
print(json.dumps({"sentences": len(lines) / seconds[len(seconds) // 2]}), flush=True)
os._exit(0)
"""

MARIAN = r"""
import json, sys, time
from pymarian import Translator
o = json.loads(sys.argv[1])
m = o["model"]
t = Translator("-m %s/model.npz -v %s/vocab.yml %s/vocab.yml --cpu-threads 1 -b 1 --mini-batch %d --maxi-batch 1 "
               "--max-length-factor 1 --quiet" % (m, m, m, o["batch"]))
lines = [l.rstrip("\n") for l in open(o["source"], encoding="utf-8")]
batches = lambda lines: (lines[i:i + o["batch"]] for i in range(0, len(lines), o["batch"]))
run = lambda lines: sum(len(text.split()) for batch in batches(lines) for text in t.translate(batch))
run(lines[:o["batch"]])
seconds = []
for _ in range(o["repeat"]):
    c = time.process_time()
    tokens = run(lines)
    seconds.append(time.process_time() - c)
seconds.sort()
print(json.dumps({"tokens": tokens / seconds[len(seconds) // 2]}))
"""


class Skip(Exception):
    pass


def pinned(core, command, env=None):
    out = subprocess.run(["taskset", "-c", str(core), *command], capture_output=True, text=True,
                         env={**os.environ, **(env or {})})
    if out.returncode != 0 or not out.stdout.strip():
        raise Skip(f"{command[0]}: {(out.stderr.strip().splitlines() or ['no output'])[-1]}")
    return json.loads(out.stdout.strip().splitlines()[-1])


class Bench:
    def __init__(self, args):
        self.folder, self.core, self.rounds, self.repeat = args.folder, args.core, args.rounds, args.repeat
        self.sweep = not args.no_sweep
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.binary = os.environ.get("PEREGRINE", os.path.join(root, "target", "release", "peregrine"))

    def path(self, *names):
        path = os.path.join(self.folder, *names)
        if not os.path.exists(path):
            raise Skip(f"no {path}")
        return path

    def unit(self, case):
        return "sentences" if "text" in case else "tokens"

    def text(self, case, file):
        if "text" in case:
            lines = open(self.path("flores", case["text"]), encoding="utf-8").read().splitlines()
            file.write("".join(line + "\n" for line in lines[:case["sentences"]]))
        else:
            rng = random.Random(7)
            for _ in range(case["sentences"]):
                file.write(" ".join(f"w{rng.randrange(2, 30000)}" for _ in range(LENGTH)) + "\n")
        file.flush()

    def vmap(self, case):
        """One common set of words, for both engines."""
        words = json.load(open(self.path("base", "ct2_int8", "shared_vocabulary.json")))[:case["vmap"]]
        path = os.path.join(self.folder, "base", "ct2_int8", "vmap.txt")
        open(path, "w").write("\t" + " ".join(words) + "\n")
        return path

    def peregrine(self, case, source):
        model = self.path(case["model"])
        command = [self.binary, "bench", "--device", "cpu", "--source", source, "--batch-sentences", str(case["batch"]), "--batch-tokens", "100000",
                   "--beam", str(case.get("beam", 1)), "--precision", case.get("precision", "int8"),
                   "--threads", "1", "--repeat", str(self.repeat), "--json"]
        if "text" in case:
            command += ["-m", model]
        elif case.get("peer") == "marian":  # its limit counts the end symbol: one word more than the source has
            command += ["-m", f"{model}/model.npz", "--vocab", f"{model}/vocab.yml", f"{model}/vocab.yml", "--output-length", str(LENGTH + 1)]
        else:  # the file the peer opens, so that load time and memory can be compared too
            command += ["-m", self.path(case["model"], f"ct2_{self.compute(case)}"), "--output-length", str(LENGTH)]
        if "vmap" in case:
            command += ["--shortlist", self.vmap(case)]
        for option in ("isa", "batching"):
            if option in case:
                command += ["--set", f"{option}={case[option]}"]
        report = pinned(self.core, command)
        return {self.unit(case): report[self.unit(case)] / report["cpu_seconds"], "load": report["load_seconds"],
                "memory": report["peak_memory_mb"]}

    def compute(self, case):
        """The peer's precision: Peregrine's, where it has it."""
        return case.get("peer_precision", case.get("precision", "int8"))

    def settings(self, case):
        peer = case.get("peer", "ctranslate2")
        if peer == "bergamot":
            return BERGAMOT_SETTINGS
        if peer == "marian":
            return {"float32": {}}
        return CT2_AVX2 if case.get("isa") == "avx2" else CT2_SETTINGS

    def peer(self, case, source, setting):
        peer = case.get("peer", "ctranslate2")
        values = self.settings(case)[setting]
        options = {"source": source, "batch": case["batch"], "repeat": self.repeat, "model": self.path(case["model"])}
        if peer == "bergamot":
            python = os.environ.get("BERGAMOT_PYTHON")
            if not python:
                raise Skip("$BERGAMOT_PYTHON is not set")
            return pinned(self.core, [python, "-c", BERGAMOT, json.dumps({**options, **values})])
        if peer == "marian":
            return pinned(self.core, [sys.executable, "-c", MARIAN, json.dumps(options)])
        compute = self.compute(case)
        if "text" in case:  # an Argos package
            folder, spm, length = self.path(case["model"], "model"), self.path(case["model"], "sentencepiece.model"), None
        else:
            folder, spm, length = self.path(case["model"], f"ct2_{compute}"), None, LENGTH
        options.update(model=folder, spm=spm, length=length, compute=compute, beam=case.get("beam", 1), vmap="vmap" in case)
        return pinned(self.core, [sys.executable, "-c", CT2, json.dumps(options)], values)

    def run(self, name):
        case, unit = CASES[name], self.unit(CASES[name])
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            self.text(case, text)
            if "vmap" in case:
                self.vmap(case)
            settings = list(self.settings(case))
            settings = settings if self.sweep else settings[:1]
            sweep = dict.fromkeys(settings, 0)
            # Twice, each setting's best: the core may have been slow for seconds.
            for s in settings * 2 if len(settings) > 1 else []:
                sweep[s] = max(sweep[s], self.peer(case, text.name, s)[unit])
            best = max(sweep, key=sweep.get)
            ours, theirs = [], []
            for _ in range(self.rounds):
                ours.append(self.peregrine(case, text.name))
                theirs.append(self.peer(case, text.name, best))
        ratios = sorted(a[unit] / b[unit] for a, b in zip(ours, theirs))
        middle = lambda runs, key: statistics.median(r[key] for r in runs) if key in runs[0] else None
        return {"case": name, "peer": case.get("peer", "ctranslate2"), "setting": best, "sweep": sweep, "unit": unit,
                "peregrine": middle(ours, unit), "theirs": middle(theirs, unit), "ratio": statistics.median(ratios),
                "least": ratios[0], "most": ratios[-1], "load": [middle(ours, "load"), middle(theirs, "load")],
                "memory": [middle(ours, "memory"), middle(theirs, "memory")]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3, help="runs in a process, of which the median counts")
    parser.add_argument("--no-sweep", action="store_true", help="the peer's default setting only")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json", help="append an object for each case to this file")
    args = parser.parse_args()
    bench = Bench(args)
    print(f"per CPU second, {args.rounds} rounds of {args.repeat} runs in turns; load in s, memory in MB, Peregrine / peer")
    print(f"{'case':16} {'unit':9} {'peregrine':>9} {'peer':>8} {'ratio':>6}  {'spread':11} {'load':13} {'memory':11} peer's best setting")
    for name in args.case:
        try:
            r = bench.run(name)
        except Skip as reason:
            print(f"{name:16} skipped: {reason}", flush=True)
            continue
        pair = lambda values, form: "" if None in values else " / ".join(form % v for v in values)
        print(f"{name:16} {r['unit']:9} {r['peregrine']:9.1f} {r['theirs']:8.1f} {r['ratio']:6.2f}  "
              f"{r['least']:.2f}-{r['most']:.2f}   {pair(r['load'], '%.3f'):13} {pair(r['memory'], '%.0f'):11} {r['peer']}, {r['setting']}", flush=True)
        if args.json:
            with open(args.json, "a") as file:
                file.write(json.dumps(r) + "\n")


if __name__ == "__main__":
    main()
