"""Typing, translating, and what happens to a translation while the text changes."""

import time

from chromium import CONTROL, ENTER, ESCAPE
from harness import IDLE, TEXT, check, mock, same


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
