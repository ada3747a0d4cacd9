"""A user's script: mypy --strict and pyright must be content with it, and find the errors that are marked."""

from __future__ import annotations

import asyncio
from typing import Iterable, Iterator, List, Optional

import peregrine
import peregrine.compat.ctranslate2 as ctranslate2
import peregrine.ray
from peregrine import corpus


def lines() -> Iterator[str]:
    yield "Good morning!"


async def later(translator: peregrine.Translator) -> str:
    return await translator.atranslate("Good morning!", beam=2)


def main() -> None:
    with peregrine.Translator(device="cpu", threads=1) as translator:
        one: str = translator.translate("Good morning!", carry=False, split="none")
        many: List[str] = translator.translate(["a", "b"], beam=4, glossary={"bus": ["ônibus", "autocarro"], "BMW": None})
        stream: Iterable[str] = translator.translate(lines(), progress=True)
        full: peregrine.Translation = translator.translate_full("a", n_best=2, scores=True)
        texts: List[str] = [t.text for t in translator.translate_full(["a", "b"], alignments=True)]
        score: Optional[float] = full.score
        words: List[str] = [link.source.of(full.source) for link in full.links]
        probabilities: List[float] = translator.score(["a"], ["b"])
        future: str = translator.submit("a", prefix="b").result()
        page: bytes = translator.translate_document(b"<p>a</p>", "html", beam=1)
        language: Optional[str] = peregrine.detect("a").language
        print(one, many, list(stream), texts, score, words, probabilities, future, page, language)
        print(asyncio.run(later(translator)))
        translator.translate("a", beams=3)  # type: ignore  # wrong: there is no such option
        translator.translate(3)  # type: ignore  # wrong: no text
    plan = corpus.Plan("in", "out", model="model", column="body", keep=["id"], options={"beam": 1}, device="cpu")
    report: corpus.Report = corpus.run(plan, workers=2, threads=1, tell=corpus.show)
    rate: float = peregrine.ray.run(plan, num_cpus=4).rate
    problems: List[Optional[str]] = [failure.error for failure in report.failures]
    print(rate, problems, [partition.name for partition in plan.partitions])
    corpus.Plan("in", "out", options={"beams": 3})  # type: ignore  # wrong: there is no such option
    shim = ctranslate2.Translator("model")
    shim.translate_batch([["a"]], beam_size=4)


if __name__ == "__main__":
    main()
