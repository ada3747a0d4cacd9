"""``ctranslate2.Translator`` on Peregrine: tokens in, tokens out, with the same names, arguments and defaults.

    import peregrine.compat.ctranslate2 as ctranslate2

    translator = ctranslate2.Translator("model_directory", compute_type="float32")
    translator.translate_batch([["▁Hello", "▁world"]])[0].hypotheses[0]

It takes what CTranslate2 takes and what Peregrine opens besides. What Peregrine cannot do raises NotImplementedError with the name of the
argument; what is about speed only (batch sizes, queues) is accepted and left to Peregrine.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Callable, Generic, Iterable, Iterator, Sequence, TypeVar

from .._translator import Translator as _Translator

__all__ = [
    "AsyncScoringResult",
    "AsyncTranslationResult",
    "ScoringResult",
    "TranslationResult",
    "Translator",
]

Tokens = Sequence[str]
Result = TypeVar("Result")

#: Sentences of an iterable that are translated together.
_CHUNK = 2048

#: Precisions by CTranslate2's names.
_PRECISIONS = {
    "default": "auto",
    "auto": "auto",
    "int8": "int8",
    "int8_float32": "int8",
    "int8_float16": "int8",
    "int8_bfloat16": "int8",
    "int16": "int16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
}

#: Arguments whose defaults are all that there is.
_ONLY: dict[str, Any] = {
    "patience": 1,
    "coverage_penalty": 0,
    "repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "suppress_sequences": None,
    "end_token": None,
    "prefix_bias_beta": 0,
    "return_logits_vocab": False,
    "return_alternatives": False,
    "min_alternative_expansion_prob": 0,
    "sampling_topk": 1,
    "sampling_topp": 1,
    "sampling_temperature": 1,
    "callback": None,
}


@dataclass
class TranslationResult:
    """The translations of a sentence, the best first."""

    hypotheses: list[list[str]]
    scores: list[float] = field(default_factory=list)
    attention: list[list[list[float]]] = field(default_factory=list)
    logits: list[Any] = field(default_factory=list)


@dataclass
class ScoringResult:
    """The log-probabilities of a translation's tokens, the end symbol's last."""

    tokens: list[str]
    log_probs: list[float]


class _Async(Generic[Result]):
    """One of the results of a call that goes on."""

    def __init__(self, results: Future[list[Result]], number: int) -> None:
        self._results, self._number = results, number

    def done(self) -> bool:
        """Whether the result is there."""
        return self._results.done()

    def result(self) -> Result:
        """Waits for the result."""
        return self._results.result()[self._number]


class AsyncTranslationResult(_Async[TranslationResult]):
    """A translation that is under way."""


class AsyncScoringResult(_Async[ScoringResult]):
    """A score that is under way."""


class Translator:
    """A model that translates tokens, as ``ctranslate2.Translator`` does."""

    def __init__(
        self,
        model_path: str,
        device: str = "cpu",
        *,
        device_index: int | Sequence[int] = 0,
        compute_type: str | dict[str, str] = "default",
        inter_threads: int = 1,
        intra_threads: int = 0,
        max_queued_batches: int = 0,
        flash_attention: bool = False,
        tensor_parallel: bool = False,
        files: object = None,
    ) -> None:
        _only(flash_attention=(flash_attention, False), tensor_parallel=(tensor_parallel, False), files=(files, None))
        indices = [device_index] if isinstance(device_index, int) else list(device_index)
        _only(device_index=(len(indices), 1))
        if device not in ("cpu", "cuda", "auto"):
            raise ValueError(f"unsupported device {device}")
        kind = compute_type.get(device, "default") if isinstance(compute_type, dict) else compute_type
        if kind not in _PRECISIONS:
            raise ValueError(f"invalid compute type: {kind}")
        vmap = os.path.exists(os.path.join(model_path, "vmap.txt"))
        self._translator = _Translator(
            model_path,
            device=f"cuda:{indices[0]}" if device == "cuda" else device,
            precision=_PRECISIONS[kind],
            threads=inter_threads * intra_threads if intra_threads > 0 else None,
            shortlist="vmap" if vmap else None,
        )
        self._pool: ThreadPoolExecutor | None = None
        self._indices = indices

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return "cuda" if self._translator._running().on_gpu else "cpu"

    @property
    def device_index(self) -> list[int]:
        """The numbers of the devices."""
        return self._indices

    @property
    def compute_type(self) -> str:
        """The precision of products."""
        return self._translator.precision

    @property
    def num_translators(self) -> int:
        """One: its workers share the model."""
        return 1

    def translate_batch(
        self,
        source: Sequence[Tokens],
        target_prefix: Sequence[Tokens | None] | None = None,
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        asynchronous: bool = False,
        beam_size: int = 2,
        patience: float = 1,
        num_hypotheses: int = 1,
        length_penalty: float = 1,
        coverage_penalty: float = 0,
        repetition_penalty: float = 1,
        no_repeat_ngram_size: int = 0,
        disable_unk: bool = False,
        suppress_sequences: Sequence[Tokens] | None = None,
        end_token: str | Sequence[str] | Sequence[int] | None = None,
        return_end_token: bool = False,
        prefix_bias_beta: float = 0,
        max_input_length: int = 1024,
        max_decoding_length: int = 256,
        min_decoding_length: int = 1,
        use_vmap: bool = False,
        return_scores: bool = False,
        return_logits_vocab: bool = False,
        return_attention: bool = False,
        return_alternatives: bool = False,
        min_alternative_expansion_prob: float = 0,
        sampling_topk: int = 1,
        sampling_topp: float = 1,
        sampling_temperature: float = 1,
        replace_unknowns: bool = False,
        callback: Callable[[Any], bool] | None = None,
    ) -> Any:
        """Translates sentences of tokens."""
        given = locals()
        _only(**{name: (given[name], value) for name, value in _ONLY.items()})
        _only(return_end_token=(return_end_token, False))
        if num_hypotheses > beam_size:
            raise ValueError("The number of hypotheses cannot be greater than the beam size")
        if target_prefix is not None and len(target_prefix) != len(source):
            raise ValueError("source and target_prefix have different lengths")
        options = {
            **_as_they_are(),
            "beam": beam_size,
            "n_best": num_hypotheses,
            "normalize": length_penalty,
            "allow_unk": not disable_unk,
            "max_length": max_decoding_length,
            "min_length": min_decoding_length,
            "shortlist": use_vmap,
            "scores": return_scores,
            "alignments": return_attention,
            "replace_unknown": replace_unknowns,
        }
        engine = self._translator._running()
        sources = [_cut(tokens, max_input_length, engine.source_frame) for tokens in source]
        lines = [_line(tokens) for tokens in sources]
        prefixes = None if target_prefix is None else [_line(tokens or []) for tokens in target_prefix]

        def translate() -> list[TranslationResult]:
            raw = engine.translate_full(lines, options, prefixes, None, return_attention)
            done = zip(raw, sources)
            return [_result(one["alternatives"], return_scores, len(tokens)) for one, tokens in done]

        if not asynchronous:
            return translate()
        return [AsyncTranslationResult(*later) for later in self._later(translate, len(source))]

    def translate_iterable(
        self,
        source: Iterable[Tokens],
        target_prefix: Iterable[Tokens | None] | None = None,
        max_batch_size: int = 32,
        batch_type: str = "examples",
        **kwargs: Any,
    ) -> Iterator[TranslationResult]:
        """Translates sentences of tokens as they come, in bounded memory."""
        kwargs.pop("asynchronous", None)
        if target_prefix is None:
            for sources in _chunks(source):
                yield from self.translate_batch(sources, **kwargs)
            return
        for pairs in _chunks(zip(source, target_prefix)):
            yield from self.translate_batch([s for s, _ in pairs], [p for _, p in pairs], **kwargs)

    def score_batch(
        self,
        source: Sequence[Tokens],
        target: Sequence[Tokens],
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        max_input_length: int = 1024,
        offset: int = 0,
        asynchronous: bool = False,
    ) -> Any:
        """Scores translations of tokens."""
        if len(source) != len(target):
            raise ValueError("source and target have different lengths")
        options = _as_they_are()
        engine = self._translator._running()
        sources = [_cut(tokens, max_input_length, engine.source_frame) for tokens in source]
        targets = [_cut(tokens, max_input_length, 1) for tokens in target]
        pairs = [(_line(s), _line(t)) for s, t in zip(sources, targets)]

        def score() -> list[ScoringResult]:
            scored = engine.score(pairs, options)
            return [
                ScoringResult([*tokens, "</s>"][offset:], log_probs[offset:])
                for tokens, (_, log_probs) in zip(targets, scored)
            ]

        if not asynchronous:
            return score()
        return [AsyncScoringResult(*later) for later in self._later(score, len(source))]

    def score_iterable(
        self,
        source: Iterable[Tokens],
        target: Iterable[Tokens],
        max_batch_size: int = 64,
        batch_type: str = "examples",
        **kwargs: Any,
    ) -> Iterator[ScoringResult]:
        """Scores translations of tokens as they come, in bounded memory."""
        kwargs.pop("asynchronous", None)
        for pairs in _chunks(zip(source, target)):
            yield from self.score_batch([s for s, _ in pairs], [t for _, t in pairs], **kwargs)

    def _later(self, call: Callable[[], list[Result]], count: int) -> Iterator[tuple[Future[list[Result]], int]]:
        """What a call will give, and the number of each of its results."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        return zip(itertools.repeat(self._pool.submit(call)), range(count))


def _only(**arguments: tuple[object, object]) -> None:
    """Refuses arguments that are not what they must be."""
    for name, (given, expected) in arguments.items():
        if given != expected:
            raise NotImplementedError(f"{name}={given!r}: Peregrine cannot do that")


def _as_they_are() -> dict[str, Any]:
    """Options with which sentences are translated as they are."""
    # Longer inputs have been cut already, and CTranslate2 cuts nothing else.
    return {"split": "none", "carry": False, "guards": False, "tokens": True, "max_source": 1_000_000}


def _cut(tokens: Tokens, most: int, frame: int) -> Tokens:
    """The first tokens, so that with those of the frame there are no more than wanted; 0 cuts nothing."""
    return tokens[: max(most - frame, 0)] if most > 0 else tokens


def _line(tokens: Tokens) -> str:
    """Tokens with blanks between them. One that has a blank in it is in no vocabulary."""
    return " ".join("<unk>" if not token or " " in token else token for token in tokens)


def _chunks(items: Iterable[Result]) -> Iterator[list[Result]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, _CHUNK)):
        yield chunk


def _result(alternatives: list[dict[str, Any]], scores: bool, length: int) -> TranslationResult:
    def attention(one: dict[str, Any]) -> list[list[float]]:
        # What belongs to the end symbols is not wanted.
        return [row[:length] for row in one["attention"][: len(one["tokens"])]]

    return TranslationResult(
        hypotheses=[one["tokens"] for one in alternatives],
        scores=[one["score"] for one in alternatives] if scores else [],
        attention=[attention(one) for one in alternatives if one["attention"]],
    )
