"""Processes: fork, spawn, pickling, memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings

import peregrine
import pytest
from conftest import MODEL, SENTENCE, TRANSLATION, different

warnings.simplefilter("ignore", DeprecationWarning)


def translate_in_child(translator, queue):
    queue.put((translator.translate(SENTENCE), translator.submit(SENTENCE).result(30), os.getpid()))


def run(context, translator):
    queue = context.SimpleQueue()
    child = context.Process(target=translate_in_child, args=(translator, queue))
    child.start()
    child.join(60)
    assert child.exitcode == 0, context.get_start_method()
    assert queue.get() == (TRANSLATION, TRANSLATION, child.pid)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_translator_works_in_a_forked_process():
    context = multiprocessing.get_context("fork")
    translator = peregrine.Translator(device="cpu", threads=2)
    run(context, translator)
    translator.translate(different(200))
    translator.submit(SENTENCE).result()
    run(context, translator)
    assert translator.translate(SENTENCE) == TRANSLATION


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_others_translate():
    context = multiprocessing.get_context("fork")
    translator = peregrine.Translator(device="cpu", threads=2)
    for _ in range(5):
        busy = threading.Thread(target=translator.translate, args=(different(1000),))
        busy.start()
        run(context, translator)
        busy.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_an_iterator_of_the_parent_says_so_in_a_child(translator):
    iterator = translator.translate(iter([SENTENCE, SENTENCE]))
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except peregrine.Error as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert next(iterator) == TRANSLATION


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_gpu_says_so_in_a_forked_process():
    class OnGpu:
        on_gpu = True

    translator = peregrine.Translator(device="cpu", threads=1)
    translator._engine = OnGpu()
    child = os.fork()
    if child == 0:
        try:
            translator.translate(SENTENCE)
        except peregrine.Error as error:
            os._exit(0 if "start it by spawn" in str(error) and "\n" not in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="no forkserver")
def test_a_translator_works_in_a_process_of_a_fork_server():
    run(multiprocessing.get_context("forkserver"), peregrine.Translator(device="cpu", threads=1))


def test_a_translator_works_in_a_spawned_process(tmp_path):
    program = tmp_path / "spawn.py"
    program.write_text(
        f"""
import multiprocessing, peregrine
def work(job):
    translator, text = job
    return translator.translate(text)
if __name__ == "__main__":
    translator = peregrine.Translator({str(MODEL)!r}, threads=1)
    translator.translate("Hello.")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(work, [(translator, {SENTENCE!r})] * 4) == [{TRANSLATION!r}] * 4
""",
        encoding="utf-8",
    )
    subprocess.run([sys.executable, str(program)], check=True, timeout=120)


def test_pickles_hold_paths_and_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(MODEL.parent)
    translator = peregrine.Translator(MODEL.name, threads=1, precision="float32")
    pickled = pickle.dumps(translator)
    assert len(pickled) < 2000
    monkeypatch.chdir(tmp_path)
    copy = pickle.loads(pickled)
    assert copy.model == [str(MODEL)] and copy.precision == "float32" and copy.threads == 1
    assert copy.translate(SENTENCE) == TRANSLATION


def resident() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_small_calls_leave_nothing_behind(translator):
    def calls(count):
        for number in range(count):
            if number % 4 == 0:
                translator.translate_full("Hi.", alignments=True, scores=True)
            elif number % 4 == 1:
                list(translator.translate(iter(["Hi."])))
            elif number % 4 == 2:
                translator.submit("Hi.").result()
            else:
                translator.translate("Hi.")
        gc.collect()

    calls(1000)
    before = resident()
    calls(10_000)
    grown = resident() - before
    print(f"10,000 small calls: grown by {grown:.1f} MB")
    assert grown < 8


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_models_are_freed():
    def cycle():
        translator = peregrine.Translator(threads=1)
        translator.translate("Hi.")
        del translator
        gc.collect()

    for _ in range(3):
        cycle()
    before = resident()
    for _ in range(20):
        cycle()
    grown = resident() - before
    print(f"20 models opened and freed: grown by {grown:.1f} MB")
    assert grown < 30
