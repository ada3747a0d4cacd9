"""Columns of text: pandas, NumPy, Polars and Arrow. None of them is imported unless the caller has done so."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Mapping, Protocol

from ._peregrine import Engine
from ._progress import bar


class SupportsArray(Protocol):
    """What can be made a NumPy array: Series, arrays, chunked arrays."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


def translate(engine: Engine, column: Any, options: Mapping[str, Any], progress: bool) -> Any:
    """A column of translations of the same kind; NotImplemented if it is no column. What is missing stays missing."""
    if _is("pandas", "Series", column):
        return _pandas(engine, column, options, progress)
    if _is("numpy", "ndarray", column):
        return _numpy(engine, column, options, progress)
    if hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__"):
        return _arrow(engine, column, options, progress)
    return NotImplemented


def _is(module: str, name: str, value: object) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name, ()))


def _some(engine: Engine, texts: list[Any], missing: list[bool], options: Mapping[str, Any], progress: bool) -> list[Any]:
    """Translations of the texts that are not missing; the others as they are."""
    with bar(progress, len(texts)) as tell:
        present = [text for text, gone in zip(texts, missing) if not gone]
        done = iter(engine.translate(present, options, None, tell))
    return [text if gone else next(done) for text, gone in zip(texts, missing)]


def _pandas(engine: Engine, series: Any, options: Mapping[str, Any], progress: bool) -> Any:
    done = _some(engine, series.tolist(), series.isna().tolist(), options, progress)
    # A category's translations are no categories, and numbers that are all missing are no text.
    dtype = series.dtype if str(series.dtype).startswith(("str", "object", "large_string")) else object
    return type(series)(done, index=series.index, name=series.name, dtype=dtype)


def _numpy(engine: Engine, array: Any, options: Mapping[str, Any], progress: bool) -> Any:
    numpy = sys.modules["numpy"]
    if array.dtype.kind not in "UOT":
        raise TypeError(f"text: expected an array of str, not of {array.dtype}")
    texts = array.ravel().tolist()
    done = _some(engine, texts, [text is None for text in texts], options, progress)
    # Strings of fixed width get the width that they need.
    result = numpy.array(done, dtype=str if array.dtype.kind == "U" else array.dtype)
    return result.reshape(array.shape)


def _arrow(engine: Engine, array: Any, options: Mapping[str, Any], progress: bool) -> Any:
    total = len(array) if hasattr(array, "__len__") else 0
    with bar(progress, total) as tell:
        strings = engine.translate_arrow(array, options, tell)
    if _is("polars", "Series", array):
        return sys.modules["polars"].Series(strings).alias(array.name)
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ImportError:
        return strings
    made = pyarrow.array(strings)
    kind = getattr(array, "type", None)
    if isinstance(kind, pyarrow.DataType) and kind != made.type and not pyarrow.types.is_null(kind):
        made = made.cast(kind)
    return pyarrow.chunked_array([made]) if isinstance(array, pyarrow.ChunkedArray) else made
