"""What the page says when the server is away, busy, refuses, asks for a key or breaks off."""

from chromium import ENTER, NOTICE
from harness import IDLE, mock, same


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
