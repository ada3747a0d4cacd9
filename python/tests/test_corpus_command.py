"""The command ``peregrine corpus``."""

from __future__ import annotations

import subprocess
import sys

import peregrine
from conftest import MODEL, different
from corpora import make, run
from peregrine import corpus
from peregrine.corpus import _command, _files, _plan, _show, _worker
from peregrine.corpus._command import option_table


def test_the_command_has_every_option(tmp_path):
    text = run("--help").stdout
    table = list(option_table())
    assert {option.name for option in table} == set(peregrine.Options.__annotations__)
    for option in table:
        assert f"--{option.name.rstrip('_').replace('_', '-')}" in text and option.help
    for word in ("--engine", "--column", "--format", "--threads", "--model", "--dedupe", "exit codes", "SOURCE... OUTPUT"):
        assert word in text
    top = subprocess.run([sys.executable, "-m", "peregrine", "--help"], capture_output=True, text=True)
    assert "peregrine corpus" in top.stdout and "Usage: peregrine" in top.stdout


def test_options_of_the_command_reach_the_translator(translator, tmp_path):
    lines = different(5) + ["Visit {name}."]
    source = make(tmp_path / "in", {"a.txt": "\n".join(lines)})
    make(tmp_path, {"terms.tsv": "dogs\tcachorros\n"})
    more = ["-b", 3, "--carry", "off", "--split", "none", "--glossary", tmp_path / "terms.tsv", "--guards=off", "--normalize", 0.5]
    done = run(source, tmp_path / "out", "-m", MODEL, "--threads", 1, *more)
    assert done.returncode == 0, done.stderr
    options = {"beam": 3, "carry": False, "split": "none", "guards": False, "normalize": 0.5, "glossary": tmp_path / "terms.tsv"}
    assert (tmp_path / "out/a.txt").read_text(encoding="utf-8").splitlines() == translator.translate(lines, **options)
    assert "cachorros" in (tmp_path / "out/a.txt").read_text(encoding="utf-8")


def test_wrong_arguments_are_one_line(tmp_path):
    source = make(tmp_path / "in", {"a.txt": "Good morning!\n"})
    for wrong, what in (
        ((tmp_path / "none", tmp_path / "out"), "none: No such file"),
        ((source, tmp_path / "out", "-m", "/no/model"), "/no/model: No such file"),
        ((source, tmp_path / "out", "--beam", 0), "beam"),
        ((source, tmp_path / "out", "--num-cpus", 2), "--num-cpus: is for --engine ray"),
        ((source, tmp_path / "out", "--engine", "ray", "--threads", 2), "--threads: with --engine ray"),
    ):
        done = run(*wrong)
        assert done.returncode == 2 and what in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert "--carry: expected on or off" in run(source, tmp_path / "out", "--carry", "maybe").stderr


def test_quiet_is_quiet(tmp_path):
    source = make(tmp_path / "in", {"a.txt": "Good morning!\n"})
    done = run(source, tmp_path / "out", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_examples_in_docstrings_run():
    import doctest

    for module in (corpus, _plan, _files, _worker, _command, _show):
        outcome = doctest.testmod(module)
        assert outcome.failed == 0, module.__name__
