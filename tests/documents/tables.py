"""Translates the fixtures of subtitles and string tables with the command, and checks the results with other programs.

    python tests/documents/tables.py --binary target/release/peregrine [--model DIR] [--keep FOLDER]

Needs nothing but Python. What is installed is used: msgfmt, xmllint (and a schema of XLIFF, if a package has one), PyYAML,
ruamel.yaml, json5. What is not is said. The exit status is 1 if a check fails.
"""

import argparse
import glob
import importlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[2] / "crates/document/tests/fixtures"
TIMING = re.compile(r"\d[\d:.,]* *--> *\d")
faults = []
skipped = set()


def check(fine, message):
    if not fine:
        faults.append(message)
        print(f"  FAULT: {message}")


def library(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        skipped.add(name)


def run(program, *arguments):
    """What a program says about a file, or nothing if it is not installed."""
    if not shutil.which(program):
        skipped.add(program)
        return None
    return subprocess.run([program, *arguments], capture_output=True, text=True)


def translate(options, name, folder):
    source, target = FIXTURES / name, folder / name
    command = [options.binary, "translate", *(["-m", options.model] if options.model else []), "-i", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
    return (source.read_bytes(), target.read_bytes()) if done.returncode == 0 else None


def decoded(data):
    """The text of subtitles: UTF-8 or Windows-1252."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252")


def cues(text):
    """The lines of timing, and for each the lines of text behind it."""
    lines = re.split(r"\r\n|\n|\r", text)
    found = []
    for number, line in enumerate(lines):
        if TIMING.search(line):
            texts = []
            for shown in lines[number + 1:]:
                if not shown.strip():
                    break
                texts.append(shown)
            found.append((line, texts))
    return found


def plain(line):
    return re.sub(r"<[^>]*>|\{\\[^}]*\}", "", line).strip()


def subtitles(name, before, after):
    old, new = cues(decoded(before)), cues(decoded(after))
    check([time for time, _ in old] == [time for time, _ in new], f"{name}: times have changed")
    check(before.count(b"\r\n") > 0 or b"\r" not in after, f"{name}: line ends have changed")
    for (time, had), (_, has) in zip(old, new):
        check(bool("".join(map(plain, had))) == bool("".join(map(plain, has))), f"{name}: {time}: empty")
        check(len(has) <= max(len(had), 2) or any(line.startswith("-") for line in had), f"{name}: {time}: lines")
    for tag in ["<i>", "</i>", "<v Anna>", "<v Ben>", "{\\an8}", "♪", "<00:21.000>"]:
        check(decoded(before).count(tag) == decoded(after).count(tag), f"{name}: {tag}")
    widths = [len(plain(line)) for _, lines in new for line in lines]
    fitting = sum(width <= 42 for width in widths)
    print(f"  {len(new)} cues; {fitting} of {len(widths)} lines have at most 42 characters, the longest {max(widths)}")
    changed = sum(had != has for (_, had), (_, has) in zip(old, new))
    check(changed > len(new) / 2, f"{name}: only {changed} cues are new")


def catalogue(name, path, before, after):
    done = run("msgfmt", "--check", "-o", "/dev/null", str(path))
    check(done is None or done.returncode == 0, f"{name}: {done and done.stderr}")
    strings = re.findall(r'^msgstr(?:\[\d\])? ""$(?!\n")', after.decode(), re.M)
    check(len(strings) <= 1, f"{name}: {len(strings)} empty translations")
    comments = [line for line in before.decode().splitlines() if line.startswith(("#.", "#:", "#|", "#~"))]
    kept = [line for line in after.decode().splitlines() if line.startswith(("#.", "#:", "#|", "#~"))]
    check(comments == kept, f"{name}: comments have changed")


def xliff(name, path, before, after):
    done = run("xmllint", "--noout", str(path))
    check(done is None or done.returncode == 0, f"{name}: {done and done.stderr}")
    version = "2" if b'version="2' in before else "1.2"
    schemas = glob.glob(f"/usr/share/**/xliff*{'core_2' if version == '2' else '1.2'}*.xsd", recursive=True)
    for schema in schemas[:1]:
        done = run("xmllint", "--noout", "--nonet", "--schema", schema, str(path))
        check(done is None or done.returncode == 0, f"{name}: {done and done.stderr}")
    if not schemas:
        skipped.add(f"schema of XLIFF {version}")
    sources = re.findall(rb"<source>.*?</source>", before, re.S)
    check(sources == re.findall(rb"<source>.*?</source>", after, re.S), f"{name}: sources have changed")
    check(after.count(b"<target") > before.count(b"<target"), f"{name}: no new targets")


def shape(value, path=""):
    """Keys and values that are no strings, in order."""
    if isinstance(value, dict):
        return [part for key, item in value.items() for part in shape(item, f"{path}.{key}")]
    if isinstance(value, (list, tuple)):
        return [part for number, item in enumerate(value) for part in shape(item, f"{path}.{number}")]
    return [path if isinstance(value, str) else f"{path} {value!r}"]


def table(name, before, after, readers):
    for reader, load in readers:
        try:
            check(shape(load(before)) == shape(load(after)), f"{name}: another shape, by {reader}")
        except Exception as error:
            check(False, f"{name}: {reader}: {error}")


def yaml_readers():
    if yaml := library("yaml"):
        class Loader(yaml.SafeLoader):
            pass
        Loader.add_multi_constructor("!", lambda loader, tag, node: node.value)
        yield "PyYAML", lambda data: yaml.load(data, Loader)
    if ruamel := library("ruamel.yaml"):
        yield "ruamel.yaml", lambda data: ruamel.YAML(typ="rt").load(data.decode())


def json_readers():
    yield "json", json.loads
    if json5 := library("json5"):
        yield "json5", lambda data: json5.loads(data.decode())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, help="the command")
    parser.add_argument("--model", help="a model, of English to any language; the built-in one if none is given")
    parser.add_argument("--keep", help="a folder for the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(FIXTURES.iterdir()):
            name, ending = path.name, path.suffix
            print(name)
            both = translate(options, name, folder)
            if not both:
                continue
            before, after = both
            if ending in (".srt", ".vtt"):
                subtitles(name, before, after)
            elif ending == ".po":
                catalogue(name, folder / name, before, after)
            elif ending == ".xlf":
                xliff(name, folder / name, before, after)
            elif ending == ".json":
                table(name, before, after, json_readers())
            elif ending == ".yml":
                # A list as a key is beyond what Python can hold.
                drop = lambda data: re.sub(rb"  \? complex key\n  : complex value\n", b"", data)
                table(name, drop(before), drop(after), yaml_readers())
            check(before != after, f"{name}: nothing is new")
    for name in sorted(skipped):
        print(f"skipped: no {name}")
    print(f"{len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
