"""Tests of the server's page in a real browser, by plain WebDriver calls: no package beyond the standard library.

Every test is a function `test_*(browser, site)`. Those marked `@mock` need several languages, slow answers or failures on demand;
they run only with --mock, against a server that also takes `POST /mock` (delay, fail, key) and speaks the same API.
The others hold against a real server with English to Portuguese.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

ENTER, TAB, ESCAPE, CONTROL, RIGHT, DOWN = "\ue007", "\ue004", "\ue00c", "\ue009", "\ue014", "\ue015"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
TEXT = ("The harbour was quiet in the early morning. Two fishing boats had already left, and a third was waiting for the tide. "
        "Nobody in the village remembered a winter as mild as this one.")


# ---- WebDriver ---------------------------------------------------------------------------------------------------------

def call(method, address, body=None, timeout=60):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {address}: {error.read().decode()[:600]}") from None


class Browser:
    """One Chromium with its driver."""

    def __init__(self):
        driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        if not driver or not chromium:
            sys.exit("chromium or chromedriver is missing: apt-get install chromium chromium-driver")
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = next(line.rsplit(" ", 1)[1].strip(" .\n") for line in self.process.stdout if "started successfully on port" in line)
        self.root = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--window-size=1280,860", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        options = {"binary": chromium, "args": arguments}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = call("POST", f"{self.root}/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"{self.root}/session/{session['value']['sessionId']}"

    def close(self):
        try:
            call("DELETE", self.session)
        finally:
            self.process.terminate()
            self.process.wait(10)

    def send(self, path, **body):
        return call("POST", f"{self.session}/{path}", body)["value"]

    def go(self, address):
        self.send("url", url=address)

    def js(self, script, *arguments):
        return self.send("execute/sync", script=script, args=list(arguments))

    def devtools(self, command, **parameters):
        return self.send("goog/cdp/execute", cmd=command, params=parameters)

    def find(self, selector):
        return self.send("element", using="css selector", value=selector)[ELEMENT]

    def type(self, selector, text):
        self.send(f"element/{self.find(selector)}/value", text=text)

    def click(self, selector):
        self.send(f"element/{self.find(selector)}/click")

    def keys(self, *keys):
        """Presses the keys together, in the focused element."""
        down = [{"type": "keyDown", "value": key} for key in keys]
        up = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.send("actions", actions=[{"type": "key", "id": "keyboard", "actions": down + up}])

    def point(self, x, y, click=False, kind="mouse"):
        actions = [{"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}]
        if click:
            actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self.send("actions", actions=[{"type": "pointer", "id": kind, "parameters": {"pointerType": kind}, "actions": actions}])

    def point_at(self, script, **how):
        """Points at the middle of the rectangle that the script returns."""
        x, y = self.js(f"const r = (() => {{ {script} }})(); return [r.left + r.width / 2, r.top + r.height / 2]")
        self.point(x, y, **how)

    def wait(self, script, seconds=10, what=None):
        """Waits until the script returns something true, and returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.js(script)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"after {seconds} s still not: {what or script}\nnotice: {self.js(NOTICE)!r}\ntarget: {self.text()[:300]!r}")

    def text(self):
        return self.js("return document.getElementById('target').textContent")

    def errors(self):
        """Console messages that should not be: refused requests of a test are the browser's own, not the page's."""
        log = self.send("se/log", type="browser")
        expected = ("Failed to load resource", "ERR_INTERNET_DISCONNECTED", "ERR_CONNECTION_REFUSED")
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING") and not any(word in entry["message"] for word in expected)]

    def size(self, width, height, phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.devtools("Emulation.setTouchEmulationEnabled", enabled=phone)

    def scheme(self, name):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def offline(self, offline):
        self.devtools("Network.enable")
        self.devtools("Network.emulateNetworkConditions", offline=offline, latency=0, downloadThroughput=-1, uploadThroughput=-1)

    def screenshot(self, path):
        image = call("GET", f"{self.session}/screenshot")["value"]
        path.write_bytes(base64.b64decode(image))


NOTICE = "const n = document.getElementById('notice'); return n.hidden ? '' : n.innerText"
IDLE = "return document.getElementById('target-pane').ariaBusy === 'false' && document.querySelector('#target .word') && !document.querySelector('#target .waiting, #target.stale')"


class Site:
    """The server under test, and where screenshots go."""

    def __init__(self, address, screenshots):
        self.address = address.rstrip("/") + "/"
        self.screenshots = screenshots

    def open(self, browser, languages="en/pt"):
        """A fresh page: default size, no key, no memory of other tests."""
        browser.size(1280, 860)
        browser.scheme("light")
        browser.offline(False)
        browser.go("about:blank")
        browser.go(self.address)
        browser.js("localStorage.clear(); sessionStorage.clear()")
        browser.go("about:blank")
        browser.go(self.address + "#" + languages)
        browser.wait("return document.getElementById('to').value", what="languages are listed")

    def translate(self, browser, text):
        browser.js("const s = document.getElementById('source'); s.select(); s.focus()")
        browser.type("#source", text)
        browser.wait(f"const s = document.getElementById('source'); return s.value === {json.dumps(text)}", what="the text is typed")
        time.sleep(0.3)
        browser.wait(IDLE, 30, "the translation is there")
        return browser.text()

    def ask(self, text, to="pt", **more):
        return call("POST", self.address + "v1/translate", {"text": text, "from": "en", "to": to, **more})["translations"][0]

    def control(self, **settings):
        return call("POST", self.address + "mock", settings)

    def picture(self, browser, name):
        if self.screenshots:
            browser.screenshot(self.screenshots / f"{name}.png")


def mock(test):
    test.mock = True
    return test


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def same(found, expected):
    check(found == expected, f"found {found!r}\nexpected {expected!r}")


# ---- Translating -------------------------------------------------------------------------------------------------------

def test_type_and_see(browser, site):
    site.open(browser)
    same(site.translate(browser, TEXT), site.ask(TEXT)["text"])
    same(browser.js("return document.getElementById('count').textContent"), f"{len(TEXT)} characters")
    same(browser.js("return [document.getElementById('target').lang, document.getElementById('source').lang]"), ["pt", "en"])


def test_last_text_wins(browser, site):
    site.open(browser)
    browser.js("window.asked = []; const f = fetch; window.fetch = (path, options) => { asked.push(options); return f(path, options) }")
    for part in ("The boats ", "left the ", "harbour at dawn."):
        browser.type("#source", part)
        time.sleep(0.4)
    browser.wait(IDLE)
    browser.wait("return asked.length > 0 && document.getElementById('target-pane').ariaBusy === 'false'")
    same(browser.text(), site.ask("The boats left the harbour at dawn.")["text"])


@mock
def test_typing_cancels(browser, site):
    site.open(browser)
    site.control(delay=1.5)
    browser.js("window.asked = []; const f = fetch; window.fetch = (path, options) => { asked.push(options.signal); return f(path, options) }")
    browser.type("#source", "The boats")
    browser.wait("return asked.length === 1")
    same(browser.js("return document.getElementById('target-pane').ariaBusy"), "true")
    browser.type("#source", " left.")
    browser.wait("return asked.length === 2")
    same(browser.js("return asked.map(signal => signal.aborted)"), [True, False])
    browser.wait(IDLE)
    same(browser.text(), site.ask("The boats left.")["text"])


def test_control_enter_translates_at_once(browser, site):
    site.open(browser)
    browser.type("#source", "Good morning.")
    browser.keys(CONTROL, ENTER)
    browser.wait(IDLE)
    browser.keys(CONTROL, "/")
    browser.wait("return document.getElementById('keys-dialog').open")
    site.picture(browser, "shortcuts")
    browser.keys(ESCAPE)
    browser.wait("return !document.getElementById('keys-dialog').open")


def test_clear_can_be_undone(browser, site):
    site.open(browser)
    site.translate(browser, TEXT)
    browser.click("#clear")
    browser.wait("return !document.getElementById('target').textContent && document.getElementById('copy').disabled")
    same(browser.js("return document.activeElement.id"), "source")
    browser.keys(CONTROL, "z")
    browser.wait(IDLE)
    same(browser.js("return document.getElementById('source').value"), TEXT)


def test_sixty_sentences_in_order(browser, site):
    site.open(browser)
    text = "\n\n".join(" ".join(f"Boat number {row * 10 + n} waits for the tide in the harbour." for n in range(10)) for row in range(6))
    browser.js("""
      window.seen = []; window.asked = null;
      const f = fetch; window.fetch = (path, options) => { asked = JSON.parse(options.body); return f(path, options) };
      new MutationObserver(() => seen.push([[...document.querySelectorAll('#target .sentence')].map(part => parseInt(part.textContent.match(/\\d+/))), document.querySelectorAll('#target .waiting').length]))
        .observe(document.getElementById('target'), { childList: true });
      const source = document.getElementById('source');
      source.value = arguments[0];
      source.dispatchEvent(new InputEvent('input', { inputType: 'insertFromPaste', bubbles: true }))""", text)
    if site.mock:
        browser.wait("return document.querySelectorAll('#target .sentence').length > 20")
        site.picture(browser, "streaming")
    browser.wait("return document.getElementById('target-pane').ariaBusy === 'false' && document.querySelector('#target .word')", 60)
    browser.wait(IDLE, 60)
    same(browser.js("return asked.stream"), True)
    whole = site.ask(text, alignments=True, scores=True)
    same(browser.text(), whole["text"])
    same(browser.js("return document.querySelectorAll('#target .sentence').length"), len(whole["sentences"]))
    seen = browser.js("return seen")
    for numbers, _ in seen:
        same(numbers, sorted(numbers))
    check(any(numbers and waiting for numbers, waiting in seen) or not site.mock, "no sentence was shown before the last")


@mock
def test_edit_of_a_long_text_keeps_what_stands(browser, site):
    site.open(browser)
    text = " ".join(f"Boat number {n} waits for the tide." for n in range(30))
    site.translate(browser, text)
    site.control(step=0.3)
    browser.type("#source", " One more.")
    browser.wait("return document.querySelector('#target .waiting')")
    check(browser.js("return document.querySelectorAll('#target .sentence').length") >= 29, "the old sentences went away")
    site.control(step=0)
    browser.wait(IDLE, 30)


# ---- Languages ---------------------------------------------------------------------------------------------------------

def test_languages_are_remembered(browser, site):
    site.open(browser)
    same(browser.js("return [location.hash, localStorage.getItem('peregrine.languages')]"), ["#en/pt", "en/pt"])


def test_swap(browser, site):
    site.open(browser)
    translated = site.translate(browser, "The harbour was quiet in the early morning.")
    back = site.mock or any(pair["from"] == "pt" and pair["to"] == "en" for pair in call("GET", site.address + "v1/languages")["pairs"])
    browser.click("#swap")
    if not back:
        same(browser.js("return document.getElementById('swap').ariaDisabled"), "true")
        same(browser.js("return document.getElementById('from').value"), "en")
        return
    same(browser.js("return [document.getElementById('from').value, document.getElementById('to').value, location.hash]"), ["pt", "en", "#pt/en"])
    same(browser.js("return document.getElementById('source').value"), translated)
    browser.wait("return document.getElementById('target').lang === 'en'")
    browser.js("document.getElementById('source').focus()")
    browser.keys(CONTROL, ".")
    same(browser.js("return location.hash"), "#en/pt")


@mock
def test_targets_follow_the_source(browser, site):
    site.open(browser, "en/zh")
    options = "return [...document.getElementById('to').options].map(option => option.value)"
    same(set(browser.js(options)), {"pt", "de", "ar", "he", "zh"})
    browser.js("const f = document.getElementById('from'); f.value = 'pt'; f.dispatchEvent(new Event('change'))")
    same(set(browser.js(options)), {"en", "de"})
    site.translate(browser, "O porto estava calmo.")
    browser.js("const t = document.getElementById('to'); t.value = 'de'; t.dispatchEvent(new Event('change'))")
    browser.wait("return document.getElementById('through').textContent === 'By way of English'")


@mock
def test_detected_language_is_shown(browser, site):
    site.open(browser, "auto/en")
    site.translate(browser, "كان الميناء هادئًا في الصباح.")
    same(browser.js("return document.getElementById('from').selectedOptions[0].textContent"), "Detected: Arabic")
    same(browser.js("return document.getElementById('source').dir"), "rtl")
    browser.click("#swap")
    same(browser.js("return location.hash"), "#en/ar")


@mock
def test_right_to_left(browser, site):
    for language in ("ar", "he"):
        site.open(browser, f"en/{language}")
        site.translate(browser, TEXT)
        same(browser.js("const t = document.getElementById('target'); return [t.dir, t.lang, getComputedStyle(t).direction]"), ["rtl", language, "rtl"])
        hover_word(browser, 1)
        site.picture(browser, f"rtl-{language}")
    browser.click("#swap")
    browser.wait("return document.getElementById('target').dir === 'ltr'")
    same(browser.js("return [source.dir, mirror.dir]"), ["rtl", "rtl"])
    check_mirror(browser)
    hover_source_word(browser, *words_of(browser)[1])
    check(lit(browser), "no word of the translation is lit")
    site.picture(browser, "rtl-source")


# ---- Alignment -----------------------------------------------------------------------------------------------------------

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


# ---- Doubt and alternatives ------------------------------------------------------------------------------------------------

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


# ---- Files -----------------------------------------------------------------------------------------------------------------

DROP = """
  const data = new DataTransfer();
  data.items.add(new File([arguments[1] ?? new Uint8Array([0, 159, 146, 150])], arguments[0], { type: arguments[2] ?? '' }));
  const event = new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer: data });
  document.getElementById('source').dispatchEvent(event);
  return event.defaultPrevented"""


def test_drop_and_open_files(browser, site):
    site.open(browser)
    check(browser.js(DROP, "harbour.txt", TEXT, "text/plain"), "the browser would open the file itself")
    browser.wait(IDLE)
    same(browser.text(), site.ask(TEXT)["text"])
    browser.js(DROP, "report.docx", "PK", "application/zip")
    browser.wait(NOTICE + ".includes('report.docx') && !n.innerText.includes('…')", what="a sentence about a broken file")
    site.picture(browser, "file-kind")
    browser.js(DROP, "page.html", "<p>The <b>boats</b> left.</p>", "text/html")
    browser.wait(NOTICE + ".includes('is translated: page.')", what="a document is translated")
    site.picture(browser, "file-document")
    browser.js(DROP, "binary.txt", None)
    browser.wait(NOTICE + ".includes('is not text')")
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-16") as file:
        file.write("The boats left.\n")
        file.flush()
        browser.type("#file", file.name)
        browser.wait("return source.value === 'The boats left.\\n'", what="a UTF-16 file is read")
        browser.wait(IDLE)
    same(browser.js(NOTICE), "")


def test_paste_a_file(browser, site):
    site.open(browser)
    browser.js("""
      const data = new DataTransfer();
      data.items.add(new File([arguments[0]], 'a.txt', { type: 'text/plain' }));
      source.dispatchEvent(new ClipboardEvent('paste', { bubbles: true, cancelable: true, clipboardData: data }))""", TEXT)
    browser.wait(IDLE)
    same(browser.js("return source.value"), TEXT)


def test_paste_from_an_office_program(browser, site):
    """Such programs offer a picture beside the text: the text counts."""
    site.open(browser)
    taken = browser.js("""
      const data = new DataTransfer();
      data.items.add(new File(['x'], 'image.png', { type: 'image/png' }));
      data.setData('text/plain', 'The boats left.');
      const event = new ClipboardEvent('paste', { bubbles: true, cancelable: true, clipboardData: data });
      source.dispatchEvent(event);
      return event.defaultPrevented""")
    same([taken, browser.js(NOTICE)], [False, ""])


def test_copy_and_download(browser, site):
    site.open(browser)
    translated = site.translate(browser, TEXT)
    browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.click("#copy")
    browser.wait("return document.getElementById('copy').innerText.trim() === 'Copied'")
    browser.js("navigator.clipboard.readText().then(text => { window.pasted = text })")
    browser.wait("return window.pasted")
    same(browser.js("return window.pasted"), translated)
    with tempfile.TemporaryDirectory() as folder:
        browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        browser.click("#save")
        path = Path(folder, "translation.pt.txt")
        end = time.monotonic() + 10
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.2)
        same(path.read_text(encoding="utf-8"), translated)


# ---- States ----------------------------------------------------------------------------------------------------------------

def test_offline_and_back(browser, site):
    site.open(browser)
    site.translate(browser, "Good morning.")
    browser.offline(True)
    browser.type("#source", " The boats left.")
    browser.wait(NOTICE + ".includes('offline')", what="the page says that it is offline")
    site.picture(browser, "offline")
    browser.offline(False)
    browser.wait(IDLE, 15)
    same(browser.text(), site.ask("Good morning. The boats left.")["text"])
    same(browser.js(NOTICE), "")


@mock
def test_busy_counts_down(browser, site):
    site.open(browser)
    site.control(fail=[{"status": 429, "code": "busy", "retry_after": 3}, {"status": 503, "code": "stopping", "retry_after": 1}])
    browser.type("#source", "Good morning.")
    browser.wait(NOTICE + ".includes('in 3 s')")
    site.picture(browser, "busy")
    browser.type("#source", " The boats left.")
    browser.wait(NOTICE + ".includes('in 2 s')", what="it counts down, and typing does not ask again at once")
    browser.wait(IDLE, 10)
    same(browser.text(), site.ask("Good morning. The boats left.")["text"])
    same(browser.js(NOTICE), "")


@mock
def test_errors_are_one_sentence(browser, site):
    site.open(browser)
    site.translate(browser, "The boats left.")
    site.control(fail=[{"status": 413, "code": "too_large", "message": "The text has more than 100,000 characters."}])
    browser.type("#source", " Good morning.")
    browser.wait(NOTICE + ".includes('100,000')")
    site.picture(browser, "error")
    browser.click("#notice-action")
    browser.wait(IDLE)
    site.control(fail=[{"status": 504, "code": "deadline"}])
    browser.type("#source", " So it is.")
    browser.wait(NOTICE + ".includes('longer than')")


@mock
def test_key_is_asked_for(browser, site):
    site.control(key="secret")
    try:
        browser.go("about:blank")
        browser.go(site.address)
        for key in ("wrong", "secret"):
            browser.wait("return document.getElementById('key-dialog').open")
            browser.js("document.getElementById('key').value = ''")
            browser.type("#key", key)
            if key == "wrong":
                site.picture(browser, "key")
                browser.keys(ENTER)
                browser.wait("return document.getElementById('key-note').textContent.includes('did not accept')")
            else:
                browser.keys(ENTER)
        browser.wait("return document.getElementById('to').value")
        site.translate(browser, "Good morning.")
        same(browser.js("return [localStorage.getItem('peregrine.key'), sessionStorage.getItem('peregrine.key')]"), [None, "secret"])
    finally:
        site.control(key=None)


@mock
def test_broken_stream_is_tried_again(browser, site):
    site.open(browser)
    browser.js("""
      const f = fetch; let first = true;
      window.fetch = async (path, options) => {
        const response = await f(path, options);
        if (!first) return response;
        first = false;
        const data = { text: 0, sentence: 0, source: [0, 15], translation: 'Primeira.' };
        return new Response(`event: sentence\\ndata: ${JSON.stringify(data)}\\n\\n`, { headers: { 'Content-Type': 'text/event-stream' } });
      }""")
    browser.type("#source", "The boats left. " * 30)
    browser.wait(NOTICE + ".includes('broke off')")
    browser.wait(IDLE, 15)


# ---- Looks -------------------------------------------------------------------------------------------------------------------

def test_widths_have_no_sideways_scroll(browser, site):
    site.open(browser)
    site.translate(browser, TEXT + " " + "unbreakable" * 20)
    for width, height, phone in ((360, 740, True), (768, 1024, True), (1280, 860, False), (2200, 1200, False)):
        browser.size(width, height, phone)
        time.sleep(0.1)
        sizes = browser.js("return [document.documentElement.scrollWidth, innerWidth]")
        check(sizes[0] <= sizes[1], f"{sizes} at {width}")
        outside = browser.js("return [...document.querySelectorAll('button, select')].filter(b => b.offsetParent && (b.getBoundingClientRect().right > innerWidth || b.getBoundingClientRect().left < 0)).map(b => b.id)")
        same(outside, [])
        site.picture(browser, f"width-{width}")


def test_tap_on_a_phone(browser, site):
    site.open(browser)
    browser.size(360, 740, phone=True)
    site.translate(browser, TEXT)
    site.picture(browser, "phone")
    tap = "const w = document.querySelectorAll('#target .word')[1]; w.scrollIntoView({ block: 'center' }); return w.getClientRects()[0]"
    browser.point_at(tap, click=True, kind="touch")
    browser.wait("return document.querySelector('#boxes .lit')")
    check(not browser.js("return document.getElementById('others').matches(':popover-open')"), "the first tap opened the list")
    browser.point_at(tap, click=True, kind="touch")
    browser.wait("return document.querySelectorAll('#others-list button').length > 1")
    time.sleep(0.2)
    site.picture(browser, "phone-alternatives")


CONTRAST = r"""
  const luminance = ([r, g, b]) => { const f = c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b) };
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = color => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data };
  const background = node => { for (; node; node = node.parentElement) { const c = rgba(getComputedStyle(node).backgroundColor); if (c[3] > 200) return c } return [255, 255, 255] };
  const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m); return (x + .05) / (y + .05) };
  const poor = [];
  for (const node of document.querySelectorAll('h1, h2, footer, .note, .legend li, .legend .doubt, select, option, textarea, .sentence, .word, .quiet:not(:disabled), .primary, .notice p, dialog p, #others-list button, #others-list b')) {
    if (!node.textContent.trim() && !node.value) continue;
    const found = ratio(rgba(getComputedStyle(node).color), background(node));
    if (found < 4.5) poor.push([node.id || node.className || node.tagName, node.textContent.slice(0, 20), found.toFixed(2)]);
  }
  const placeholder = ratio(rgba(getComputedStyle(source, '::placeholder').color), background(source));
  if (placeholder < 4.5) poor.push(['placeholder', placeholder]);
  return poor"""


def test_contrast_in_light_and_dark(browser, site):
    site.open(browser)
    site.translate(browser, TEXT)
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        hover_word(browser, 1)
        time.sleep(0.3)
        same(browser.js(CONTRAST), [])
        site.picture(browser, scheme)
    if site.screenshots:
        browser.js("source.select(); document.execCommand('delete')")
        time.sleep(0.3)
        site.picture(browser, "empty-dark")
        browser.scheme("light")
        site.picture(browser, "empty-light")


def test_growing_text_stays_in_view(browser, site):
    site.open(browser)
    for _ in range(3):
        browser.type("#source", "Line\n" * 15)
    browser.type("#source", "Last")
    bottom, height, top = browser.js("""
      const range = document.createRange();
      range.setStart(mirror.firstChild, source.value.length - 1); range.setEnd(mirror.firstChild, source.value.length);
      return [range.getBoundingClientRect().bottom, innerHeight, source.scrollTop]""")
    check(0 < bottom <= height and top == 0, f"the caret is at {bottom} of {height}, the text area is scrolled by {top}")


def test_no_motion_where_none_is_wanted(browser, site):
    site.open(browser)
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    moving = browser.js("""
      target.innerHTML = '<span class="waiting">x</span>';
      const style = (node, part) => getComputedStyle(node, part).animationName;
      return [style(document.querySelector('.waiting')), style(document.getElementById('progress'), '::before')]""")
    same(moving, ["none", "none"])


def test_switch_of_colours(browser, site):
    site.open(browser)
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = browser.js(paper)
    browser.click("#theme")
    dark = browser.js(paper)
    check(light != dark, "the switch does nothing")
    browser.send("refresh")
    browser.wait("return document.getElementById('to').value")
    same(browser.js(paper), dark)
    browser.click("#theme")
    same(browser.js("return [document.documentElement.dataset.theme ?? null, localStorage.getItem('peregrine.theme')]"), [None, None])


def test_names_and_labels(browser, site):
    site.open(browser)
    site.translate(browser, TEXT)
    nameless = browser.js("""
      return [...document.querySelectorAll('button, select, input, textarea, dialog, [role=dialog], [role=group]')].filter(node =>
        !node.ariaLabel && !node.labels?.length && !node.innerText?.trim() && !node.getAttribute('aria-labelledby') && !node.hidden && !node.closest('[hidden]')).map(node => node.id)""")
    same(nameless, [])
    broken = browser.js("""
      return [...document.querySelectorAll('[aria-labelledby], [aria-describedby], label[for]')].flatMap(node =>
        [node.getAttribute('aria-labelledby'), node.getAttribute('aria-describedby'), node.getAttribute('for')]).filter(id => id && !document.getElementById(id))""")
    same(broken, [])
    twice = browser.js("const ids = [...document.querySelectorAll('[id]')].map(node => node.id); return ids.filter((id, at) => ids.indexOf(id) !== at)")
    same(twice, [])
    same(browser.js("return [document.documentElement.lang, document.getElementById('live').role, document.querySelectorAll('h1').length]"), ["en", "status", 1])


def test_page_stays_at_home(browser, site):
    site.open(browser)
    site.translate(browser, "Good morning.")
    names = browser.js("return [location.href, ...performance.getEntriesByType('resource').map(entry => entry.name)]")
    outside = [name for name in names if not name.startswith(site.address)]
    same(outside, [])
    header = urllib.request.urlopen(site.address).headers
    policy = header.get("Content-Security-Policy") or ""
    check("default-src 'none'" in policy and "unsafe" not in policy, f"content security policy: {policy!r}")
    same(header.get("X-Content-Type-Options"), "nosniff")


# ---- Running -----------------------------------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description="Tests of the server's page in Chromium.")
    parser.add_argument("url", help="address of the page, with its prefix")
    parser.add_argument("names", nargs="*", help="only tests whose name contains one of these")
    parser.add_argument("--mock", action="store_true", help="the server is a stand-in with several languages and failures on demand")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures")
    options = parser.parse_intermixed_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    site = Site(options.url, options.screenshots)
    site.mock = options.mock
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    if options.names:
        tests = [test for test in tests if any(name in test.__name__ for name in options.names)]
    failed = skipped = 0
    browser = Browser()
    try:
        for test in tests:
            if getattr(test, "mock", False) and not options.mock:
                skipped += 1
                continue
            if options.mock:
                site.control(delay=0, step=0.02, fail=[], key=None)
            start = time.monotonic()
            try:
                test(browser, site)
                same(browser.errors(), [])
                print(f"ok      {test.__name__}  ({time.monotonic() - start:.1f} s)", flush=True)
            except Exception:
                failed += 1
                browser.errors()
                site.picture(browser, f"failed-{test.__name__}")
                print(f"FAILED  {test.__name__}\n{traceback.format_exc()}", flush=True)
    finally:
        browser.close()
    print(f"{len(tests) - failed - skipped} passed, {failed} failed, {skipped} only against a mock")
    sys.exit(1 if failed else 0)


main()
