"""What is to be translated, how, and where to; and the record of it in the output's folder."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
from pathlib import Path
from typing import Any, Iterator, Sequence, Union, cast

from .._options import Options, StrPath
from .._peregrine import VERSION, Error
from .._settings import Paths, absolute, choose_models, map_paths
from .._translator import Translator
from ._files import FORMATS, Shape, whole
from ._worker import Job, Partition

RECORD = "_peregrine.json"
_LOCK = "_peregrine.lock"

Sources = Union[StrPath, Sequence[StrPath]]

#: Settings of a translator that change no word; what device and precision come to is recorded by what workers say.
_HARMLESS = ("memory", "threads_per_sentence", "batch_sentences", "batch_tokens", "device", "precision")


class Plan:
    """Which files are translated to which, and how.

    source is a file, several, or a folder with all that is below it; names that begin with ``.`` or ``_`` are left out. Each file is a
    partition and becomes one file of the output folder, with the same path below it. Text, JSON lines and Parquet are told apart by
    their endings: ``.parquet``, ``.jsonl``, ``.ndjson`` and ``.json``; anything else is text. Text and JSON lines may end in ``.gz``.

    column: the column that is translated; of text it is ``text``. What is missing stays missing.
    into: the column that translations are written to.
    keep: the columns that are written too, such as ids; by default all.
    format: ``text``, ``jsonl`` or ``parquet`` for the output; by default that of each file. Only text becomes text. Of text,
        the other formats have the columns ``line``, counted from 1, and ``text``.
    input_format: the format of all files, whatever their endings.
    dedupe: translate lines that differ in blanks or in the composition of characters only once within a partition.
    model, options, settings: as in :class:`peregrine.Translator` and :class:`peregrine.Options`.

    >>> import tempfile, pathlib
    >>> from peregrine import corpus
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "in").mkdir()
    >>> _ = (folder / "in" / "a.jsonl").write_text('{"id": 7, "text": "Good morning!"}')
    >>> plan = corpus.Plan(folder / "in", folder / "out", options={"beam": 1})
    >>> [partition.name for partition in plan.partitions]
    ['a.jsonl']
    >>> report = corpus.run(plan)
    >>> (folder / "out" / "a.jsonl").read_text()
    '{"id": 7, "text": "Good morning!", "translation": "Bom dia!"}\\n'
    """

    def __init__(
        self,
        source: Sources,
        output: StrPath,
        *,
        model: Paths = None,
        column: str = "text",
        into: str = "translation",
        keep: Sequence[str] | None = None,
        format: str | None = None,
        input_format: str | None = None,
        dedupe: bool = False,
        options: Options | None = None,
        **settings: Any,
    ) -> None:
        for name, value in (("format", format), ("input_format", input_format)):
            if value is not None and value not in FORMATS:
                raise ValueError(f"{name}: expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {value!r}")
        allowed = set(inspect.signature(Translator.__init__).parameters) - {"self", "model", "threads"}
        if unknown := set(settings) - allowed:
            raise TypeError(f"there is no setting {min(unknown)!r} of a translator in a plan")
        if options is not None and dedupe and options.get("split") == "paragraph":
            raise ValueError("dedupe: a line that is part of a paragraph cannot stand for another: expected another split")
        self.output = Path(os.path.abspath(output))
        shape = Shape(column, into, None if keep is None else list(keep), input_format, format)
        given = choose_models({"model": model, **settings})
        try:
            given, chosen = map_paths(given, options or {}, absolute)
            json.dumps((given, chosen))
        except TypeError as error:
            raise TypeError(f"a plan's settings and options must be text, numbers, lists and dictionaries: {error}") from None
        self.job = Job(shape, given, chosen, dedupe)
        self.partitions = self._partitions(source)
        """The files, in the order of their names."""

    def _partitions(self, source: Sources) -> list[Partition]:
        shape = self.job.shape
        found: dict[str, Partition] = {}
        for path, name in _files(source, self.output):
            read_as, write_as = shape.formats(path)
            if write_as == "text" and read_as != "text":
                raise Error(f"{path}: {read_as} cannot become text: choose jsonl or parquet as the format")
            if read_as == "text" and shape.column != "text":
                raise Error(f"{path}: there is no column {shape.column!r} in text, only 'line' and 'text'")
            target = shape.target_name(name).as_posix()
            if target in found:
                raise Error(f"{path}: its output would be {target}, as that of {found[target].source}")
            status = path.stat()
            found[target] = Partition(target, str(path), str(self.output / target), status.st_size, int(status.st_mtime))
        if not found:
            raise Error(f"{source}: there are no files to translate")
        return [found[name] for name in sorted(found)]

    def record(self) -> dict[str, Any]:
        """All that decides what the output is, but for what workers say. Models and other files count by their content."""
        job = self.job
        settings, options = map_paths(job.settings, job.options, _digest)
        return {
            "peregrine": VERSION,
            **job.shape._asdict(),
            "dedupe": job.dedupe,
            **{f"setting {name}": value for name, value in settings.items() if name not in _HARMLESS and value is not None},
            **{f"option {name}": value for name, value in options.items() if value is not None},
            "partitions": {p.name: [p.source, p.size, p.modified] for p in self.partitions},
        }


def _files(source: Sources, output: Path) -> Iterator[tuple[Path, Path]]:
    """The files of the input, and their names in the output."""
    for given in [source] if isinstance(source, (str, os.PathLike)) else source:
        path = Path(os.path.abspath(given))
        if path.is_file():
            yield path, Path(path.name)
            continue
        if not path.is_dir():
            raise Error(f"{path}: No such file or directory")
        if path == output or path in output.parents:
            raise Error(f"{output}: the output would be among the input")
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
            for name in sorted(names):
                if not name.startswith((".", "_")):
                    file = Path(folder, name)
                    yield file, file.relative_to(path)


def _digest(path: StrPath) -> str:
    """A digest of a file's content, or of all files of a folder."""
    path, digest = Path(path), hashlib.sha256()
    try:
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            if file != path:
                digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
            with open(file, "rb") as content:
                while block := content.read(1 << 20):
                    digest.update(block)
    except OSError as error:
        raise Error(f"{error.filename or path}: {error.strerror}") from None
    return f"sha256:{digest.hexdigest()}"


class Folder:
    """The output's folder while a run writes to it: no other may. It holds the record of what its files are."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.path = plan, plan.output / RECORD
        try:
            plan.output.mkdir(parents=True, exist_ok=True)
            self.lock = open(plan.output / _LOCK, "w")
        except OSError as error:
            raise Error(f"{plan.output}: {error.strerror}") from None
        try:
            self._claim()
            self.record = plan.record()
            self._compare()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> None:
        """Keeps others from the folder until this process ends or the lock is closed."""
        try:
            import fcntl

            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Error(f"{self.plan.output}: another run is writing to this folder") from None
        except (ImportError, OSError):
            pass  # A system without locks: there, one run at a time is the user's promise.

    def _compare(self) -> None:
        """Refuses a folder that something else has been written to."""
        before = self._read()
        if before is None:
            for partition in self.plan.partitions:
                if os.path.exists(partition.target):
                    raise Error(f"{partition.target}: is there, and no {RECORD} says how it was made: choose another folder")
            return
        self.record = {**self.record, **{name: before[name] for name in ("computed",) if name in before}}
        known, now = before.pop("partitions"), self.record["partitions"]
        for name in sorted({*before, *self.record} - {"partitions"}):
            then, new = before.get(name), self.record.get(name)
            if then != new:
                raise Error(f"{self.path}: begun with {name} {_told(then)}, now {_told(new)}: choose another folder for that")
        for name, (source, size, modified) in known.items():
            if name not in now:
                raise Error(f"{self.path}: begun with {source}, which is not among the input any more")
            if now[name][1:] != [size, modified]:
                raise Error(f"{now[name][0]}: has changed since {self.path} was written: choose another folder for that")

    def _read(self) -> dict[str, Any] | None:
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Error(f"{self.path}: cannot be read: {error}") from None
        if not isinstance(record, dict) or not isinstance(record.get("partitions"), dict):
            raise Error(f"{self.path}: is no record of a corpus")
        return cast("dict[str, Any]", record)

    def agree(self, computed: str) -> None:
        """Refuses a worker that would give other words than those before it; the first one is recorded."""
        before = self.record.setdefault("computed", computed)
        if before != computed:
            raise Error(f"{self.path}: begun with {before}, and a worker has {computed}: name device and precision")

    def write(self) -> None:
        """Writes the record, before the first partition is."""
        with whole(self.path) as file:
            file.write(json.dumps(self.record, ensure_ascii=False, indent=1).encode())

    def clean(self) -> None:
        """Removes what workers have left that were killed. While this run has the folder, nobody else writes to it."""
        for folder in {os.path.dirname(partition.target) for partition in self.plan.partitions}:
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    if name.startswith(".") and name.endswith(".part"):
                        os.unlink(os.path.join(folder, name))

    def close(self) -> None:
        """Lets others write to the folder."""
        self.lock.close()


def _told(value: object) -> str:
    told = "the default" if value is None else json.dumps(value, ensure_ascii=False)
    return told if len(told) < 60 else f"{told[:56]} …"
