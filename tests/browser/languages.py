"""Source and target languages: choosing, swapping, detecting, writing from right to left."""

from chromium import CONTROL, call
from harness import TEXT, check, mock, same
from words import check_mirror, hover_source_word, hover_word, lit, words_of


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
