"""Threads, futures, coroutines and signals."""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import os
import signal
import subprocess
import sys
import threading
import time

import peregrine
import pytest
from conftest import SENTENCE, TRANSLATION, different


def test_other_threads_run_while_a_translation_is_computed(translator):
    worker = threading.Thread(target=translator.translate, args=(different(2000),))
    worker.start()
    ticks, longest, last = 0, 0.0, time.perf_counter()
    while worker.is_alive():
        time.sleep(0.001)
        now = time.perf_counter()
        ticks, longest, last = ticks + 1, max(longest, now - last), now
    print(f"other threads: {ticks} turns while a translation ran, the longest pause {longest * 1000:.0f} ms")
    assert ticks > 50
    # A call that kept the interpreter lock would leave one gap as long as the call.
    assert longest < 0.5


CALLS = {
    # A text is split and tokenised before its first step, which takes longer than 200 ms for megabytes.
    "str": "t.translate(' '.join(lines[:5000]))",
    "list": "t.translate(lines)",
    "full": "t.translate_full(lines, alignments=True)",
    "iterator": "list(t.translate(iter(lines)))",
    "score": "t.score(lines, lines)",
    "document": "t.translate_document('\\n\\n'.join(lines).encode(), 'md')",
}


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc")
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_call_soon(call):
    # What counts is the processor time from Ctrl-C to the exception: others may have the processor just then.
    program = f"""
import time, peregrine
t = peregrine.Translator(threads=1)
lines = [f"{{i}} dogs play in the snow, and nobody minds the {{i * 7}} cats." for i in range(50000)]
t.translate("Hello.")
print("ready", flush=True)
try:
    {CALLS[call]}
    print("done")
except KeyboardInterrupt:
    print("interrupted", time.time(), time.process_time(), flush=True)
    print(t.translate({SENTENCE!r}) == {TRANSLATION!r}, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    ready = processor_time(process)
    while processor_time(process) < ready + 1.0:
        time.sleep(0.05)
    sent, used = time.time(), processor_time(process)
    process.send_signal(signal.SIGINT)
    told, works = process.stdout.readline().split(), process.stdout.readline()
    process.wait(30)
    assert told[0] == "interrupted" and works == "True\n"
    took, computed = float(told[1]) - sent, float(told[2]) - used
    print(f"Ctrl-C in {call}: {took * 1000:.0f} ms, {computed * 1000:.0f} ms of processor time")
    assert computed < 0.2


def processor_time(process):
    """Seconds of processor time that a process has had."""
    with open(f"/proc/{process.pid}/stat") as stat:
        user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_a_hundred_threads_share_a_translator(translator):
    texts = different(100)
    expected = translator.translate(texts)
    with futures.ThreadPoolExecutor(100) as pool:
        start = time.perf_counter()
        assert list(pool.map(translator.translate, texts)) == expected
        print(f"100 threads, a text each: {time.perf_counter() - start:.2f} s")
        lists = list(pool.map(translator.translate, [texts[:5]] * 50))
    assert lists == [expected[:5]] * 50


def test_futures(translator):
    texts = different(200)
    submitted = [translator.submit(text) for text in texts]
    assert [future.result(60) for future in submitted] == translator.translate(texts)
    called = threading.Event()
    translator.submit(SENTENCE).add_done_callback(lambda future: called.set())
    assert called.wait(10)
    assert translator.submit(SENTENCE, prefix="Um par").result().startswith("Um par")
    with pytest.raises(TypeError, match="expected str"):
        translator.submit(3)


def test_a_future_that_is_cancelled_is_not_computed(translator):
    long = [translator.submit(" ".join(different(2000))) for _ in range(8)]
    assert all(future.cancel() for future in long)
    start = time.perf_counter()
    assert translator.submit(SENTENCE).result() == TRANSLATION
    assert time.perf_counter() - start < 2


def test_futures_of_a_closed_translator_fail():
    translator = peregrine.Translator(threads=1)
    future = translator.submit(" ".join(different(3000)))
    translator.close()
    with pytest.raises(peregrine.Error, match="ended"):
        future.result(10)


def test_coroutines(translator):
    texts = different(20)

    async def all_of_them():
        ticks = 0

        async def count():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        counting = asyncio.ensure_future(count())
        done = await asyncio.gather(*(translator.atranslate(text) for text in texts))
        counting.cancel()
        return done, ticks

    done, ticks = asyncio.run(all_of_them())
    assert done == translator.translate(texts) and ticks > 0

    async def too_late():
        await asyncio.wait_for(translator.atranslate(" ".join(different(3000))), 0.05)

    with pytest.raises((asyncio.TimeoutError, TimeoutError)):
        asyncio.run(too_late())


def test_a_process_ends_whatever_is_under_way():
    program = """
import peregrine
t = peregrine.Translator()
futures = [t.submit("Two dogs play in the snow. " * 500) for _ in range(4)]
iterator = t.translate("Two dogs play in the snow." for _ in range(10**9))
next(iterator)
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_an_iterator_is_for_one_thread_at_a_time(translator):
    inside, go_on = threading.Event(), threading.Event()

    def slow():
        yield SENTENCE
        inside.set()
        go_on.wait(10)

    result = translator.translate(slow())
    first = threading.Thread(target=lambda: list(result))
    first.start()
    assert inside.wait(10)
    with pytest.raises(ValueError, match="another thread"):
        next(result)
    go_on.set()
    first.join()
