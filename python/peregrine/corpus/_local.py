"""The local engine: worker processes of this machine."""

from __future__ import annotations

import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Union

from .._translator import Translator
from ._plan import Plan
from ._run import Died, Report, Tell, carry_out
from ._worker import About, Job, Outcome, Partition

#: Threads of a worker at most, where nothing else is said: few enough that the end of a partition, where batches are not full, is short.
_THREADS = 4


def run(
    plan: Plan, *, workers: int | None = None, threads: int | None = None, tell: Tell | None = None, max_failures: int = 100
) -> Report:
    """Carries out a plan on this machine.

    workers are processes, each with a model of its own, and threads those of each worker. By default all physical cores are used,
    with up to four threads a worker; of a GPU one worker. tell is called after each partition (:func:`peregrine.corpus.show` prints
    a line). A run that was stopped or killed is gone on with by calling this again.
    """
    for name, value in (("workers", workers), ("threads", threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: expected a number from 1 on, not {value}")
    return carry_out(plan, Processes(plan.job, workers, threads), tell, max_failures)


class Processes:
    """Worker processes. They talk in lines of JSON."""

    def __init__(self, job: Job, workers: int | None, threads: int | None) -> None:
        self.job, self.workers = job, workers
        device = str(job.settings.get("device", "auto"))
        if workers is None or threads is None:
            # The cores that this process may use, as the engine counts them.
            with Translator(device="cpu") as translator:
                cores = translator.threads
        else:
            cores = workers * threads
        # A GPU has its own default.
        self.threads = threads or (None if device.startswith("cuda") else max(1, min(_THREADS, cores // (workers or 1))))
        self.on_cpu = max(1, cores // (self.threads or cores))
        self.may_have_gpu = device != "cpu"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.ready: set[int] = set()
        self.numbers = itertools.count(1)
        self.selector = selectors.DefaultSelector()

    def size(self, about: About | None) -> int:
        """As many as cores are there for; one where there is a GPU, or may be."""
        if self.workers is not None:
            return self.workers
        on_gpu = self.may_have_gpu if about is None else about.on_gpu
        return 1 if on_gpu else self.on_cpu

    def start(self) -> int:
        """Starts a process and gives it the job."""
        # The package that this process has imported, wherever that is.
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-c", "from peregrine.corpus._worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        number = next(self.numbers)
        self.processes[number] = process
        assert process.stdout is not None
        self.selector.register(process.stdout, selectors.EVENT_READ, number)
        self._send(number, json.dumps(self.threads), self.job.to_json())
        return number

    def give(self, worker: int, partition: Partition) -> None:
        """Sends a partition."""
        self._send(worker, json.dumps(partition))

    def _send(self, worker: int, *lines: str) -> None:
        pipe = self.processes[worker].stdin
        assert pipe is not None
        try:
            pipe.write("".join(f"{line}\n" for line in lines).encode())
            pipe.flush()
        except BrokenPipeError:
            pass  # That it is dead is seen at the other pipe.

    def wait(self) -> Iterator[tuple[int, Union[About, Outcome, Died]]]:
        """The lines that have come."""
        for key, _ in self.selector.select(1.0):
            number: int = key.data
            process = self.processes[number]
            assert process.stdout is not None
            line = process.stdout.readline()
            if line.endswith(b"\n"):
                fields = json.loads(line)
                first = number not in self.ready
                self.ready.add(number)
                yield number, About(*fields) if first else Outcome(*fields)
            else:
                self._forget(number)
                yield number, Died(_how(process.wait()))

    def _forget(self, number: int) -> None:
        process = self.processes.pop(number)
        assert process.stdout is not None and process.stdin is not None
        self.selector.unregister(process.stdout)
        process.stdout.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass

    def close(self) -> None:
        """Kills all processes: whatever they have not renamed yet is not there."""
        processes = list(self.processes.values())
        for process in processes:
            process.kill()
        for number in list(self.processes):
            self._forget(number)
        for process in processes:
            process.wait()
        self.selector.close()


def _how(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
