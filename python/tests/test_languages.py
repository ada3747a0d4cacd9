"""Languages of multilingual models, and models chosen by languages."""

from __future__ import annotations

import shutil
from pathlib import Path

import peregrine
import pytest

MODEL = Path(__file__).parents[2] / "tests" / "fixtures" / "m2m100" / "hf"
TEXT = "My brother repairs old clocks."


@pytest.fixture(scope="module")
def multilingual():
    return peregrine.Translator(MODEL, threads=1)


def test_languages_belong_to_the_call(multilingual):
    # The model puts English in lower case where it should be Portuguese, and copies it for French.
    portuguese = multilingual.translate(TEXT, from_="en", to="pt")
    french = multilingual.translate([TEXT] * 3, from_="English", to="fr")
    assert portuguese == portuguese.lower() != french[0]
    assert french == [french[0]] * 3
    assert list(multilingual.translate(iter([TEXT]), from_="en", to="fr")) == [french[0]]
    assert multilingual.translate_full(TEXT, from_="en", to="pt").text == portuguese
    assert multilingual.submit(TEXT, from_="en", to="pt").result() == portuguese


def test_languages_of_a_translator(multilingual):
    translator = peregrine.Translator(MODEL, from_="en", to="pt", threads=1)
    assert translator.translate(TEXT) == multilingual.translate(TEXT, from_="en", to="pt")
    assert translator.languages == ("en", "pt")
    assert translator.translate(TEXT, to="fr") == multilingual.translate(TEXT, from_="en", to="fr")


def test_a_language_that_is_missing_is_an_error(multilingual):
    with pytest.raises(peregrine.Error, match="target language"):
        multilingual.translate(TEXT)
    with pytest.raises(peregrine.Error, match="Klingon"):
        multilingual.translate(TEXT, from_="en", to="Klingon")


def test_models_of_a_folder(tmp_path):
    shutil.copytree(MODEL, tmp_path / "m2m")
    translator = peregrine.Translator(models=tmp_path, from_="en", to="Portuguese", threads=1)
    assert translator.translate(TEXT) == translator.translate(TEXT).lower()
    with pytest.raises(ValueError, match="no model"):
        peregrine.Translator(models=tmp_path, from_="en", to="tlh")
    with pytest.raises(ValueError, match="needed"):
        peregrine.Translator(models=tmp_path)
