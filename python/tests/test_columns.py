"""Columns of text: NumPy, pandas, Arrow, Polars, as far as they are installed."""

from __future__ import annotations

import pytest
from conftest import SENTENCE, TRANSLATION, different


def test_numpy(translator):
    numpy = pytest.importorskip("numpy")
    texts = different(6)
    expected = translator.translate(texts)
    for dtype in (str, object):
        result = translator.translate(numpy.array(texts, dtype=dtype).reshape(2, 3))
        assert result.shape == (2, 3) and result.dtype.kind == ("U" if dtype is str else "O")
        assert result.ravel().tolist() == expected
    holes = translator.translate(numpy.array([SENTENCE, None], dtype=object))
    assert holes.tolist() == [TRANSLATION, None]
    with pytest.raises(TypeError, match="expected an array of str"):
        translator.translate(numpy.array([1, 2]))
    with pytest.raises(TypeError, match="text 1: expected str, not int"):
        translator.translate(numpy.array(["a", 2], dtype=object))


def test_pandas(translator):
    pandas = pytest.importorskip("pandas")
    for dtype in (object, "string", None):
        series = pandas.Series([SENTENCE, None, "Good morning!"], index=[7, 3, 5], name="text", dtype=dtype)
        result = translator.translate(series, beam=1)
        assert isinstance(result, pandas.Series) and result.name == "text" and result.dtype == series.dtype
        assert result.index.tolist() == [7, 3, 5] and result.isna().tolist() == [False, True, False]
        assert [result[7], result[5]] == [TRANSLATION, "Bom dia!"]
    frame = pandas.DataFrame({"en": different(100)})
    frame["pt"] = translator.translate(frame["en"])
    assert frame["pt"].tolist() == translator.translate(frame["en"].tolist())
    categories = pandas.Series([SENTENCE, SENTENCE], dtype="category")
    assert translator.translate(categories).tolist() == [TRANSLATION] * 2


def test_arrow(translator):
    pyarrow = pytest.importorskip("pyarrow")
    long = "Two dogs play in the snow, and nobody minds the three cats behind the house."
    texts = [SENTENCE, None, "", "Hi.", long, "🦀 olá"]
    expected = [None if text is None else translator.translate(text) for text in texts]
    kinds = [pyarrow.string(), pyarrow.large_string()]
    if hasattr(pyarrow, "string_view"):
        kinds.append(pyarrow.string_view())
    for kind in kinds:
        array = pyarrow.array(texts, kind)
        result = translator.translate(array)
        assert isinstance(result, pyarrow.Array) and result.type == kind
        result.validate(full=True)
        assert result.to_pylist() == expected
        # A slice begins within its buffers.
        assert translator.translate(array.slice(1, 4)).to_pylist() == expected[1:5]
        chunked = pyarrow.chunked_array([array, array.slice(0, 0), array.slice(3)])
        result = translator.translate(chunked)
        assert isinstance(result, pyarrow.ChunkedArray)
        assert result.to_pylist() == expected + expected[3:]
    assert translator.translate(pyarrow.array([], pyarrow.string())).to_pylist() == []
    assert translator.translate(pyarrow.array([None, None])).to_pylist() == [None, None]
    with pytest.raises(TypeError, match='format "l"'):
        translator.translate(pyarrow.array([1, 2]))
    with pytest.raises(TypeError, match="dictionary"):
        translator.translate(pyarrow.array(["a"]).dictionary_encode())


def test_arrow_memory_outlives_what_made_it(translator):
    pyarrow = pytest.importorskip("pyarrow")
    import gc

    results = [translator.translate(pyarrow.array(different(70))) for _ in range(5)]
    gc.collect()
    expected = translator.translate(different(70))
    assert all(result.to_pylist() == expected for result in results)


def test_polars(translator):
    polars = pytest.importorskip("polars")
    series = polars.Series("text", [SENTENCE, None, "Good morning!"])
    result = translator.translate(series)
    assert isinstance(result, polars.Series) and result.name == "text"
    assert result.to_list() == [TRANSLATION, None, "Bom dia!"]
