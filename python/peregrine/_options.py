"""How texts are translated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Mapping, Sequence, TypedDict, Union

if TYPE_CHECKING:
    from typing import Literal

    from ._peregrine import Glossary

StrPath = Union[str, "os.PathLike[str]"]


class Options(TypedDict, total=False):
    """Options of a translation, by the names that the command has for them.

    What is left out, or is None, is as the model's configuration says. By default lines are split into sentences, what the model cannot
    spell is carried through, and sentences that repeat themselves are translated again. ``split="none", carry=False, guards=False``
    gives what the model's original tool gives.
    """

    from_: str | None
    """The language of the texts, for multilingual models."""
    to: str | None
    """The language of the translations, for multilingual models."""
    beam: int | None
    """Hypotheses kept for a sentence; 1 is greedy search."""
    normalize: float | None
    """Scores are divided by the length to this power."""
    word_penalty: float | None
    """What is taken off the score for every target token."""
    max_length_factor: float | None
    """Most target tokens for each source token."""
    max_length: int | None
    """Most target tokens of a sentence."""
    min_length: int | None
    """Fewest target tokens of a sentence."""
    max_source: int | None
    """Most source tokens of a sentence; a longer one is cut."""
    early_stop: float | None
    """A search ends when its best open hypothesis is this much worse than its best finished one."""
    allow_unk: bool | None
    """Whether the unknown word may be in a translation."""
    guards: bool | None
    """Whether sentences that repeat themselves or do not end are translated again."""
    shortlist: bool | None
    """Whether the model's shortlist, if it has one, limits the words."""
    refuse_long: bool | None
    """Whether a sentence that is too long for the model is an error; otherwise it is cut."""
    split: Literal["none", "sentence", "paragraph"] | None
    """How texts are split into sentences. With ``paragraph`` sentences may go on over the items of a list."""
    carry: bool | None
    """Whether what the model cannot spell is carried through: addresses, placeholders, emoji."""
    glossary: Mapping[str, str | Sequence[str] | None] | StrPath | Glossary | None
    """How terms are translated: a dictionary (a term's translation, several forms of it, or None to keep it), or the path of a file."""
    glossary_mode: Literal["constrain", "mask", "replace"] | None
    """How terms get into a translation."""
    replace_unknown: bool | StrPath | None
    """Whether unknown words become the source words they attend to, or the path of a dictionary for those."""
    tokens: bool | None
    """Whether texts are tokens of the model's vocabulary with blanks between them, and not text."""
