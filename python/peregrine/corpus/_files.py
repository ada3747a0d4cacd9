"""Files of a corpus: text, JSON lines and Parquet, read row by row and written whole or not at all.

======== ======================= =========================================== ====================================
format   endings                 a row                                       columns
======== ======================= =========================================== ====================================
text     all that are not below  a line; only a line feed ends one           ``line`` (counted from 1), ``text``
jsonl    .jsonl .ndjson .json    a line with an object; blank ones are none  the keys of each object
parquet  .parquet                a row                                       those of the file
======== ======================= =========================================== ====================================

Text and JSON lines may be compressed: ``.gz`` behind the ending. Between Parquet and Parquet columns stay in Arrow's memory, so that no
type and no bit of theirs changes; pyarrow is imported when the first Parquet file is.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import gzip
import importlib
import json
import os
import socket
import zlib
from pathlib import Path
from typing import IO, Any, Callable, Iterable, Iterator, NamedTuple, Sequence, cast

from .._peregrine import Error

FORMATS = ("text", "jsonl", "parquet")
_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_UNKNOWN_COMPRESSION = (".bz2", ".xz", ".zst", ".lz4", ".zip", ".7z", ".tar", ".tgz")

#: Rows of a Parquet file that are read at a time, and rows and bytes that become a row group.
_BATCH_ROWS = 4096
_GROUP_ROWS, _GROUP_BYTES = 65_536, 64 << 20
#: Rows of other files that become a row group.
_LIST_ROWS = 16_384


class Row(NamedTuple):
    """A row of a file."""

    number: int
    """Its line or row, counted from 1."""
    text: str | None
    """What is to be translated; None where it is missing."""
    columns: Any
    """A dictionary. From Parquet to Parquet, the record batch that the row is in."""


class Source(NamedTuple):
    """An open file."""

    rows: Iterator[Row]
    schema: Any
    """The columns to keep, where Arrow knows them before the first row."""


class Shape(NamedTuple):
    """How files are read and written."""

    column: str
    into: str
    keep: Sequence[str] | None
    """The columns that are kept; None for all."""
    read_as: str | None
    """The format of all files; None to go by their endings."""
    write_as: str | None
    """The format of what is written; None for that of each file."""

    def formats(self, path: Path) -> tuple[str, str]:
        """The format of a file, and of what is made of it."""
        source = self.read_as or format_of(path)
        return source, self.write_as or source

    def target_name(self, name: Path) -> Path:
        """The name of what is made of a file: its own, or one with the ending of another format."""
        source, target = self.formats(name)
        if source == target:
            return name
        stem = name.with_suffix("") if name.suffix == ".gz" else name
        stem = stem.with_suffix("") if stem.suffix in (".txt", ".text", *_ENDINGS) else stem
        return stem.with_name(f"{stem.name}.{target}")


def format_of(path: Path) -> str:
    """The format that a file's ending tells.

    >>> from pathlib import Path
    >>> [format_of(Path(name)) for name in ("part-0.parquet", "a.jsonl.gz", "news.en")]
    ['parquet', 'jsonl', 'text']
    """
    if path.suffix in _UNKNOWN_COMPRESSION:
        raise Error(f"{path}: cannot be read compressed like that: expected .gz or no compression")
    return _ENDINGS.get(path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix, "text")


def open_source(path: Path, shape: Shape) -> Source:
    """Opens a file for its rows. They raise :class:`peregrine.Error` with file and place where they cannot be read."""
    source, target = shape.formats(path)
    if source == "parquet":
        return _parquet_source(path, shape, whole_batches=target == "parquet")
    if source == "jsonl":
        return Source(_json_rows(path, shape), None)
    return Source(_text_rows(path), _text_schema(shape) if target == "parquet" else None)


@contextlib.contextmanager
def open_target(path: Path, shape: Shape, source: Source, source_path: Path) -> Iterator[Callable[[Row, str | None], None]]:
    """What is to be called with each row and its translation. The file is there when this ends, or not at all if it raises."""
    from_format, to_format = shape.formats(source_path)
    with whole(path) as file:
        if to_format == "parquet":
            kind = _BatchGroups if from_format == "parquet" else _RowGroups
            groups = kind(file, shape, source.schema, source_path)
            yield groups.add
            groups.close()
        elif path.suffix == ".gz":
            # Without name and time of its making, so that the same rows give the same bytes.
            with gzip.GzipFile("", "wb", 6, fileobj=file, mtime=0) as packed:
                yield _lines(cast("IO[bytes]", packed), shape, to_format, source_path)
        else:
            yield _lines(file, shape, to_format, source_path)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when all of it is on the disk, and never before."""
    beside = path.with_name(partial_name(path.name, os.getpid()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise Error(f"{path}: {error.strerror or error}") from None
        raise


def partial_name(name: str, process: int) -> str:
    """The name under which a process of this machine writes a file that is not whole yet."""
    return f".{name}.{socket.gethostname()}-{process}.part"


def missing_column(path: Path, place: str, column: str, there: Iterable[str]) -> Error:
    """That a column is not there."""
    return Error(f"{path}{place}: there is no column {column!r}, only {', '.join(map(repr, there)) or 'none'}")


# Text and JSON lines.


def _binary_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            for number, line in enumerate(cast("IO[bytes]", file), 1):
                yield number, line
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or error
        raise Error(f"{path}{f', after line {number}' if number else ''}: {problem}") from None


def _text_rows(path: Path) -> Iterator[Row]:
    for number, line in _binary_lines(path):
        line = line[:-2] if line.endswith(b"\r\n") else line.rstrip(b"\n")
        text = line.decode("utf-8", "replace")
        yield Row(number, text, {"line": number, "text": text})


def _json_rows(path: Path, shape: Shape) -> Iterator[Row]:
    for number, line in _binary_lines(path):
        if not line.strip():
            continue
        place = f", line {number}"
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise Error(f"{path}{place}: not UTF-8 at byte {error.start}") from None
        except ValueError as error:
            raise Error(f"{path}{place}: no JSON: {error}") from None
        if not isinstance(row, dict):
            raise Error(f"{path}{place}: expected an object, not {type(row).__name__}")
        if shape.column not in row:
            raise missing_column(path, place, shape.column, row)
        if shape.into in row:
            raise _taken(path, place, shape.into)
        yield Row(number, _text(row[shape.column], path, place, shape.column), row)


def _text(value: object, path: Path, place: str, column: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise Error(f"{path}{place}: expected text in column {column!r}, not {type(value).__name__}")


def _taken(path: Path, place: str, into: str) -> Error:
    return Error(f"{path}{place}: there is a column {into!r} already: choose another name for translations")


def _lines(file: IO[bytes], shape: Shape, format: str, source: Path) -> Callable[[Row, str | None], None]:
    if format == "text":
        return lambda row, translation: _ignored(file.write(f"{translation}\n".encode("utf-8", "replace")))

    def add(row: Row, translation: str | None) -> None:
        columns = {**_kept(row.columns, shape), shape.into: translation}
        try:
            line = json.dumps(columns, ensure_ascii=False, default=_plain).encode()
        except UnicodeEncodeError:
            # Halves of surrogate pairs, which JSON can spell and UTF-8 cannot.
            line = json.dumps(columns, default=_plain).encode()
        except TypeError as error:
            raise Error(f"{source}, row {row.number}: cannot be written as JSON: {error}") from None
        file.write(line + b"\n")

    return add


def _ignored(_: object) -> None:
    return None


def _kept(columns: dict[str, Any], shape: Shape) -> dict[str, Any]:
    if shape.keep is None:
        return columns
    return {name: columns[name] for name in shape.keep if name in columns}


def _plain(value: object) -> object:
    """What JSON has no type for and people write as text."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"a column has {type(value).__name__}")


# Parquet.


def _arrow() -> tuple[Any, Any]:
    """pyarrow and its module for Parquet."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise Error("Parquet files need the package pyarrow: pip install pyarrow") from None


def _parquet_source(path: Path, shape: Shape, whole_batches: bool) -> Source:
    arrow, parquet = _arrow()
    try:
        file = parquet.ParquetFile(path)
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise _no_parquet(path, "", error) from None
    names: list[str] = file.schema_arrow.names
    kept = names if shape.keep is None else list(shape.keep)
    for name in (shape.column, *kept):
        if name not in names:
            raise missing_column(path, "", name, names)
    if shape.into in kept:
        raise _taken(path, "", shape.into)
    schema = arrow.schema([file.schema_arrow.field(name) for name in kept], file.schema_arrow.metadata)
    columns = list(dict.fromkeys([*kept, shape.column]))

    def rows() -> Iterator[Row]:
        number = 0
        try:
            with file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                    texts = batch.column(batch.schema.get_field_index(shape.column)).to_pylist()
                    kept_batch = arrow.RecordBatch.from_arrays([batch.column(name) for name in kept], schema=schema)
                    all_columns = [kept_batch] * len(texts) if whole_batches else kept_batch.to_pylist()
                    for value, columns_of_row in zip(texts, all_columns):
                        number += 1
                        text = _text(value, path, f", row {number}", shape.column)
                        yield Row(number, text, columns_of_row)
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise _no_parquet(path, f", after row {number}", error) from None

    return Source(rows(), schema)


def _no_parquet(path: Path, place: str, error: Exception) -> Error:
    problem = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
    return Error(f"{path}{place}: {problem}")


def _text_schema(shape: Shape) -> Any:
    arrow, _ = _arrow()
    fields = {"line": arrow.int64(), "text": arrow.string()}
    return arrow.schema([(name, kind) for name, kind in fields.items() if shape.keep is None or name in shape.keep])


class _Groups:
    """A Parquet file that is written a row group at a time. What is a row group depends on nothing but the rows."""

    def __init__(self, file: IO[bytes], shape: Shape, schema: Any, source: Path) -> None:
        self.arrow, self.parquet = _arrow()
        self.file, self.shape, self.source = file, shape, source
        self.schema: Any = None if schema is None else schema.append(self.arrow.field(shape.into, self.arrow.string()))
        self.writer: Any = None

    def write(self, table: Any) -> None:
        if self.writer is None:
            self.writer = self.parquet.ParquetWriter(self.file, self.schema)
        self.writer.write_table(table)

    def finish(self) -> None:
        if self.writer is None:
            self.write(self.schema.empty_table())
        writer: Any = self.writer
        writer.close()


class _BatchGroups(_Groups):
    """From Parquet: the record batches that were read, and a column more."""

    def __init__(self, file: IO[bytes], shape: Shape, schema: Any, source: Path) -> None:
        super().__init__(file, shape, schema, source)
        self.translations: list[str | None] = []
        self.batches: list[Any] = []
        self.rows = self.bytes = 0

    def add(self, row: Row, translation: str | None) -> None:
        self.translations.append(translation)
        if len(self.translations) < row.columns.num_rows:
            return
        new = self.arrow.array(self.translations, self.arrow.string())
        batch = self.arrow.RecordBatch.from_arrays([*row.columns.columns, new], schema=self.schema)
        self.translations = []
        self.batches.append(batch)
        self.rows, self.bytes = self.rows + batch.num_rows, self.bytes + batch.nbytes
        if self.rows >= _GROUP_ROWS or self.bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        self.write(self.arrow.Table.from_batches(self.batches, self.schema))
        self.batches, self.rows, self.bytes = [], 0, 0

    def close(self) -> None:
        if self.batches:
            self._flush()
        self.finish()


class _RowGroups(_Groups):
    """From rows. The types are those of the first row group where nothing else tells them."""

    def __init__(self, file: IO[bytes], shape: Shape, schema: Any, source: Path) -> None:
        super().__init__(file, shape, schema, source)
        self.rows: list[dict[str, Any]] = []
        self.first = 0

    def add(self, row: Row, translation: str | None) -> None:
        if not self.rows:
            self.first = row.number
        self.rows.append({**_kept(row.columns, self.shape), self.shape.into: translation})
        if len(self.rows) == _LIST_ROWS:
            self._flush()

    def _flush(self) -> None:
        try:
            if self.schema is None:
                self.schema = self._inferred()
            new = {name for row in self.rows for name in row}.difference(self.schema.names)
            if new:
                raise ValueError(f"{min(new)!r} is new")
            self.write(self.arrow.Table.from_pylist(self.rows, self.schema))
        except (TypeError, ValueError, self.arrow.ArrowException) as error:
            problem = str(error).splitlines()[0]
            place = f"{self.source}, line {self.first} and after"
            raise Error(f"{place}: the columns differ from those before ({problem}): keep fewer columns") from None
        self.rows = []

    def _inferred(self) -> Any:
        names = list(dict.fromkeys(name for row in self.rows for name in row if name != self.shape.into))
        columns = [self.arrow.array([row.get(name) for row in self.rows]) for name in names]
        fields = [self.arrow.field(name, column.type) for name, column in zip(names, columns)]
        return self.arrow.schema([*fields, self.arrow.field(self.shape.into, self.arrow.string())])

    def close(self) -> None:
        if self.rows:
            self._flush()
        elif self.schema is None:
            self.schema = self.arrow.schema([self.arrow.field(self.shape.into, self.arrow.string())])
        self.finish()
