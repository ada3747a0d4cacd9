"""Languages of multilingual models, and models chosen by languages."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import peregrine
import pytest
from conftest import MODEL as BUILT_IN
from conftest import SENTENCE, TRANSLATION

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
    with pytest.raises(ValueError, match="instead of model"):
        peregrine.Translator(MODEL, models=tmp_path, from_="en", to="pt")
    with pytest.raises(peregrine.Error, match="nothing: No such file"):
        peregrine.Translator(models=tmp_path / "nothing", from_="en", to="pt")


def test_a_model_of_a_folder_is_known_by_its_path(tmp_path, monkeypatch):
    shutil.copytree(MODEL, tmp_path / "models" / "m2m")
    monkeypatch.chdir(tmp_path)
    translator = peregrine.Translator(models="models", from_="en", to="pt", threads=1)
    assert translator.model == [str(tmp_path / "models" / "m2m")] and "m2m" in repr(translator)
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(translator))
    assert copy.translate(TEXT) == translator.translate(TEXT)


def test_two_models_of_a_folder(tmp_path):
    for name in ("en-pt", "pt-fr"):
        shutil.copy(BUILT_IN, tmp_path / f"{name}.peregrine")
    translator = peregrine.Translator(models=tmp_path, from_="en", to="fr", threads=1)
    assert translator.translate_full(SENTENCE).pivot == TRANSLATION
    assert translator.model == [str(tmp_path / "en-pt.peregrine")]


def test_a_corpus_with_models_of_a_folder(multilingual, tmp_path):
    shutil.copytree(MODEL, tmp_path / "models" / "m2m")
    (tmp_path / "a.txt").write_text(f"{TEXT}\n")
    arguments = ["--models", tmp_path / "models", "--from", "en", "--to", "pt", "--threads", "1", "-q"]
    command = [sys.executable, "-m", "peregrine", "corpus", tmp_path / "a.txt", tmp_path / "out", *arguments]
    subprocess.run(command, check=True, timeout=60)
    assert (tmp_path / "out/a.txt").read_text() == multilingual.translate(TEXT, from_="en", to="pt") + "\n"
    # Other models in the folder change nothing; the one that is used is in the record by its content.
    shutil.copy(BUILT_IN, tmp_path / "models" / "de-fr.peregrine")
    assert subprocess.run(command, timeout=60).returncode == 0
    (tmp_path / "models" / "m2m" / "more").write_text("x")
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert done.returncode == 2 and "begun with setting model" in done.stderr and done.stderr.count("\n") == 1
