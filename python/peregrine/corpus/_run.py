"""Carrying out a plan: partitions go to workers, and back into the queue when a worker dies.

An engine is a :class:`Pool` of workers. It starts them, gives them partitions and says what has happened; everything else is here.
"""

from __future__ import annotations

import collections
import os
import time
from typing import Callable, Iterable, NamedTuple, Protocol, Union

from .._peregrine import Error
from ._plan import Folder, Plan
from ._worker import About, Outcome, Partition

#: How often a partition is tried, and how many workers may die one after the other before one is ready.
ATTEMPTS = 3


class Died(NamedTuple):
    """A worker that is no more."""

    how: str


class Pool(Protocol):
    """Workers, which are numbers to those who use them."""

    def size(self, about: About | None) -> int:
        """How many workers are wanted, by what the first one says; None before it has said anything."""
        ...

    def start(self) -> int:
        """Starts a worker. What it is comes as the first thing that happens to it."""
        ...

    def give(self, worker: int, partition: Partition) -> None:
        """Gives a partition to a worker that has none."""
        ...

    def wait(self) -> Iterable[tuple[int, Union[About, Outcome, Died]]]:
        """What has happened, after at most a second."""
        ...

    def close(self) -> None:
        """Ends all workers at once. What they were writing is not there."""
        ...


class Report:
    """What has come of a plan so far."""

    def __init__(self, total: int, skipped: int, size: int) -> None:
        self.total = total
        """Partitions of the plan."""
        self.skipped = skipped
        """Partitions that were there before."""
        self.done = 0
        """Partitions that this run has written."""
        self.failures: list[Outcome] = []
        """Partitions that could not be written, with what was wrong."""
        self.lines = 0
        """Lines of the partitions that this run has written."""
        self.translated = 0
        """Lines among them that were translated: not missing, and with ``dedupe`` not like one before."""
        self.died = 0
        """Workers that died."""
        self.workers: dict[int, int] = {}
        """The most bytes of memory that each worker has had, by its number."""
        self.seconds = 0.0
        """From the first partition given to a worker to the last one that came back."""
        self._size, self._size_done = size, 0

    @property
    def rate(self) -> float:
        """Lines a second."""
        return self.lines / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes if bytes are all alike; None before anything is known."""
        return self.seconds * (self._size / self._size_done - 1) if self._size_done else None

    def add(self, worker: int | None, partition: Partition, outcome: Outcome, seconds: float) -> None:
        """Counts a partition."""
        self.seconds = seconds
        self._size_done += partition.size
        if worker is not None:
            self.workers[worker] = outcome.memory
        if outcome.error is not None:
            self.failures.append(outcome)
            return
        self.done += 1
        self.lines += outcome.lines
        self.translated += outcome.translated

    def __repr__(self) -> str:
        told = f"{self.done} partitions done, {self.skipped} there before, {len(self.failures)} failed"
        return f"<Report: {told}; {self.lines} lines, {self.rate:.0f} lines/s>"


Tell = Callable[[Report, Union[Outcome, Died]], object]


def carry_out(plan: Plan, pool: Pool, tell: Tell | None = None, max_failures: int = 100) -> Report:
    """Carries out a plan with the workers of a pool. A run that ends early, by whatever, is gone on with by another one.

    tell is called after each partition, and when a worker has died. After max_failures failed partitions the run ends.
    """
    folder = Folder(plan)
    try:
        folder.clean()
        # The largest first, so that none of them is alone at the end.
        todo = [partition for partition in plan.partitions if not os.path.exists(partition.target)]
        todo.sort(key=lambda partition: -partition.size)
        total = len(plan.partitions)
        report = Report(total, total - len(todo), sum(partition.size for partition in todo))
        if todo:
            try:
                _Run(folder, pool, report, tell or (lambda *_: None), max_failures, todo).go_on()
            finally:
                pool.close()
                folder.clean()
        return report
    finally:
        folder.close()


class _Run:
    """A run under way."""

    def __init__(
        self, folder: Folder, pool: Pool, report: Report, tell: Tell, max_failures: int, todo: list[Partition]
    ) -> None:
        self.folder, self.pool, self.report, self.tell, self.max_failures = folder, pool, report, tell, max_failures
        self.todo = collections.deque(todo)
        self.attempts: collections.Counter[str] = collections.Counter()
        self.starting: set[int] = set()
        self.idle: list[int] = []
        self.busy: dict[int, Partition] = {}
        self.begin: float | None = None
        self.died_early = 0
        self.recorded = False
        self.wanted = pool.size(None)

    def go_on(self) -> None:
        """Until all partitions are done or have failed."""
        while (self.todo or self.busy) and len(self.report.failures) < self.max_failures:
            # No more workers than there is work for.
            at_work = len(self.starting) + len(self.idle) + len(self.busy)
            for _ in range(min(self.wanted, len(self.todo) + len(self.busy)) - at_work):
                self.starting.add(self.pool.start())
            while self.idle and self.todo:
                worker, partition = self.idle.pop(), self.todo.popleft()
                self.begin = self.begin or time.perf_counter()
                self.busy[worker] = partition
                self.pool.give(worker, partition)
            for worker, what in self.pool.wait():
                if isinstance(what, About):
                    self._ready(worker, what)
                elif isinstance(what, Outcome):
                    self._done(worker, self.busy.pop(worker), what)
                    self.idle.append(worker)
                else:
                    self._died(worker, what)

    def _ready(self, worker: int, about: About) -> None:
        if about.error is not None:
            raise Error(about.error)
        self.folder.agree(about.computed)
        if not self.recorded:
            self.folder.write()
            self.recorded = True
        self.wanted = self.pool.size(about)
        self.died_early = 0
        self.starting.discard(worker)
        self.idle.append(worker)

    def _done(self, worker: int | None, partition: Partition, outcome: Outcome) -> None:
        self.report.add(worker, partition, outcome, time.perf_counter() - (self.begin or 0.0))
        self.tell(self.report, outcome)

    def _died(self, worker: int, died: Died) -> None:
        self.report.died += 1
        self.tell(self.report, died)
        if worker in self.starting:
            self.starting.discard(worker)
            self.died_early += 1
            if self.died_early == ATTEMPTS:
                raise Error(f"a worker {died.how} before its model was open, {ATTEMPTS} times")
        elif worker in self.idle:
            self.idle.remove(worker)
        else:
            partition = self.busy.pop(worker)
            self.attempts[partition.name] += 1
            if self.attempts[partition.name] < ATTEMPTS:
                self.todo.appendleft(partition)
            else:
                error = f"{partition.source}: a worker {died.how}, {ATTEMPTS} times"
                self._done(None, partition, Outcome(partition.name, error, 0, 0, 0.0, 0, 0))
