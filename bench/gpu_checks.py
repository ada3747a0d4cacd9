#!/usr/bin/env python3
"""What a GPU must do besides being fast, and `peregrine selftest` cannot do to itself: one table.

  python bench/gpu_checks.py MODEL=TEXT ... [--only words,ptx,memory,sanitizer] [--precision NAME ...]
                             [--beam 1 4] [--leave MB ...] [--out DIR]

words      `selftest` for every model and its text, greedy and with a beam: in each precision how many lines
           are those of the processor in float32, and whether batches of 1, 64, 512 and 2,048 agree. With --out the
           translations are written there too, MODEL.PRECISION.BEAM.txt, for whoever wants BLEU.
ptx        A machine without NVRTC (PEREGRINE_NVRTC names none): the kernels made ahead must give the same lines.
memory     All but so many megabytes of the GPU are held by this process: the same lines, in smaller batches, or
           one line that says what is missing. Sentences a step tell whether a batch was split.
sanitizer  compute-sanitizer (where it is installed): memcheck and racecheck over `selftest --quick`. Launches wait
           for each other: racecheck would else keep what it has not looked at yet, a hundred gigabytes of it.

The binary is target/release/peregrine or $PEREGRINE. Ends with 1 where something is not as it should be.
"""
import argparse, ctypes, json, os, re, shutil, subprocess, sys, tempfile

PRECISIONS = ["float32", "tf32", "float16", "bfloat16", "int8", "fp8"]
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.environ.get("PEREGRINE", os.path.join(ROOT, "target", "release", "peregrine"))
failed = False


def row(check, model, precision, result, good=True):
    global failed
    failed |= not good
    print(f"{check:14} {model:24} {precision:9} {result}{'' if good else '  <-- NOT AS IT SHOULD BE'}", flush=True)


def lines(path):
    return open(path, encoding="utf-8", newline="").read().removesuffix("\n").split("\n")


def name_of(model):
    return os.path.basename(os.path.normpath(model))


def run(arguments, seconds=600, **environment):
    """Exit status, standard output and standard error."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        return None, "", f"not done in {seconds} s"
    return done.returncode, done.stdout, done.stderr


def translate(model, text, precision, *extra, **environment):
    """The lines, sentences a step, and what it had to say if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        out, stats = os.path.join(folder, "out"), os.path.join(folder, "stats")
        code, _, said = run([BINARY, "translate", "-q", "-m", model, "-i", text, "-o", out, "--device", "cuda", "--precision", precision, "--carry", "off", "--split", "none",
                             "--stats", stats, *extra], **environment)
        if code != 0:
            return None, 0, " ".join(said.split())[:200]
        return lines(out), json.load(open(stats))["batch"]["sentences_a_step"], ""


def same(a, b):
    return f"{sum(x == y for x, y in zip(a, b))} of {len(b)} lines the same"


def words(models, args):
    line = re.compile(r" (fp8 cache|\S+) +same words +(\d+) of +(\d+), scores within (\S+), batches of 1, 64, 512, 2048 (\w+)")
    for model, text in models:
        for beam in args.beam:
            code, out, said = run([BINARY, "selftest", "-m", model, "--source", text, "--beam", str(beam), "--precision", ",".join(args.precision)])
            found = [match.groups() for match in map(line.search, out.splitlines()) if match]
            for precision, identical, of, apart, batches in found:
                row(f"words, beam {beam}", name_of(model), precision, f"{identical} of {of} as on the processor, scores within {apart}, batches {batches}",
                    batches == "agree")
            if code != 0:
                row(f"words, beam {beam}", name_of(model), "", " ".join(said.split())[-200:], False)
            for precision in args.precision if args.out else []:
                output, _, said = translate(model, text, precision, "--beam", str(beam))
                if output is None:
                    row(f"words, beam {beam}", name_of(model), precision, said, False)
                    continue
                with open(os.path.join(args.out, f"{name_of(model)}.{precision}.{beam}.txt"), "w", encoding="utf-8") as file:
                    file.write("\n".join(output) + "\n")


def ptx(models, args):
    none = {"PEREGRINE_NVRTC": "there-is-none"}
    _, out, _ = run([BINARY, "doctor", "--json"], **none)
    doctor = json.loads(out)
    usable = doctor["kernel_compiler"] is None and doctor["auto"].startswith("cuda")
    row("ptx", "", "", f"compiler: {doctor['kernel_compiler']}, auto computes on {doctor['auto']}", usable)
    for model, text in models if usable else []:
        for precision in args.precision:
            usual, _, said = translate(model, text, precision)
            ahead, _, said_ahead = translate(model, text, precision, **none)
            if usual is None or ahead is None:
                row("ptx", name_of(model), precision, said or said_ahead, False)
            else:
                row("ptx", name_of(model), precision, same(ahead, usual), ahead == usual)


class Held:
    """All but `leave` bytes of the GPU's memory."""

    PIECE = 64 << 20

    def __init__(self, leave):
        self.leave, self.pieces, self.cuda = leave, [], ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} gave {code}")

    def free(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def __enter__(self):
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        while self.free() > self.leave + self.PIECE:
            # Large pieces first: there may be a hundred gigabytes to hold.
            bytes = max(self.PIECE, (self.free() - self.leave) // 2 // self.PIECE * self.PIECE)
            piece = ctypes.c_uint64()
            self.call("cuMemAlloc_v2", ctypes.byref(piece), ctypes.c_size_t(bytes))
            self.pieces.append(piece)
        return self

    def __exit__(self, *_):
        for piece in self.pieces:
            self.call("cuMemFree_v2", piece)
        self.call("cuDevicePrimaryCtxRelease_v2", 0)


def memory(models, args):
    large = ["--batch-sentences", "8192", "--batch-tokens", str(1 << 20)]
    for model, text in models:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as many:
            # Enough lines for a batch that takes gigabytes.
            once = lines(text)
            many.write("\n".join(once * (8192 // len(once) + 1)) + "\n")
            many.flush()
            usual, usual_step, said = translate(model, many.name, "float16", *large)
            if usual is None:
                row("memory", name_of(model), "float16", said, False)
                continue
            for leave in args.leave:
                with Held(leave << 20):
                    output, step, said = translate(model, many.name, "float16", *large)
                result = said if output is None else f"{same(output, usual)}, {step:.0f} sentences a step, {usual_step:.0f} with all memory"
                # To give up with a line is right where not even one sentence finds room.
                row("memory", name_of(model), "float16", f"{leave} MB left: {result}", output == usual or "memory" in said)


def sanitizer(_, args):
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None:
        row("sanitizer", "", "", "compute-sanitizer is not installed")
        return
    for kind in ["memcheck", "racecheck"]:
        for precision in args.precision:
            code, out, said = run([tool, "--tool", kind, "--force-blocking-launches", "--error-exitcode", "9", BINARY, "selftest", "--quick", "--precision", precision], args.seconds)
            summary = [line for line in (out + said).splitlines() if "SUMMARY" in line]
            row("sanitizer", kind, precision, summary[-1].strip("= ") if summary else " ".join(said.split())[-200:], code == 0)


CHECKS = {"words": words, "ptx": ptx, "memory": memory, "sanitizer": sanitizer}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL=TEXT")
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(CHECKS))
    parser.add_argument("--precision", nargs="+", default=PRECISIONS)
    parser.add_argument("--beam", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--leave", nargs="+", type=int, default=[2400, 1600, 1200, 900], help="megabytes")
    parser.add_argument("--seconds", type=int, default=900, help="limit of one run of compute-sanitizer")
    parser.add_argument("--out")
    args = parser.parse_args()
    models = [tuple(pair.rsplit("=", 1)) for pair in args.models]
    if any(len(pair) != 2 for pair in models):
        parser.error("models are given with a text: MODEL=TEXT")
    if args.out:
        os.makedirs(args.out, exist_ok=True)
    for name in args.only:
        CHECKS[name](models, args)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
