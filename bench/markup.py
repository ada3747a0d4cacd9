#!/usr/bin/env python3
"""Counts faults of markup in translated HTML: tags lost, doubled, changed or emptied, blanks that moved, references escaped twice.

  python bench/markup.py OUTPUTS.jsonl [--inputs INPUTS.jsonl] [--field NAME] [--quiet]

OUTPUTS has one object a line: `id`, `input` (or an id of INPUTS), and the translated snippet in NAME (`output`; null if it was refused).
What it finds can be found without knowing a language: it does not see whether a tag is on the right word. Where a line has `defects`,
labels by hand, the two are compared. Bergamot's answers: python bench/markup.py html-bergamot.jsonl --field bergamot
"""
import argparse, collections, html, json, re

TOKEN = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?>|<![^>]*>|</?[A-Za-z](?:"[^"]*"|'[^']*'|[^'">])*>|</?[A-Za-z][^>]*>""", re.S)
RAW = re.compile(r"<(script|style)\b.*?</\1>", re.S | re.I)
BLOCKS = set("""address article aside blockquote body br button caption dd details div dl dt fieldset figure footer form h1 h2 h3
    h4 h5 h6 head header hr html legend li main meta nav ol optgroup option p pre section select style script table tbody td textarea tfoot
    th thead title tr ul""".split())
VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "wbr", "x"}
STAY = re.compile(
    r"<(code|kbd|samp|var|math)\b[^>]*>.*?</\1>|<(\w+)\b[^>]*(?:translate=[\"']?no|class=[\"']?notranslate)[^>]*>.*?</\2>", re.S | re.I)
SIGNS = "<>©€@"


def tokens(text):
    """Tags and what is between them: (is it a tag, its text). A script is one tag."""
    found, end = [], 0
    for match in re.finditer(RAW.pattern + "|" + TOKEN.pattern, text, re.S | re.I):
        if match.start() > end:
            found.append((False, text[end:match.start()]))
        found.append((True, match.group()))
        end = match.end()
    if end < len(text):
        found.append((False, text[end:]))
    return found


def name(tag):
    match = re.match(r"</?([A-Za-z][^\s/>]*)", tag)
    return match.group(1).lower() if match else "!"


def plain(text):
    return html.unescape("".join(part for is_tag, part in tokens(text) if not is_tag))


def spaces(text):
    """The white space on both sides of every tag of a block, in order."""
    parts, found = tokens(text), []
    for place, (is_tag, part) in enumerate(parts):
        if is_tag and name(part) in BLOCKS:
            before = parts[place - 1][1] if place and not parts[place - 1][0] else ""
            behind = parts[place + 1][1] if place + 1 < len(parts) and not parts[place + 1][0] else ""
            found.append((before[len(before.rstrip()):], behind[:len(behind) - len(behind.lstrip())]))
    return found


def sides(text):
    """For every element in a text, its tags, its own text, and the characters before and behind it."""
    found = []
    single = r"<!--.*?-->|<(?:img|wbr|x)\b[^>]*>|" + STAY.pattern
    for match in re.finditer(single, text, re.S | re.I):
        found.append((match.group(), text[:match.start()][-1:], text[match.end():][:1]))
    for match in re.finditer(r"(<(\w[\w:-]*)\b[^>]*>)([^<>]*)</\2>", text, re.S):
        found.append((match.group(1) + match.group(3).strip(), text[:match.start()][-1:], text[match.end():][:1]))
        if match.group(3) != match.group(3).strip():
            found.append((match.group(1) + match.group(3).strip() + " inside", "", ""))
    return found


def faults(source, target):
    if target is None:
        return ["refused"]
    found = []
    old, new = (collections.Counter(part for is_tag, part in tokens(text) if is_tag) for text in (source, target))
    lost, more = old - new, new - old
    for tag in lost:
        changed = any(name(other) == name(tag) for other in more)
        found.append("tag bytes changed" if changed else "tag lost")
    for tag in more:
        if tag in old:
            found.append("tag doubled")
    order = lambda text: [name(part) for is_tag, part in tokens(text) if is_tag and name(part) in BLOCKS | VOID | {"!"}]
    if not lost and not more and order(source) != order(target):
        found.append("tags in another order")
    empty = lambda text: len(re.findall(r"<(\w[\w:-]*)\b[^>]*></\1>", text))
    if empty(target) > empty(source):
        found.append("element emptied")
    if "tag lost" not in found and spaces(source) != spaces(target):
        found.append("white space moved across block tags")
    lines = lambda text: [pre.count("\n") for pre in re.findall(r"<pre.*?</pre>", text, re.S)]
    if lines(source) != lines(target):
        found.append("line ends of pre lost")
    for element in STAY.finditer(source):
        if element.group() not in target:
            found.append("text that must stay was changed")
    after = {element: (before, behind) for element, before, behind in sides(target)}
    for element, before, behind in sides(source):
        if element not in after:
            continue
        is_blank = lambda c: c.isspace()
        if name(element) in VOID and before.isalnum() and behind.isalnum() and not after[element][0].isalnum():
            found.append("element moved out of its word")
        for was, now in zip((before, behind), after[element]):
            # At the ends of a block and beside punctuation a translation may do as it likes.
            if was and now and was not in "<>.,;:!?" and now not in "<>.,;:!?" and is_blank(was) != is_blank(now):
                found.append("blank lost or put beside a tag")
            elif was in ("<", ">") and is_blank(now) and not element.startswith("<!"):
                found.append("blank lost or put beside a tag")
    inside = lambda text: sum(element.endswith(" inside") for element, _, _ in sides(text))
    if inside(target) > inside(source):
        found.append("blank moved into an element")
    if re.search(r"&amp;(?:#?\w+;|-)", target) and not re.search(r"&amp;#?\w+;", source):
        found.append("reference escaped twice")
    for sign in SIGNS:
        if plain(target).count(sign) < plain(source).count(sign):
            found.append("character lost")
    if plain(target).count("\u00a0") < plain(source).count("\u00a0"):
        found.append("nbsp lost")
    doubled = lambda text: len(re.findall(r"\s[.,;:!?](?!\w)|\s\s", plain(re.sub(r"<pre.*?</pre>", "", text, flags=re.S))))
    if doubled(target) > doubled(source):
        found.append("blank before punctuation or two blanks")
    if plain(source).count("\ufffc") < plain(target).count("\ufffc"):
        found.append("mark of an object left over")
    return sorted(set(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs")
    parser.add_argument("--inputs")
    parser.add_argument("--field", default="output")
    parser.add_argument("--quiet", action="store_true", help="only the counts")
    args = parser.parse_args()
    read = lambda path: [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]
    inputs = {line["id"]: line["input"] for line in read(args.inputs)} if args.inputs else {}
    counts, clean, total, agree, labelled = collections.Counter(), 0, 0, 0, 0
    for line in read(args.outputs):
        source = inputs[line["id"]] if inputs else line["input"]
        found = faults(source, line[args.field])
        total += 1
        clean += not found
        counts.update(found)
        note = ""
        if "defects" in line:
            labelled += 1
            same = bool(found) == bool(line["defects"])
            agree += same
            note = "" if same else f"   by hand: {line['defects']}"
        if not args.quiet and (found or note):
            print(line["id"], ", ".join(found) or "-", note)
    for fault, count in counts.most_common():
        print(f"{count:4} {fault}")
    print(f"{clean} of {total} without fault")
    if labelled:
        print(f"{agree} of {labelled} as by hand (faulty or not)")


if __name__ == "__main__":
    main()
