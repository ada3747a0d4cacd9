"""All that is known of a translation."""

from __future__ import annotations

import pickle

import pytest
from conftest import SENTENCE, TRANSLATION


def test_ranges_are_code_points(translator):
    text = "🐕🐕 Good morning! Two dogs play in the snow."
    result = translator.translate_full(text, alignments=True)
    assert result.source == text and str(result) == result.text
    assert [s.source.of(text) for s in result.sentences] == [s.source_text for s in result.sentences]
    last = result.sentences[-1]
    assert (last.source_text, last.text) == (SENTENCE, TRANSLATION)
    assert last.target.of(result.text) == TRANSLATION
    links = {link.source.of(text): link.target.of(result.text) for link in result.links}
    assert links["dogs"] == "cães" and links["snow."] == "neve."
    assert all(word.span.of(result.text) == word.text for word in result.words)


def test_what_was_not_asked_for_is_not_there(translator):
    plain = translator.translate_full(SENTENCE)
    assert plain.text == TRANSLATION and plain.score is None and plain.quality is None
    assert plain.links == [] and plain.flags == [] and plain.pivot is None
    scored = translator.translate_full(SENTENCE, scores=True)
    assert scored.score < 0 and len(scored.alternatives[0].token_scores) == len(scored.alternatives[0].tokens) + 1
    total = sum(word.score for word in scored.words)
    assert total == pytest.approx(sum(scored.alternatives[0].token_scores[:-1]), abs=1e-3)


def test_alternatives_are_ranked(translator):
    result = translator.translate_full(SENTENCE, n_best=4, scores=True)
    scores = [one.score for one in result.alternatives]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)
    assert len({one.text for one in result.alternatives}) > 1


def test_quality_and_flags(translator):
    good = translator.translate_full(SENTENCE, quality=True)
    assert 0 <= good.quality <= 1 and good.flags == []
    assert "cut" in translator.translate_full("word " * 3000, split="none", carry=False).flags


def test_lists_have_the_same_results(translator):
    texts = [SENTENCE, "", "Good morning!"] * 40
    results = translator.translate_full(texts, scores=True)
    assert [r.text for r in results] == translator.translate(texts)
    assert results[0] == results[3] and results[0] == translator.translate_full(SENTENCE, scores=True)
    with pytest.raises(TypeError, match="expected str, list or tuple"):
        translator.translate_full(iter(texts))


def test_terms(translator):
    result = translator.translate_full(SENTENCE, glossary={"dogs": "cachorros"})
    (term,) = result.terms
    assert term.source.of(SENTENCE) == "dogs" and term.target.of(result.text) == "cachorros"
    assert term.how == "constrained"


def test_results_pickle(translator):
    result = translator.translate_full(SENTENCE, alignments=True, scores=True)
    assert pickle.loads(pickle.dumps(result)) == result


def test_representations(translator):
    result = translator.translate_full(SENTENCE, n_best=2, scores=True, alignments=True)
    assert repr(result).startswith(f"Translation({TRANSLATION!r}, score=-")
    assert repr(result).endswith(", and 1 more)")
    html = translator.translate_full('<b onclick="x">Two dogs</b> & play.', alignments=True)._repr_html_()
    assert "<b" not in html and "onclick=\"" not in html and "&lt;b" in html
    assert 'title="dogs' in result._repr_html_()


def test_scores_of_given_translations(translator):
    right, wrong = translator.score([SENTENCE] * 2, [TRANSLATION, "Cachorro neve."])
    assert right > wrong
    assert translator.score(SENTENCE, TRANSLATION) == right
    many = translator.score([SENTENCE] * 500, [TRANSLATION] * 500)
    assert many == [right] * 500
    with pytest.raises(ValueError, match="2 sources and 1 translations"):
        translator.score(["a", "b"], ["c"])
    with pytest.raises(TypeError):
        translator.score("a", ["b"])
