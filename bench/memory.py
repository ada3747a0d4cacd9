#!/usr/bin/env python3
"""The memory that opening a large model takes, and converting it.

  python bench/memory.py BINARY DIR           DIR is made by `bench/make_large.py memory DIR`

Prints the peak of anonymous memory (RssAnon: what cannot be read again from a file) beside the size of the weights in int8.
"""
import json, os, subprocess, sys, tempfile, time


def peak(command):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = 0
    begin = time.time()
    while process.poll() is None:
        try:
            for line in open(f"/proc/{process.pid}/status"):
                if line.startswith("RssAnon:"):
                    most = max(most, int(line.split()[1]) * 1024)
        except OSError:
            pass
        time.sleep(0.01)
    if process.returncode:
        sys.exit(f"{command}: exit {process.returncode}")
    return most, time.time() - begin


def main():
    binary, folder = sys.argv[1:]
    weights = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with open(os.path.join(folder, name), "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            weights += sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()) // 4
    print(f"{weights / 1e9:.2f} billion parameters: {weights / 1e9:.2f} GB in int8")
    translate = [binary, "translate", "-q", "-m", folder, "--precision", "int8", "-t", "1", "--from", "en", "--to", "pt", "--max-length", "4", "w5 w6 w7"]
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(folder))) as work:
        convert = [binary, "convert", folder, "--precision", "int8", "-o", os.path.join(work, "large.peregrine")]
        for name, command in (("translate --precision int8", translate), ("convert --precision int8", convert)):
            most, seconds = peak(command)
            print(f"{name}: peak RssAnon {most / 1e9:.2f} GB, {most / weights:.2f} of the int8 size; {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
