"""The server under test, and what tests of its page share."""

import json
import time

from chromium import call

TEXT = ("The harbour was quiet in the early morning. Two fishing boats had already left, and a third was waiting for the tide. "
        "Nobody in the village remembered a winter as mild as this one.")
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
