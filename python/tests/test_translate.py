"""Texts in, texts out."""

from __future__ import annotations

import logging
from pathlib import Path

import peregrine
import pytest
from conftest import MODEL, SENTENCE, TRANSLATION, different


def test_a_str_gives_a_str(translator):
    assert translator.translate(SENTENCE) == TRANSLATION
    assert translator.translate("") == ""
    assert translator.translate("Hi {name} 🦀!").count("{name}") == 1


def test_a_list_or_tuple_gives_a_list_in_order(translator):
    texts = different(300)
    alone = [translator.translate(text) for text in texts[:20]]
    together = translator.translate(texts)
    assert together[:20] == alone
    assert translator.translate(tuple(texts[:3])) == alone[:3]
    assert translator.translate([]) == []
    assert [text.split()[0] for text in together] == [str(i) for i in range(300)]


def test_an_iterable_gives_an_iterator_in_order(translator):
    texts = different(300)
    result = translator.translate(text for text in texts)
    assert not isinstance(result, list)
    assert list(result) == translator.translate(texts)
    assert list(translator.translate(iter([]))) == []
    assert sorted(translator.translate({SENTENCE})) == [TRANSLATION]


def test_an_iterator_pulls_a_bounded_number_of_texts(translator):
    pulled = 0

    def endless():
        nonlocal pulled
        while True:
            pulled += 1
            yield SENTENCE

    result = translator.translate(endless())
    assert pulled == 0, "nothing is pulled before it is needed"
    for number in range(1, 100):
        assert next(result) == TRANSLATION
        # As many as a stream reads ahead: 16 for each of 64 sentences of each worker.
        assert pulled <= number + 16 * 64 * translator.threads
    del result


def test_what_an_iterable_raises_comes_behind_the_translations_before_it(translator):
    def broken():
        yield SENTENCE
        yield SENTENCE
        raise RuntimeError("the source is gone")

    result, seen = translator.translate(broken()), []
    with pytest.raises(RuntimeError, match="the source is gone"):
        for text in result:
            seen.append(text)
    assert seen == [TRANSLATION] * 2
    assert list(result) == [], "an iterator that has ended stays ended"


def test_wrong_types_are_type_errors(translator):
    for wrong in (3, None, b"bytes", {"a": "b"}, 2.5):
        with pytest.raises(TypeError, match="expected str"):
            translator.translate(wrong)
    with pytest.raises(TypeError, match="text 1: expected str, not int"):
        translator.translate(["a", 3])
    result = translator.translate(iter([SENTENCE, 3]))
    assert next(result) == TRANSLATION
    with pytest.raises(TypeError, match="text 1: expected str, not int"):
        next(result)
    with pytest.raises(TypeError, match='no option "beams"'):
        translator.translate("a", beams=3)
    with pytest.raises(TypeError, match="beam: expected int, not str"):
        translator.translate("a", beam="3")
    with pytest.raises(TypeError, match="carry: expected bool, not int"):
        translator.translate("a", carry=1)
    with pytest.raises(TypeError):
        peregrine.Translator(tread=3)
    for settings in ({"threads": "2"}, {"device": 3}, {"vocab": ("a",)}):
        with pytest.raises(TypeError, match=f"{next(iter(settings))}: expected"):
            peregrine.Translator(**settings)
    with pytest.raises(TypeError, match="target 0: expected str, not int"):
        translator.score(["a"], [3])


def test_wrong_values_are_value_errors(translator):
    for options in ({"beam": 0}, {"beam": -1}, {"split": "words"}, {"normalize": -1.0}, {"max_length": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            translator.translate("a", **options)
    for settings in ({"device": "tpu"}, {"precision": "int9"}, {"threads": 0}, {"memory": "3 apples"}, {"settings": {"a": 1}}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            peregrine.Translator(**settings)


def test_what_cannot_be_opened_is_an_error_of_one_line(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"no model")
    for path in (tmp_path / "none", tmp_path / "x.npz"):
        with pytest.raises(peregrine.Error) as caught:
            peregrine.Translator(path)
        assert str(path.name) in str(caught.value) and "\n" not in str(caught.value)
        assert "os error" not in str(caught.value)


def test_options_reach_the_search(translator):
    text = "Two dogs play in the snow. 🐕 Visit https://example.com/a?b now!"
    assert "https://example.com/a?b" in translator.translate(text)
    bare = translator.translate(text, split="none", carry=False, guards=False)
    assert bare != translator.translate(text)
    assert len(translator.translate(SENTENCE, max_length=3)) < len(TRANSLATION)
    assert translator.translate(SENTENCE, beam=4) == translator.translate([SENTENCE], beam=4)[0]
    with pytest.raises(peregrine.Error, match="too long"):
        translator.translate("a word and " * 2000, refuse_long=True, split="none")


def test_glossaries(translator, tmp_path):
    expected = translator.translate(SENTENCE, glossary={"dogs": "cachorros"})
    assert expected == "Dois cachorros jogam na neve."
    ready = peregrine.Glossary({"dogs": ["cachorros", "cachorras"]})
    assert len(ready) == 1 and translator.translate([SENTENCE], glossary=ready) == [expected]
    file = tmp_path / "terms.tsv"
    file.write_text("dogs\tcachorros\n", encoding="utf-8")
    assert translator.translate(SENTENCE, glossary=file) == expected
    assert "dogs" in translator.translate(SENTENCE, glossary={"dogs": None})
    file.write_text("dogs\n", encoding="utf-8")
    with pytest.raises(peregrine.Error, match=r"terms.tsv.*line 1.*no tab"):
        translator.translate(SENTENCE, glossary=file)
    with pytest.raises(TypeError, match="glossary"):
        translator.translate(SENTENCE, glossary=3)


def test_prefixes(translator):
    assert translator.translate(SENTENCE, prefix="Um par").startswith("Um par")
    first, second = translator.translate([SENTENCE, SENTENCE], prefix=["Um par", None])
    assert first.startswith("Um par") and second == TRANSLATION
    with pytest.raises(ValueError, match="one for each"):
        translator.translate([SENTENCE], prefix=["a", "b"])
    with pytest.raises(TypeError, match="prefix"):
        translator.translate(SENTENCE, prefix=["a"])


def test_texts_of_tokens(translator):
    source = translator.tokenize(SENTENCE)
    assert "".join(source).replace("▁", " ").strip() == SENTENCE
    tokens = translator.translate_full(" ".join(source), tokens=True).alternatives[0].tokens
    assert translator.detokenize(tokens) == TRANSLATION
    given = translator.score(" ".join(source), " ".join(tokens), tokens=True)
    assert given == translator.score(SENTENCE, TRANSLATION) < 0


def test_halves_of_surrogate_pairs_are_translated_as_no_character(translator):
    assert translator.translate("\ud800") == translator.translate("\ufffd" * 3)


def test_a_closed_translator_says_so(translator):
    with peregrine.Translator(threads=1) as closed:
        assert closed.translate(SENTENCE) == TRANSLATION
    for call in (closed.translate, closed.submit, closed.translate_full):
        with pytest.raises(peregrine.Error, match="closed"):
            call(SENTENCE)
    closed.close()
    assert "closed" in repr(closed)


def test_what_a_translator_says_of_itself(translator):
    assert translator.model == [] and translator.threads == 2
    assert translator.languages == ("en", "pt")
    assert translator.precision == "int8" and translator.device
    assert "built-in" in repr(translator)
    other = peregrine.Translator(MODEL, device="cpu", precision="float32", threads=1)
    assert other.model == [str(MODEL)] and other.precision == "float32"
    assert other.translate(SENTENCE) == TRANSLATION


def test_two_models_in_a_row():
    twice = peregrine.Translator(then=MODEL, threads=1)
    result = twice.translate_full(SENTENCE)
    assert result.pivot == TRANSLATION and result.source == SENTENCE
    assert twice.submit(SENTENCE).result() == result.text == twice.translate([SENTENCE])[0]
    with pytest.raises(ValueError, match="score"):
        twice.score("a", "b")


def test_notes_go_to_logging(caplog, tmp_path):
    with caplog.at_level(logging.INFO, "peregrine"):
        peregrine.Translator(MODEL, device="cpu", settings={"tune": "precisions"}, threads=1)
    assert any("float32 or int16" in record.message for record in caplog.records)


def test_progress_needs_no_tqdm(translator, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert translator.translate([SENTENCE] * 100, progress=True) == [TRANSLATION] * 100
    assert list(translator.translate(iter([SENTENCE]), progress=True)) == [TRANSLATION]


def test_progress_counts_up(translator, capsys):
    pytest.importorskip("tqdm")
    assert translator.translate([SENTENCE] * 100, progress=True) == [TRANSLATION] * 100
    assert "100/100" in capsys.readouterr().err
    assert list(translator.translate(iter([SENTENCE] * 3), progress=True)) == [TRANSLATION] * 3


def test_languages():
    found = peregrine.detect("Two dogs play in the snow, and nobody minds.", among=["en", "pt"])
    assert found.language == "en" and found.script == "Latn"
    assert peregrine.detect("42").language is None
    with pytest.raises(ValueError, match="Klingon"):
        peregrine.detect("a", among=["Klingon"])
    with pytest.raises(TypeError):
        peregrine.detect(3)


def test_documents(translator, tmp_path):
    page = b"<p>Two <i>dogs</i> play in the snow.</p>"
    assert translator.translate_document(page, "html").decode() == "<p>Dois <i>cães</i> brincam na neve.</p>"
    with pytest.raises(ValueError, match="no format"):
        translator.translate_document(page, "tex")
    with pytest.raises(peregrine.Error, match="PDF"):
        translator.translate_document(b"%PDF-1.7")
    source, target = tmp_path / "a.md", tmp_path / "b.md"
    source.write_text(f"# {SENTENCE}\n\n```\ncode\n```\n", encoding="utf-8")
    translator.translate_file(source, target)
    assert target.read_text(encoding="utf-8") == f"# {TRANSLATION}\n\n```\ncode\n```\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "b.md"]
    with pytest.raises(peregrine.Error, match="none.html: No such file"):
        translator.translate_file(tmp_path / "none.html", target)


def test_examples_in_docstrings_run():
    import doctest

    from peregrine import _results, _translator

    for module in (peregrine, _results, _translator):
        outcome = doctest.testmod(module)
        assert outcome.failed == 0, module.__name__
    assert Path(peregrine.__file__).with_name("py.typed").exists()
