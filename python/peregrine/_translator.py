"""A model ready to translate."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence, overload

from . import _containers, _results, _settings
from ._options import Options, StrPath
from ._peregrine import Engine, Error
from ._peregrine import detect as _detect
from ._progress import bar, bar_over
from ._results import Detection, Translation
from ._settings import Paths

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from types import TracebackType
    from typing import TypeVar

    from typing_extensions import Self, Unpack

    Array = TypeVar("Array", bound=_containers.SupportsArray)

# Translators that have been asked for futures. Their threads must end before the interpreter does.
_couriers: weakref.WeakSet[Translator] = weakref.WeakSet()


class Translator:
    """A model ready to translate. Threads may share it.

    >>> import peregrine
    >>> with peregrine.Translator(threads=1) as translator:
    ...     translator.translate("Two dogs play in the snow.")
    'Dois cães brincam na neve.'

    It pickles by its paths and settings. In a forked process it opens its model again when it is first used there.
    """

    def __init__(
        self,
        model: Paths = None,
        *,
        from_: str | None = None,
        to: str | None = None,
        models: StrPath | None = None,
        device: str = "auto",
        precision: str = "auto",
        threads: int | None = None,
        memory: int | str | None = None,
        vocab: tuple[StrPath, StrPath] | None = None,
        shortlist: StrPath | Sequence[StrPath | float] | None = None,
        then: StrPath | None = None,
        config: StrPath | None = None,
        weights: Sequence[float] = (),
        compat: str | Sequence[str] = (),
        calibration: StrPath | None = None,
        threads_per_sentence: int | None = None,
        batch_sentences: int | None = None,
        batch_tokens: int | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Opens a model. The names are those of the command's options, which ``python -m peregrine translate --help`` explains.

        model: a file or directory of any format, or several for an ensemble; without one the built-in English-Portuguese model.
        from_, to: the languages of a multilingual model, by code or English name, for calls that name none.
        models: a folder of models, of which the one from ``from_`` to ``to`` is used, or two in a row.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        precision: ``auto``, ``float32``, ``bfloat16``, ``int16``, ``int8``; on a GPU also ``tf32``, ``float16`` and ``fp8``.
        threads: workers, each with a batch of its own; by default one for each physical core, on a GPU four.
        memory: what the process may use, such as ``"2GB"``.
        vocab: source and target vocabulary, where the model's directory does not tell.
        shortlist: ``auto``, ``off``, ``vmap``, or a table and its numbers.
        then: a second model, which translates what the first one makes of a text.
        config: a configuration of Marian's decoder or of Amun's.
        weights: how much each model of an ensemble counts.
        compat: original tools whose behaviour is followed.
        calibration: a table by which quality is scored, as ``peregrine calibrate`` writes it.
        threads_per_sentence: threads that share the products of each worker, for latency.
        batch_sentences, batch_tokens: the size of a batch.
        settings: laboratory settings (``python -m peregrine help settings``).
        """
        chosen = _settings.choose_models({"model": model, "then": then, "models": models, "from_": from_, "to": to})

        def path(given: StrPath | None) -> str | None:
            return None if given is None else _settings.absolute(given)

        self._start(
            {
                "model": _settings.many(chosen["model"]),
                "then": path(chosen["then"]),
                "from_": from_,
                "to": to,
                "device": device,
                "precision": precision,
                "threads": threads,
                "threads_per_sentence": threads_per_sentence,
                "batch_sentences": batch_sentences,
                "batch_tokens": batch_tokens,
                "memory": None if memory is None else str(memory),
                "vocab": None if vocab is None else tuple(_settings.many(vocab)),
                "config": path(config),
                "weights": list(weights),
                "shortlist": _settings.shortlist(shortlist),
                "compat": [compat] if isinstance(compat, str) else list(compat),
                "calibration": path(calibration),
                "settings": [f"{name}={value}" for name, value in (settings or {}).items()],
            }
        )

    def _start(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._pool: ThreadPoolExecutor | None = None
        self._engine: Engine | None = None
        self._engine = Engine(settings)
        self._process = os.getpid()
        if notes := self._engine.notes:
            import logging

            for note in notes:
                logging.getLogger("peregrine").info("%s", note)

    def _running(self) -> Engine:
        """The engine of this process."""
        engine = self._engine
        if engine is None:
            raise Error("this translator is closed")
        if self._process == os.getpid():
            return engine
        with _reopening:
            if self._process != os.getpid():
                if engine.on_gpu:
                    raise Error("a GPU cannot be used in a process that was forked after it was opened: start it by spawn")
                self._pool = None
                self._engine = Engine(self._settings)
                self._process = os.getpid()
        return self._running()

    @property
    def model(self) -> list[str]:
        """The paths of the model, or of the first of two in a row; none for the built-in one."""
        return list(self._settings["model"])

    @property
    def device(self) -> str:
        """The name of the device."""
        return self._running().device

    @property
    def precision(self) -> str:
        """The precision of products."""
        return self._running().precision

    @property
    def threads(self) -> int:
        """The number of workers."""
        return self._running().threads

    @property
    def languages(self) -> tuple[str, str] | None:
        """The codes of the source and the target language, if the model's files or names tell them."""
        return self._running().languages

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, text: str, *, prefix: str | None = None, progress: bool = False, **options: Unpack[Options]
    ) -> str: ...

    @overload
    def translate(  # type: ignore[overload-overlap]
        self,
        text: list[str] | tuple[str, ...],
        *,
        prefix: Sequence[str | None] | None = None,
        progress: bool = False,
        **options: Unpack[Options],
    ) -> list[str]: ...

    @overload
    def translate(self, text: Array, *, progress: bool = False, **options: Unpack[Options]) -> Array: ...

    @overload
    def translate(
        self, text: Iterable[str], *, progress: bool = False, **options: Unpack[Options]
    ) -> Iterator[str]: ...

    def translate(self, text: Any, *, prefix: Any = None, progress: bool = False, **options: Any) -> Any:
        """Translates a text, or many.

        A str gives a str, a list or tuple a list. A pandas Series, a NumPy array of str and a Polars or Arrow array of strings give
        one of their kind, and what is missing in them stays missing. Any other iterable gives an iterator: texts are pulled as they
        are needed, and translations come in order and in bounded memory.

        prefix is how the translation must begin: a str for a text, a list of them for a list. progress shows a bar if ``tqdm`` is
        installed. The other options are those of :class:`peregrine.Options`.

        >>> import peregrine
        >>> translator = peregrine.Translator()
        >>> translator.translate("The bus is late.", glossary={"bus": "autocarro"})
        'O autocarro está atrasado.'
        >>> lines = (line for line in ["Good morning!", "", "It is raining."])
        >>> list(translator.translate(lines))
        ['Bom dia!', '', 'Está chovendo.']
        """
        engine = self._running()
        if isinstance(text, str):
            return engine.translate([text], options, _prefixes(prefix, text), None)[0]
        if isinstance(text, (list, tuple)):
            with bar(progress, len(text)) as tell:
                return engine.translate(list(text), options, _prefixes(prefix, text), tell)
        if prefix is not None:
            raise TypeError("prefix: expected only with a str, a list or a tuple")
        if isinstance(text, (bytes, bytearray, Mapping)):
            raise TypeError(f"text: expected str or an iterable of str, not {type(text).__name__}")
        whole = _containers.translate(engine, text, options, progress)
        if whole is not NotImplemented:
            return whole
        try:
            source = iter(text)
        except TypeError:
            raise TypeError(f"text: expected str or an iterable of str, not {type(text).__name__}") from None
        return bar_over(progress, text, engine.iterate(source, options))

    @overload
    def translate_full(
        self,
        text: str,
        *,
        n_best: int = 1,
        scores: bool = False,
        alignments: bool = False,
        quality: bool = False,
        prefix: str | None = None,
        progress: bool = False,
        **options: Unpack[Options],
    ) -> Translation: ...

    @overload
    def translate_full(
        self,
        text: list[str] | tuple[str, ...],
        *,
        n_best: int = 1,
        scores: bool = False,
        alignments: bool = False,
        quality: bool = False,
        prefix: Sequence[str | None] | None = None,
        progress: bool = False,
        **options: Unpack[Options],
    ) -> list[Translation]: ...

    def translate_full(
        self,
        text: Any,
        *,
        n_best: int = 1,
        scores: bool = False,
        alignments: bool = False,
        quality: bool = False,
        prefix: Any = None,
        progress: bool = False,
        **options: Any,
    ) -> Any:
        """Translates a text, or a list of them, with all that is known of each translation.

        n_best is how many translations of each sentence are wanted, and the beam unless that is given; alignments says which words
        come from which, scores how probable words are, quality how sure the model is and what seems wrong.

        >>> import peregrine
        >>> t = peregrine.Translator().translate_full("Good morning! Two dogs play.", quality=True)
        >>> [sentence.source_text for sentence in t.sentences]
        ['Good morning!', 'Two dogs play.']
        >>> t.quality > 0.2 and t.flags == []
        True
        """
        engine = self._running()
        options.update(n_best=n_best, scores=scores, alignments=alignments, quality=quality)
        if n_best > 1 and options.get("beam") is None:
            options["beam"] = n_best
        if isinstance(text, str):
            raw = engine.translate_full([text], options, _prefixes(prefix, text), None, False)
            return _results.translation(raw[0])
        if not isinstance(text, (list, tuple)):
            raise TypeError(f"text: expected str, list or tuple, not {type(text).__name__}")
        with bar(progress, len(text)) as tell:
            raw = engine.translate_full(list(text), options, _prefixes(prefix, text), tell, False)
        return [_results.translation(one) for one in raw]

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text to translate, as the model has them.

        >>> import peregrine
        >>> translator = peregrine.Translator()
        >>> tokens = translator.tokenize("Two dogs play in the snow.")
        >>> translator.translate(" ".join(tokens), tokens=True)
        'Dois cães brincam na neve.'
        """
        return self._running().tokenize(text)

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The text of the tokens of a translation.

        >>> import peregrine
        >>> translator = peregrine.Translator()
        >>> translator.detokenize(translator.translate_full("Good morning!").alternatives[0].tokens)
        'Bom dia!'
        """
        return self._running().detokenize(list(tokens))

    @overload
    def score(self, source: str, target: str, **options: Unpack[Options]) -> float: ...

    @overload
    def score(
        self, source: list[str] | tuple[str, ...], target: Sequence[str], **options: Unpack[Options]
    ) -> list[float]: ...

    def score(self, source: Any, target: Any, **options: Any) -> Any:
        """The natural logarithm of the probability of a translation, or of each of several.

        >>> import peregrine
        >>> right, wrong = peregrine.Translator().score(["Thank you."] * 2, ["Obrigado.", "Cachorro neve."])
        >>> right > wrong
        True
        """
        engine = self._running()
        if isinstance(source, str) and isinstance(target, str):
            return engine.score([(source, target)], options)[0][0]
        if isinstance(source, str) or isinstance(target, str):
            raise TypeError("score: expected a str for each, or a list for each")
        pairs = list(zip(source, target))
        if len(pairs) != len(source) or len(pairs) != len(target):
            raise ValueError(f"score: {len(source)} sources and {len(target)} translations")
        return [score for score, _ in engine.score(pairs, options)]

    def submit(self, text: str, *, prefix: str | None = None, **options: Unpack[Options]) -> Future[str]:
        """Has a text translated, and returns at once. Texts of all callers share batches.

        >>> import peregrine
        >>> translator = peregrine.Translator()
        >>> futures = [translator.submit(text) for text in ("Good morning!", "It is raining.")]
        >>> [future.result() for future in futures]
        ['Bom dia!', 'Está chovendo.']
        """
        from concurrent.futures import Future, ThreadPoolExecutor

        engine = self._running()
        if self._settings["then"] is not None:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(engine.threads)
            return self._pool.submit(lambda: self.translate(text, prefix=prefix, **options))
        future: Future[str] = Future()
        _couriers.add(self)
        ticket = engine.submit(text, options, prefix, future)
        future.add_done_callback(lambda done: ticket.cancel() if done.cancelled() else None)
        return future

    async def atranslate(self, text: str, *, prefix: str | None = None, **options: Unpack[Options]) -> str:
        """Translates a text while other coroutines run. A task that is cancelled is not computed any further.

        >>> import asyncio, peregrine
        >>> asyncio.run(peregrine.Translator().atranslate("Good morning!"))
        'Bom dia!'
        """
        import asyncio

        return await asyncio.wrap_future(self.submit(text, prefix=prefix, **options))

    def translate_document(
        self,
        document: bytes,
        format: str | None = None,
        *,
        attributes: bool = False,
        **options: Unpack[Options],
    ) -> bytes:
        """Translates the text of a document and leaves everything else as it is.

        format is its name, such as ``html`` or ``md``; without one it is told by the first bytes. With attributes, those that people
        read are translated too: ``alt``, ``title`` and others.

        >>> import peregrine
        >>> peregrine.Translator().translate_document(b"<p>Two <i>dogs</i> play in the snow.</p>").decode()
        '<p>Dois <i>cães</i> brincam na neve.</p>'
        """
        return self._running().document(document, None, format, attributes, options)

    def translate_file(
        self,
        input: StrPath,
        output: StrPath,
        *,
        format: str | None = None,
        attributes: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Translates a file to another. Its format is told by its name and its first bytes; what is nothing else is text.

        The output is there whole or not at all.
        """
        engine = self._running()
        try:
            with open(input, "rb") as file:
                document = file.read()
        except OSError as error:
            raise Error(f"{os.fspath(input)}: {error.strerror}") from None
        written = engine.document(document, os.fspath(input), format, attributes, options)
        path = os.fspath(output)
        beside = f"{path}.{os.getpid()}.part"
        try:
            with open(beside, "wb") as file:
                file.write(written)
            os.replace(beside, path)
        except OSError as error:
            raise Error(f"{path}: {error.strerror}") from None

    def close(self) -> None:
        """Frees the model. Calls that are under way end as ever; futures that are not done fail."""
        engine, self._engine = self._engine, None
        pool, self._pool = self._pool, None
        if engine is None or self._process != os.getpid():
            return
        if pool is not None:
            pool.shutdown()
        engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._settings)

    def __repr__(self) -> str:
        model = ", ".join(self._settings["model"]) or "built-in"
        if self._engine is None:
            return f"<peregrine.Translator {model}, closed>"
        return f"<peregrine.Translator {model} on {self.device}, {self.precision}, {self.threads} threads>"


def detect(text: str, among: Sequence[str] = ()) -> Detection:
    """The language of a text, among those given or all that can be told apart.

    >>> import peregrine
    >>> peregrine.detect("Two dogs play in the snow, and nobody minds.", among=["en", "pt"]).language
    'en'
    """
    return Detection(*_detect(text, list(among)))


def _prefixes(prefix: Any, text: str | Sequence[str]) -> list[str | None] | None:
    """What translations begin with, as the engine wants it."""
    if prefix is None:
        return None
    if isinstance(prefix, str) != isinstance(text, str):
        raise TypeError("prefix: expected a str for a text, or a list for a list")
    return [prefix] if isinstance(prefix, str) else list(prefix)


def _restored(kind: type[Translator], settings: dict[str, Any]) -> Translator:
    translator = kind.__new__(kind)
    translator._start(settings)
    return translator


# Held while a model is opened again. A thread that this process does not have may have held it.
_reopening = threading.Lock()


def _after_fork() -> None:
    global _reopening
    _reopening = threading.Lock()


def _at_exit() -> None:
    for translator in list(_couriers):
        translator.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
