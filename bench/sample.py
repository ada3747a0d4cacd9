#!/usr/bin/env python3
"""Where the processor time of a command goes, on machines without `perf`.

  python bench/sample.py [--top 40] COMMAND [ARGUMENT ...]

Runs the command with bench/sampler.c preloaded, which notes what runs some hundred times a second of processor time (as often as the
kernel's clock ticks), and prints two tables: functions, and for time outside the program (libraries, the GPU's driver) the function of the program that called. The program needs
its names: `cargo build --profile profiling`. Needs a C compiler and `nm`. Time in the kernel counts as that of its caller.
"""
import argparse, bisect, collections, os, re, shutil, subprocess, sys, tempfile


def functions(program):
    """Addresses and names of a program's functions, in order."""
    lines = subprocess.run(["nm", "-C", "--defined-only", program], capture_output=True, text=True).stdout.splitlines()
    found = sorted((int(address, 16), name) for address, kind, name in (line.split(" ", 2) for line in lines) if kind in "tTwW")
    if not found:
        sys.exit(f"sample.py: {program} has no names: cargo build --profile profiling")
    return [address for address, _ in found], [re.sub(r"::h[0-9a-f]{16}$", "", name) for _, name in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--top", type=int, default=40, help="lines of a table")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    program = shutil.which(args.command[0]) if args.command else None
    if not program:
        parser.error(f"no such program: {args.command[0]}" if args.command else "a command is missing")
    addresses, names = functions(program)
    with tempfile.TemporaryDirectory() as folder:
        library, file = os.path.join(folder, "sampler.so"), os.path.join(folder, "samples")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sampler.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        code = subprocess.run(args.command, env={**os.environ, "LD_PRELOAD": library, "SAMPLES": file}).returncode
        if not os.path.exists(file):
            sys.exit(f"sample.py: the command ended with {code} and left no samples")
        samples = [line.split("\t") for line in open(file).read().splitlines()]
    name = lambda offset: names[max(bisect.bisect_right(addresses, int(offset, 16)) - 1, 0)]
    inside, outside = collections.Counter(), collections.Counter()
    for module, at, own in samples:
        if module == "program":
            inside[name(at)] += 1
        else:
            inside["in " + os.path.basename(module)] += 1
            outside[f"{os.path.basename(module)}, called by {name(own) if own != '0' else 'no function of the program'}"] += 1
    for title, table in (("by function", inside), ("outside the program", outside)):
        print(f"{title}: {sum(table.values())} samples")
        for what, count in table.most_common(args.top):
            print(f"{100 * count / len(samples):6.2f} %  {what}")
    sys.exit(code)


if __name__ == "__main__":
    main()
