"""What is known of a translation. Places in a text are code points, as Python counts.

All of it is tuples with names: they compare, pickle and do not change, and importing what makes them takes no time.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple


class Span(NamedTuple):
    """A place in a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """What stands there in a text."""
        return text[self.start : self.end]


class Word(NamedTuple):
    """A word of a translation."""

    text: str
    span: Span
    score: float | None
    """The natural logarithm of its probability, if scores were asked for."""
    quality: float | None
    """The share of words in ordinary text of which the model is less sure, if quality was asked for."""


class Link(NamedTuple):
    """A word of the source, and a word of the translation that attends to it."""

    source: Span
    target: Span
    weight: float


class Sentence(NamedTuple):
    """A sentence of the source, and what it became in the best translation."""

    source: Span
    target: Span
    source_text: str
    text: str
    score: float | None
    quality: float | None
    flags: list[str]


class Term(NamedTuple):
    """A term of a glossary in the source, and what came of it."""

    source: Span
    target: Span | None
    wanted: str
    how: str


class Detection(NamedTuple):
    """The language of a text."""

    language: str | None
    """Its code; None if it cannot be told."""
    confidence: float
    reliable: bool
    others: list[str]
    """Other languages that it may be."""
    script: str | None


class Alternative(NamedTuple):
    """One way to translate a text."""

    text: str
    tokens: list[str]
    score: float | None
    """What alternatives are ranked by, if scores were asked for."""
    token_scores: list[float]
    """The natural logarithm of each token's probability, the end symbol's last."""
    words: list[Word]
    links: list[Link]
    """Which words of the source each word attends to, the strongest first, if alignments were asked for."""
    quality: float | None
    """The share of ordinary sentences of which the model is less sure, if quality was asked for."""
    flags: list[str]
    """What seems wrong: looped, endless, cut, untranslated, numbers, length, unknown, terms, lost."""

    def __repr__(self) -> str:
        return f"Alternative({_told(self)})"


class Translation(NamedTuple):
    """A translation and what is known of it.

    >>> import peregrine
    >>> t = peregrine.Translator().translate_full("Two dogs play in the snow.", alignments=True)
    >>> t
    Translation('Dois cães brincam na neve.')
    >>> [(link.source.of(t.source), link.target.of(t.text)) for link in t.links][:2]
    [('Two', 'Dois'), ('dogs', 'cães')]
    """

    source: str
    alternatives: list[Alternative]
    """At least one, the best first."""
    sentences: list[Sentence]
    terms: list[Term]
    pivot: str | None
    """What the first of two models in a row made of the source."""

    @property
    def text(self) -> str:
        """The best text."""
        return self.alternatives[0].text

    @property
    def score(self) -> float | None:
        """The score of the best text, if scores were asked for."""
        return self.alternatives[0].score

    @property
    def words(self) -> list[Word]:
        """The words of the best text, if scores, alignments or quality were asked for."""
        return self.alternatives[0].words

    @property
    def links(self) -> list[Link]:
        """Which words of the source those of the best text attend to, if alignments were asked for."""
        return self.alternatives[0].links

    @property
    def quality(self) -> float | None:
        """How sure the model is of the best text, from 0 to 1, if quality was asked for."""
        return self.alternatives[0].quality

    @property
    def flags(self) -> list[str]:
        """What seems wrong with the best text."""
        return self.alternatives[0].flags

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        more = len(self.alternatives) - 1
        return f"Translation({_told(self.alternatives[0])}{f', and {more} more' if more else ''})"

    def _repr_html_(self) -> str:
        """A table of the sentences. Words tell what they come from when the mouse is over them."""
        from html import escape

        rows = [
            f"<tr><td>{escape(s.source_text)}</td><td>{self._marked(s.target)}</td><td>{escape(_judged(s))}</td></tr>"
            for s in self.sentences
        ]
        return f"<table><tr><th>source</th><th>translation</th><th></th></tr>{''.join(rows)}</table>"

    def _marked(self, place: Span) -> str:
        """A place of the best text in HTML, with the links of its words."""
        from html import escape

        sources: dict[Span, list[str]] = {}
        for link in self.links:
            sources.setdefault(link.target, []).append(f"{link.source.of(self.source)} ({link.weight:.2f})")
        html, at = [], place.start
        for word in self.words:
            if word.span.start < at or word.span.end > place.end:
                continue
            told = sources.get(word.span, [])
            if word.score is not None:
                told.append(f"score {word.score:.2f}")
            html.append(escape(self.text[at : word.span.start]))
            html.append(f'<span title="{escape(", ".join(told))}">{escape(word.text)}</span>')
            at = word.span.end
        return "".join(html) + escape(self.text[at : place.end])


def _told(alternative: Alternative) -> str:
    told = [repr(alternative.text)]
    if alternative.score is not None:
        told.append(f"score={alternative.score:.3f}")
    if alternative.quality is not None:
        told.append(f"quality={alternative.quality:.2f}")
    if alternative.flags:
        told.append(f"flags={alternative.flags}")
    return ", ".join(told)


def _judged(sentence: Sentence) -> str:
    told = [] if sentence.score is None else [f"{sentence.score:.3f}"]
    told += [] if sentence.quality is None else [f"quality {sentence.quality:.2f}"]
    return ", ".join(told + sentence.flags)


def translation(raw: Mapping[str, Any]) -> Translation:
    """A translation from what the engine says of it."""
    source, alternatives = raw["source"], [_alternative(a) for a in raw["alternatives"]]
    text = alternatives[0].text
    sentences = [
        Sentence(Span(*s), Span(*t), source[slice(*s)], text[slice(*t)], score, quality, flags)
        for s, t, score, quality, flags in raw["sentences"]
    ]
    terms = [Term(Span(*s), None if t is None else Span(*t), wanted, how) for s, t, wanted, how in raw["terms"]]
    return Translation(source, alternatives, sentences, terms, raw["pivot"])


def _alternative(raw: Mapping[str, Any]) -> Alternative:
    text = raw["text"]
    return Alternative(
        text=text,
        tokens=raw["tokens"],
        score=raw["score"],
        token_scores=raw["token_scores"],
        words=[Word(text[slice(*place)], Span(*place), score, quality) for place, score, quality in raw["words"]],
        links=[Link(Span(*source), Span(*target), weight) for source, target, weight in raw["links"]],
        quality=raw["quality"],
        flags=raw["flags"],
    )
