"""A worker: a model that translates one partition after the other.

The same class works in a process of the local engine, whose :func:`main` is here, and in an actor of Ray.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import json
import os
import queue
import resource
import signal
import sys
import threading
import time
import unicodedata
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from .._peregrine import Error
from .._translator import Translator
from ._files import Row, Shape, open_source, open_target

#: Different lines that are remembered when repeated ones are translated once.
_REMEMBERED = 1_000_000


class Partition(NamedTuple):
    """A file of the input and the one that is made of it."""

    name: str
    """The output's path in its folder, with slashes."""
    source: str
    target: str
    size: int
    """Bytes of the input."""
    modified: int
    """When the input was written, in seconds."""


class Job(NamedTuple):
    """What every worker must know. It travels as JSON, or pickled."""

    shape: Shape
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    dedupe: bool

    def to_json(self) -> str:
        """The job in a line."""
        return json.dumps(self)

    @classmethod
    def from_json(cls, line: str) -> Job:
        """A job from its line."""
        shape, settings, options, dedupe = json.loads(line)
        return cls(Shape(*shape), settings, options, dedupe)


class About(NamedTuple):
    """What a worker says when its model is open, or cannot be opened."""

    error: str | None
    computed: str
    """Precision and kind of device, by which words may differ."""
    on_gpu: bool
    threads: int
    process: int


class Outcome(NamedTuple):
    """What became of a partition."""

    name: str
    error: str | None
    """What was wrong, with file and place; None if the partition is done."""
    lines: int
    translated: int
    """Lines that were not missing and not like one before."""
    seconds: float
    memory: int
    """The most bytes of memory that the worker has had."""
    process: int
    """The worker's process, on its machine."""


class Worker:
    """A model and what it is to do with partitions."""

    def __init__(self, job: Job, threads: int | None) -> None:
        self.job = job
        self.error: str | None = None
        try:
            self.translator = Translator(threads=threads, **_tuples(job.settings))
            # Options that are wrong for every text are told before any.
            self.translator.translate("", **job.options)
        except (Error, TypeError, ValueError) as error:
            self.error = str(error)

    def about(self) -> About:
        """What must be known before it is given work."""
        if self.error is not None:
            return About(self.error, "", False, 0, os.getpid())
        on_gpu = self.translator._running().on_gpu
        computed = f"{self.translator.precision} on a {'GPU' if on_gpu else 'CPU'}"
        return About(None, computed, on_gpu, self.translator.threads, os.getpid())

    def translate(self, partition: Partition) -> Outcome:
        """Translates a partition. Whatever is wrong with it is in the outcome."""
        begin, counts = time.perf_counter(), Counts()
        error = None
        try:
            translate_partition(self.translator, self.job, Path(partition.source), Path(partition.target), counts)
        except Error as problem:
            error = str(problem)
        except Exception as problem:
            # Libraries have errors of many kinds, and none of them may cost another partition.
            error = " ".join(f"{partition.source}: {type(problem).__name__}: {problem}".split())
        seconds = time.perf_counter() - begin
        return Outcome(partition.name, error, counts.lines, counts.translated, seconds, _peak_memory(), os.getpid())


def _peak_memory() -> int:
    """The most bytes of memory that this process has had."""
    try:
        # What getrusage says begins with the memory of the process that started this one.
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@functools.lru_cache(maxsize=1)
def opened(model: str | None = None, threads: int | None = None, device: str = "auto", precision: str = "auto") -> Translator:
    """A translator that is opened once in a process and found again by whoever asks for the same: for tasks of Spark, say.

    >>> from peregrine import corpus
    >>> corpus.opened(threads=1) is corpus.opened(threads=1)
    True
    """
    return Translator(model, threads=threads, device=device, precision=precision)


class Counts:
    """Rows of a partition, and those that had to be translated."""

    lines = 0
    translated = 0


def translate_partition(translator: Translator, job: Job, source: Path, target: Path, counts: Counts) -> None:
    """Translates a file to another, in bounded memory."""
    opened = open_source(source, job.shape)
    waiting: collections.deque[_Waiting] = collections.deque()
    answers = translator.translate(_texts(opened.rows, waiting, job.dedupe), **job.options)
    # Translations of lines that may come again, by what is the same in all of them.
    known: dict[bytes, str] = {}
    with open_target(target, job.shape, opened, source) as write:
        for answer in _placed(answers, translator, job, source, waiting):
            row, key, own, forget = waiting.popleft()
            if forget:
                known.clear()
            if own and key is not None:
                known[key] = answer
            elif key is not None:
                answer = known[key]
            write(row, None if row.text is None else answer)
            counts.lines += 1
            counts.translated += own
        if waiting:
            raise Error(f"{source}: {len(waiting)} rows have no translation")


class _Waiting(NamedTuple):
    """A row whose translation has not come yet."""

    row: Row
    key: bytes | None
    own: bool
    """Whether it is translated itself. In place of others, the translator is given an empty line."""
    forget: bool
    """Whether lines before it are not remembered any more."""


def _texts(rows: Iterator[Row], waiting: collections.deque[_Waiting], dedupe: bool) -> Iterator[str]:
    """A text for each row; what is to be done with its translation goes to those that wait."""
    seen: set[bytes] = set()
    for row in rows:
        key = _key(row.text) if dedupe and row.text is not None else None
        own = row.text is not None and (key is None or key not in seen)
        forget = own and len(seen) == _REMEMBERED
        if forget:
            seen.clear()
        if key is not None:
            seen.add(key)
        waiting.append(_Waiting(row, key, own, forget))
        yield row.text if own and row.text is not None else ""


def _key(text: str) -> bytes:
    """What is equal for lines that differ in blanks or in how their characters are composed only."""
    folded = " ".join(unicodedata.normalize("NFC", text).split())
    return hashlib.blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _placed(
    answers: Iterator[str], translator: Translator, job: Job, source: Path, waiting: Sequence[_Waiting]
) -> Iterator[str]:
    """The same answers. A text that cannot be translated is found again, so that its place can be told."""
    try:
        yield from answers
    except Error as error:
        place = ""
        for row in [one.row for one in waiting if one.own]:
            try:
                translator.translate(row.text or "", **job.options)
            except Error as found:
                error, place = found, f"row {row.number}: "
                break
        # What is wrong with the file itself has its place already.
        raise Error(f"{source}, {place}{error}" if place else str(error)) from None


def _tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as Translator wants them: JSON has no tuples."""
    vocab = settings.get("vocab")
    return {**settings, "vocab": None if vocab is None else tuple(vocab)}


def main() -> None:
    """A process of the local engine. Its standard input has a job, and then a partition a line; an outcome a line goes out.

    It ends when its input does, in the middle of a partition too: then nobody is left who would want it.
    """
    # Ctrl-C is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever is printed must not get between the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    threads = json.loads(lines.get())
    worker = Worker(Job.from_json(lines.get()), threads)
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(worker.about()), file=out, flush=True)
        while True:
            outcome = worker.translate(Partition(*json.loads(lines.get())))
            print(json.dumps(outcome), file=out, flush=True)
