"""What the tests share. They are about the installed package, so no path is set here."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import peregrine
import pytest
from peregrine import corpus

SENTENCE, TRANSLATION = "Two dogs play in the snow.", "Dois cães brincam na neve."

#: A model with a path: the file that is built in.
MODEL = Path(__file__).parents[2] / "crates" / "peregrine" / "models" / "en-pt.peregrine"


def different(count: int) -> list[str]:
    """Sentences that differ."""
    nouns = ["dogs", "cats", "children", "women", "men", "birds", "horses"]
    places = ["in the snow", "on the beach", "near the old station", "behind our house"]
    return [f"{i} {nouns[i % 7]} play {places[i % 4]}." for i in range(count)]


@pytest.fixture(scope="session")
def translator() -> Iterator[peregrine.Translator]:
    with peregrine.Translator(threads=2) as translator:
        yield translator


@pytest.fixture(scope="session")
def local() -> Callable[..., corpus.Report]:
    """Carries out a plan with one worker."""
    return lambda plan, **more: corpus.run(plan, workers=1, threads=2, **more)
