"""The interface of CTranslate2: the same calls on both libraries.

Where CTranslate2 is installed and PEREGRINE_CT2_MODEL names one of its models (directory, or that of an Argos package), results are compared
with its own. What needs no model of its own is tested with the built-in one.
"""

from __future__ import annotations

import os
from pathlib import Path

import peregrine
import peregrine.compat.ctranslate2 as shim
import pytest
from conftest import MODEL, SENTENCE, TRANSLATION


@pytest.fixture(scope="module")
def small():
    return shim.Translator(str(MODEL), inter_threads=1, intra_threads=1)


def text(tokens):
    return "".join(tokens).replace("▁", " ").strip()


SOURCE = peregrine.Translator(threads=1).tokenize(SENTENCE)


def test_tokens_in_and_out(small):
    (result,) = small.translate_batch([SOURCE], beam_size=1)
    assert text(result.hypotheses[0]) == TRANSLATION and SENTENCE == text(SOURCE)
    assert result.scores == [] and result.attention == []
    (result,) = small.translate_batch([SOURCE], beam_size=4, num_hypotheses=3, return_scores=True, return_attention=True)
    assert len(result.hypotheses) == len(result.scores) == len(result.attention) == 3
    assert len(result.attention[0]) == len(result.hypotheses[0])
    assert {len(row) for row in result.attention[0]} == {len(SOURCE)} and sum(result.attention[0][0]) <= 1.001


def test_unknown_and_empty_tokens_are_unknown_words(small):
    results = small.translate_batch([["two words", ""], [], SOURCE], beam_size=1)
    assert results[1].hypotheses == [[]]
    assert text(results[2].hypotheses[0]) == TRANSLATION


def test_iterables_and_later_results(small):
    one = small.translate_batch([SOURCE])[0]
    assert list(small.translate_iterable(iter([SOURCE] * 5), max_batch_size=2)) == [one] * 5
    later = small.translate_batch([SOURCE] * 2, asynchronous=True)
    assert [result.result() for result in later] == [one] * 2 and all(result.done() for result in later)


def test_scores(small):
    target = small.translate_batch([SOURCE])[0].hypotheses[0]
    (scored,) = small.score_batch([SOURCE], [target])
    assert scored.tokens == [*target, "</s>"] and len(scored.log_probs) == len(scored.tokens)
    assert list(small.score_iterable([SOURCE], [target])) == [scored]
    assert small.score_batch([SOURCE], [target], offset=2)[0].log_probs == scored.log_probs[2:]


def test_what_cannot_be_done_is_refused_by_name(small):
    for argument in ({"repetition_penalty": 1.2}, {"sampling_topk": 5}, {"end_token": "x"}, {"callback": print}):
        with pytest.raises(NotImplementedError, match=next(iter(argument))):
            small.translate_batch([SOURCE], **argument)
    with pytest.raises(ValueError):
        small.translate_batch([SOURCE], beam_size=1, num_hypotheses=2)
    with pytest.raises(TypeError):
        small.translate_batch([SOURCE], beams=1)


def model_directory() -> Path:
    path = Path(os.environ.get("PEREGRINE_CT2_MODEL", ""))
    if not os.environ.get("PEREGRINE_CT2_MODEL"):
        pytest.skip("skipped: no model of CTranslate2 (PEREGRINE_CT2_MODEL)")
    return path / "model" if (path / "model" / "model.bin").exists() else path


SENTENCES = [
    ["▁你", "好", "。"],
    ["▁两只", "狗", "在", "雪", "中", "玩耍", "。"],
    ["▁我们", "▁明天", "▁去", "北京", "。"],
    ["▁这个", "▁问题", "▁很", "难", "，", "我", "不知道", "。"],
    ["▁no-such-piece", "▁我"],
    ["▁他", "们", "在", "学校", "里", "学习", "数学", "和", "物理", "。"],
]

#: Calls that both libraries must answer alike.
CALLS = [
    {},
    {"return_scores": True},
    {"beam_size": 1},
    {"beam_size": 1, "return_scores": True},
    {"beam_size": 4, "return_scores": True},
    {"beam_size": 5, "num_hypotheses": 5, "return_scores": True},
    {"beam_size": 3, "num_hypotheses": 2},
    {"length_penalty": 0, "return_scores": True},
    {"length_penalty": 0.6, "return_scores": True},
    {"length_penalty": 2, "beam_size": 4, "return_scores": True},
    {"max_decoding_length": 3, "return_scores": True},
    {"max_decoding_length": 5, "beam_size": 1},
    {"min_decoding_length": 12, "return_scores": True},
    {"min_decoding_length": 9, "beam_size": 1},
    {"disable_unk": True, "return_scores": True},
    {"max_input_length": 3, "return_scores": True},
    {"max_input_length": 0},
    {"max_batch_size": 2},
    {"max_batch_size": 16, "batch_type": "tokens"},
    {"replace_unknowns": True},
    {"use_vmap": False, "beam_size": 6, "return_scores": True},
    {"target_prefix": [["▁The"]] * len(SENTENCES), "return_scores": True},
    {"target_prefix": [["▁We", "▁are"], None, ["▁I"], [], ["▁no-such"], ["▁They"]], "return_scores": True},
    {"target_prefix": [["▁The"]] * len(SENTENCES), "beam_size": 1, "return_scores": True},
]


@pytest.fixture(scope="module")
def both():
    directory = str(model_directory())
    theirs = pytest.importorskip("ctranslate2")
    options = {"compute_type": "float32", "inter_threads": 1, "intra_threads": 1}
    return shim.Translator(directory, **options), theirs.Translator(directory, **options)


def alike(ours, theirs):
    assert ours.hypotheses == theirs.hypotheses
    assert ours.scores == pytest.approx(theirs.scores, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_both_libraries_answer_alike(both, call):
    ours, theirs = (library.translate_batch(SENTENCES, **call) for library in both)
    for one, other in zip(ours, theirs):
        alike(one, other)


def test_both_iterate_alike(both):
    for call in ({}, {"beam_size": 4, "num_hypotheses": 2, "return_scores": True}):
        ours, theirs = (list(library.translate_iterable(iter(SENTENCES * 3), **call)) for library in both)
        assert len(ours) == len(theirs) == 3 * len(SENTENCES)
        for one, other in zip(ours, theirs):
            alike(one, other)


def test_both_score_alike(both):
    targets = [result.hypotheses[0] for result in both[1].translate_batch(SENTENCES)]
    for call in ({}, {"offset": 2}, {"max_input_length": 4}):
        ours, theirs = (library.score_batch(SENTENCES, targets, **call) for library in both)
        for one, other in zip(ours, theirs):
            assert one.tokens == other.tokens
            assert one.log_probs == pytest.approx(other.log_probs, rel=1e-4, abs=1e-4)


def test_both_attend_alike(both):
    # One by one: in a batch, CTranslate2 gives some sentences the first row of another.
    for sentence in SENTENCES[:4]:
        one, other = (library.translate_batch([sentence], return_attention=True)[0] for library in both)
        assert len(one.attention[0]) == len(other.attention[0])
        for row, expected in zip(one.attention[0], other.attention[0]):
            assert row == pytest.approx(expected, abs=1e-3)
