#!/usr/bin/env python3
"""Puts a tag round each word of real sentences, one at a time, translates them, and looks where the tags went.

  python bench/tags.py BINARY MODEL SCORES.jsonl SOURCE

SCORES has, for lines of SOURCE by their number, another engine's translation and which source words each of its words comes from (Bergamot's
for 50 lines of FLORES: bergamot-scores.jsonl). Where both say the same sentence, the words in a tag should be those that come
from the tagged word. Words whose tag the other engine emptied or split are left out of that comparison.
"""
import html, json, re, subprocess, sys

TAG = re.compile(r"<b>(.*?)</b>", re.S)


def words_of(text, inside):
    """Which words of a text are inside a range of characters, at least in part, by number."""
    found = [match.span() for match in re.finditer(r"\S+", text)]
    return {number for number, (start, end) in enumerate(found) if start < inside[1] and end > inside[0]}


def main():
    binary, model, scores, source = sys.argv[1:]
    lines = [json.loads(line) for line in open(scores, encoding="utf-8")]
    text = open(source, encoding="utf-8").read().split("\n")
    page, asked = [], []
    for line in lines:
        sentence = text[line["flores_devtest_line"] - 1]
        for number, word in enumerate(re.finditer(r"\S+", sentence)):
            before, inside, behind = (html.escape(part, quote=False) for part in
                                      (sentence[:word.start()], word.group(), sentence[word.end():]))
            page.append(f"<p>{before}<b>{inside}</b>{behind}</p>\n")
            asked.append((line, number))
    run = [binary, "translate", "-q", "-m", model, "--format", "html"]
    made = subprocess.run(run, input="".join(page).encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    answers = re.findall(r"<p>(.*?)</p>", made, re.S)
    assert len(answers) == len(asked)
    counts = dict.fromkeys(["split", "empty", "same sentence", "compared", "agree", "overlap"], 0)
    for (line, number), answer in zip(asked, answers):
        tags = TAG.findall(answer)
        counts["split"] += len(tags) != 1
        if len(tags) != 1:
            continue
        counts["empty"] += not tags[0].strip()
        start = len(html.unescape(answer[:answer.index("<b>")]))
        plain = html.unescape(answer.replace("<b>", "").replace("</b>", ""))
        if plain != line["target"]:
            continue
        counts["same sentence"] += 1
        if number in line["tag_empty"] or number in line["tag_split"]:
            continue
        counts["compared"] += 1
        ours = words_of(plain, (start, start + len(html.unescape(tags[0]))))
        theirs = {at for at, (_, sources) in enumerate(line["word_alignment"]) if number in sources}
        counts["agree"] += ours == theirs
        counts["overlap"] += bool(ours & theirs)
    total = len(asked)
    print(f"{total} tags: {counts['split']} not exactly once, {counts['empty']} empty")
    print(f"{counts['same sentence']} in the same sentence, {counts['compared']} compared: "
          f"{counts['agree'] / max(1, counts['compared']):.1%} round the same words, {counts['overlap'] / max(1, counts['compared']):.1%} round some of them")


if __name__ == "__main__":
    main()
