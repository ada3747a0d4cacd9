"""Telling people and programs how a run goes."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Union

from ._run import Died, Report
from ._worker import Outcome

#: Seconds between two lines where the last line cannot be replaced.
_PAUSE = 10.0


class Show:
    """Prints what happens to standard error: one line that changes on a terminal, else a line now and then. Failures have their own."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.last = time.monotonic()

    def __call__(self, report: Report, what: Union[Outcome, Died]) -> None:
        """After a partition, or a worker's death."""
        if isinstance(what, Died):
            self._line(f"peregrine: a worker {what.how}; its partition is done again")
        elif what.error is not None:
            self._line(f"peregrine: failed: {what.error}")
        now = time.monotonic()
        if self.terminal:
            sys.stderr.write(f"\r\x1b[K{self.told(report)}")
            sys.stderr.flush()
        elif now - self.last >= _PAUSE:
            self.last = now
            self._line(self.told(report))

    def _line(self, text: str) -> None:
        print(f"\r\x1b[K{text}" if self.terminal else text, file=sys.stderr, flush=True)

    @staticmethod
    def told(report: Report) -> str:
        """How far a run is."""
        told = f"{report.skipped + report.done} of {report.total} partitions, {report.lines:,} lines, {report.rate:,.0f} lines/s"
        if report.failures:
            told += f", {len(report.failures)} failed"
        left = report.seconds_left
        if left is not None and left >= 1:
            told += f", {_duration(left)} left"
        return told

    def end(self, report: Report) -> None:
        """What came of it all."""
        told = f"peregrine: {report.done} partitions done"
        if report.skipped:
            told += f", {report.skipped} were there"
        told += f"; {report.lines:,} lines in {_duration(report.seconds)}, {report.rate:,.0f} lines/s"
        if report.translated < report.lines:
            told += f", {report.translated:,} translated"
        if report.workers:
            told += f"; {max(report.workers.values()) / 1e6:,.0f} MB a worker"
        if report.died:
            told += f"; {report.died} workers died"
        if report.failures:
            told += f"; {len(report.failures)} FAILED"
        self._line(told)


class ShowJson:
    """Prints what happens to standard output, an object a line."""

    def __call__(self, report: Report, what: Union[Outcome, Died]) -> None:
        """After a partition, or a worker's death."""
        if isinstance(what, Died):
            _print({"event": "worker died", "how": what.how})
        else:
            _print({"event": "partition", **what._asdict()})

    def end(self, report: Report) -> None:
        """What came of it all."""
        counts = {"partitions": report.total, "done": report.done, "skipped": report.skipped, "failed": len(report.failures)}
        lines = {"lines": report.lines, "translated": report.translated, "died": report.died}
        speed = {"seconds": round(report.seconds, 3), "rate": round(report.rate, 1)}
        _print({"event": "end", **counts, **lines, **speed, "memory": max(report.workers.values(), default=0)})


def _print(event: dict[str, Any]) -> None:
    print(json.dumps(event, ensure_ascii=False), flush=True)


def _duration(seconds: float) -> str:
    """Seconds as people read them.

    >>> _duration(4.26), _duration(75), _duration(90061)
    ('4.3 s', '1:15', '25:01:01')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


show = Show()
"""Prints progress to standard error: give it to ``run`` as ``tell``."""
