"""Progress bars, where ``tqdm`` is installed."""

from __future__ import annotations

import contextlib
import importlib
import operator
from typing import Any, Callable, Iterator


def _tqdm(wanted: bool, total: int | None, **more: Any) -> Any:
    """A bar; None if none is wanted or can be shown."""
    if not wanted:
        return None
    try:
        tqdm = importlib.import_module("tqdm.auto")
    except ImportError:
        return None
    return tqdm.tqdm(total=total, unit=" texts", **more)


@contextlib.contextmanager
def bar(wanted: bool, total: int) -> Iterator[Callable[[int], object] | None]:
    """A bar for so many texts: what is to be called with the number of those that are done."""
    shown = _tqdm(wanted, total)
    if shown is None:
        yield None
        return
    with shown:
        yield lambda done: shown.update(done - shown.n)


def bar_over(wanted: bool, source: object, translations: Iterator[str]) -> Iterator[str]:
    """The same translations under a bar."""
    shown = _tqdm(wanted, operator.length_hint(source) or None, iterable=translations)
    return translations if shown is None else iter(shown)
