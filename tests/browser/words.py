"""Words of a translation: what they are linked to in the source, which are doubtful, and other translations."""

import time

from chromium import DOWN, ENTER, ESCAPE, RIGHT, TAB, call
from harness import IDLE, TEXT, check, same


def hover_word(browser, index):
    browser.point(2, 2)
    browser.point_at(f"return document.querySelectorAll('#target .word')[{index}].getClientRects()[0]")
    browser.wait("return document.querySelector('#target .word.lit')")


def hover_source_word(browser, start, end):
    browser.point(2, 2)
    browser.point_at(f"const range = document.createRange(), text = mirror.firstChild; range.setStart(text, {start}); range.setEnd(text, {end}); return range.getClientRects()[0]")
    browser.wait("return document.querySelector('#boxes .lit')", what="the source word is lit")


def words_of(browser):
    return [[match[0], match[1]] for match in browser.js(r"return [...source.value.matchAll(/[^\s.,]+/g)].map(m => [m.index, m.index + m[0].length])")]


def lit(browser):
    """Offsets in the translation of the words that are lit."""
    return browser.js("""
      const found = [], range = document.createRange();
      range.selectNodeContents(target);
      for (const word of document.querySelectorAll('#target .word.lit')) {
        range.setEndBefore(word);
        const start = range.toString().length;
        found.push([start, start + word.textContent.length]);
      }
      return found""")


def lit_source(browser):
    """Offsets of the source characters that stand on a lit box."""
    return browser.js("""
      const found = [], range = document.createRange();
      const boxes = [...document.querySelectorAll('#boxes .lit')].map(box => box.getBoundingClientRect());
      for (let at = 0; at < source.value.length; at++) {
        range.setStart(mirror.firstChild, at); range.setEnd(mirror.firstChild, at + 1);
        const r = range.getBoundingClientRect();
        const [x, y] = [r.left + r.width / 2, r.top + r.height / 2];
        if (boxes.some(box => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom)) found.push(at);
      }
      return found""")


def linked(answer, side, word):
    """The ranges on the other side of a word's links, by the server's own answer: strong links only."""
    other = "target" if side == "source" else "source"
    links = [link for sentence in answer["sentences"] for link in sentence["alignments"] if meet(link[side], word)]
    best = max((link["weight"] for link in links), default=0)
    return [link[other] for link in links if link["weight"] >= best / 2]


def meet(a, b):
    return a[0] < b[1] and b[0] < a[1]


def test_hover_shows_the_alignment(browser, site):
    site.open(browser)
    site.translate(browser, TEXT)
    answer = site.ask(TEXT, alignments=True, scores=True, offsets="utf16")
    words = [word["target"] for sentence in answer["sentences"] for word in sentence["words"]]
    for index in (1, 3, len(words) // 2, len(words) - 2):
        hover_word(browser, index)
        same(lit(browser), [words[index]])
        same(lit_source(browser), sorted({at for start, end in linked(answer, "target", words[index]) for at in range(start, end)}))
    hover_word(browser, 5)
    site.picture(browser, "alignment")
    for index in (1, 4):
        word = answer["sentences"][1]["alignments"][index]["source"]
        hover_source_word(browser, *word)
        ranges = linked(answer, "source", word)
        same(lit(browser), [other for other in words if any(meet(other, found) for found in ranges)])
    browser.point(2, 2)
    browser.wait("return !document.querySelector('.lit')", what="nothing is lit when the pointer leaves")


def test_lit_words_can_be_read(browser, site):
    """Boxes are behind the text of the source, not in front of it: looks at pixels."""
    site.open(browser)
    site.translate(browser, TEXT)
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        hover_word(browser, 1)
        time.sleep(0.2)
        picture = "data:image/png;base64," + call("GET", f"{browser.session}/screenshot")["value"]
        browser.js("""
          window.range = null;
          const image = new Image();
          image.onload = () => {
            const r = document.querySelector('#boxes .lit').getBoundingClientRect();
            const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
            canvas.drawImage(image, 0, 0);
            const { data } = canvas.getImageData(r.left, r.top, r.width, r.height);
            const greens = data.filter((_, at) => at % 4 === 1);
            window.range = Math.max(...greens) - Math.min(...greens);
          };
          image.src = arguments[0]""", picture)
        found = browser.wait("return window.range !== null && [window.range]")
        check(found[0] > 100, f"the text on the box cannot be seen in {scheme}: {found}")


def test_mirror_has_the_lines_of_the_text_area(browser, site):
    site.open(browser)
    for text in (TEXT, "word " * 300, "a\n\n\nb\n", "unbreakable" * 60, "  spaces   within \t and tabs  "):
        browser.js("source.value = arguments[0]; source.dispatchEvent(new InputEvent('input', { bubbles: true }))", text)
        for width in (1280, 700, 360):
            browser.size(width, 800)
            check_mirror(browser)


def check_mirror(browser):
    metrics = browser.js("""
      const style = node => { const s = getComputedStyle(node); return ['fontFamily', 'fontSize', 'lineHeight', 'padding', 'width', 'direction', 'wordBreak', 'overflowWrap', 'whiteSpaceCollapse', 'textWrapMode'].map(name => s[name]).join('|') };
      return [style(source), style(mirror), source.scrollHeight, source.clientHeight, source.scrollWidth, source.clientWidth]""")
    same(metrics[0], metrics[1])
    same(metrics[2:4], [max(metrics[2:4])] * 2)
    same(metrics[4], metrics[5])


def test_keyboard_in_the_translation(browser, site):
    site.open(browser)
    site.translate(browser, TEXT)
    browser.js("document.querySelector('#target [tabindex]').focus()")
    browser.keys(RIGHT)
    same(browser.js("return [...document.querySelectorAll('#target .word')].indexOf(document.activeElement)"), 1)
    check(lit_source(browser), "the focused word shows no alignment")
    check(browser.js("return live.textContent").startswith("From: "), "the alignment is not announced")
    browser.keys(DOWN)
    same(browser.js("return [...document.querySelectorAll('#target .sentence')].indexOf(document.activeElement.parentElement)"), 1)


def test_tab_reaches_everything(browser, site):
    site.open(browser)
    site.translate(browser, TEXT)
    browser.js("document.activeElement.blur()")
    reached = []
    for _ in range(16):
        browser.keys(TAB)
        reached.append(browser.js("const a = document.activeElement; return a.matches('.word') ? 'word' : a.id"))
        outline = browser.js("const a = document.activeElement; return a === document.body || a.id === 'source' || getComputedStyle(a).outlineStyle !== 'none'")
        check(outline, f"{reached[-1]} has no visible focus")
    for name in ("keys", "theme", "from", "swap", "to", "source", "clear", "open", "word", "copy", "save"):
        check(name in reached, f"Tab does not reach {name}: {reached}")


def test_few_words_are_doubtful(browser, site):
    site.open(browser)
    site.translate(browser, "Good morning.")
    same(browser.js("return [document.querySelectorAll('#target .doubt').length, document.getElementById('doubt-legend').hidden]"), [0, True])
    site.translate(browser, TEXT)
    words = browser.js("return document.querySelectorAll('#target .word').length")
    doubtful = browser.js("return [...document.querySelectorAll('#target .doubt')].map(word => word.textContent)")
    check(1 <= len(doubtful) <= max(1, words // 10), f"{doubtful} of {words}")
    answer = site.ask(TEXT, scores=True)
    scores = [(word["score"], answer["text"][slice(*word["target"])]) for sentence in answer["sentences"] for word in sentence["words"]]
    least = min(pair for pair in scores if any(letter.isalnum() for letter in pair[1]))
    check(least[1] in doubtful, "the least certain word is not tinted")
    check(not browser.js("return document.getElementById('doubt-legend').hidden"), "there is no legend")
    check("%" not in browser.js("return document.body.innerText"), "a probability is shown")


def test_alternatives(browser, site):
    site.open(browser)
    before = site.translate(browser, TEXT)
    browser.point_at("return document.querySelectorAll('#target .sentence')[1].getClientRects()[0]", click=True)
    browser.wait("return document.querySelectorAll('#others-list button').length > 1", what="alternatives are listed")
    site.picture(browser, "alternatives")
    other = browser.js("return document.querySelector('#others-list button:nth-of-type(2)').textContent")
    browser.click("#others-list button:nth-of-type(2)")
    check(other in browser.text() and browser.text() != before, "the alternative is not in its place")
    # It stays while another sentence changes.
    browser.type("#source", " Snow fell.")
    browser.wait("return document.querySelectorAll('#target .sentence').length === 4")
    browser.wait(IDLE)
    check(other in browser.text(), "the alternative was lost")
    # By keyboard, back to the model's own.
    browser.js("document.querySelectorAll('#target .sentence')[0].querySelector('.word').focus()")
    browser.keys(DOWN)
    browser.keys(ENTER)
    browser.wait("return document.querySelectorAll('#others-list button').length > 1")
    browser.keys(ESCAPE)
    browser.wait("return !document.getElementById('others').matches(':popover-open')", what="Escape closes the list")
    check(browser.js("return document.activeElement.matches('.word')"), "the focus did not come back to the word")
