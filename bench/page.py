#!/usr/bin/env python3
"""What a web page costs over its text alone: a page of a megabyte, and its paragraphs as lines, in turns.

  python bench/page.py BINARY MODEL SOURCE [ROUNDS] [OPTION...]

SOURCE is text, a sentence a line. One word in ten is bold, one sentence in five has a link. Processor time, on one core.
"""
import html, random, re, resource, statistics, subprocess, sys, tempfile

SIZE = 1_000_000


def page_of(sentences):
    """A page of about SIZE bytes and its paragraphs."""
    rng = random.Random(1)
    parts, paragraphs, size = ["<!DOCTYPE html>\n<html lang=en><head><title>Notes</title></head>\n<body>\n"], ["Notes"], 0
    while size < SIZE:
        chosen = [rng.choice(sentences) for _ in range(rng.randint(1, 4))]
        paragraphs.append(" ".join(chosen))
        marked = []
        for sentence in chosen:
            words = [f"<b class=x>{html.escape(w)}</b>" if rng.random() < 0.1 else html.escape(w) for w in sentence.split(" ")]
            if rng.random() < 0.2:
                at = rng.randrange(len(words))
                words[at] = f'<a href="https://example.org/{at}?a=1&amp;b=2">{words[at]}</a>'
            marked.append(" ".join(words))
        parts.append(f'<div class="section"><p id="p{len(parts)}">{" ".join(marked)}</p></div>\n')
        size += len(parts[-1].encode())
    return "".join(parts) + "</body></html>\n", paragraphs


def main():
    binary, model, source, *rest = sys.argv[1:]
    rounds = int(rest[0]) if rest else 5
    sentences = [line for line in open(source, encoding="utf-8").read().split("\n") if line]
    page, paragraphs = page_of(sentences)
    with tempfile.TemporaryDirectory() as folder:
        names = {"text": f"{folder}/text.txt", "page": f"{folder}/page.html"}
        open(names["text"], "w", encoding="utf-8").write("\n".join(paragraphs) + "\n")
        open(names["page"], "w", encoding="utf-8").write(page)
        times = {name: [] for name in names}
        for _ in range(rounds):
            for name, path in names.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                run = ["taskset", "-c", "1", binary, "translate", "-q", "-t", "1", "-m", model, "-i", path, "-o", f"{folder}/out", *rest[1:]]
                subprocess.run(run, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                times[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        out = open(f"{folder}/out", encoding="utf-8").read()
        assert re.findall(r"<p id[^>]*>|</?div[^>]*>", page) == re.findall(r"<p id[^>]*>|</?div[^>]*>", out)
        ratios = [page / text for text, page in zip(times["text"], times["page"])]
        print(f"{len(page.encode())} bytes, {len(paragraphs)} paragraphs; text {statistics.median(times['text']):.2f} s, page "
              f"{statistics.median(times['page']):.2f} s; the page costs {statistics.median(ratios):.3f} of its text "
              f"({min(ratios):.3f} to {max(ratios):.3f}), lowest of each {min(times['page']) / min(times['text']):.3f}")


if __name__ == "__main__":
    main()
