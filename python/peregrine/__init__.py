"""Neural machine translation with the models people already have.

>>> import peregrine
>>> translator = peregrine.Translator()  # the built-in English-Portuguese model, or the path of one
>>> translator.translate("Two dogs play in the snow.")
'Dois cães brincam na neve.'
>>> translator.translate(["Good morning!", "It is raining."])
['Bom dia!', 'Está chovendo.']
"""

from __future__ import annotations

from ._options import Options
from ._peregrine import VERSION as __version__
from ._peregrine import Error, Glossary
from ._results import Alternative, Detection, Link, Sentence, Span, Term, Translation, Word
from ._translator import Translator, detect

__all__ = [
    "Alternative",
    "Detection",
    "Error",
    "Glossary",
    "Link",
    "Options",
    "Sentence",
    "Span",
    "Term",
    "Translation",
    "Translator",
    "Word",
    "__version__",
    "detect",
]
