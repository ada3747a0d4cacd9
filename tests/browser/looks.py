"""Widths, colours, motion, names for screen readers, and what the page fetches."""

import time
import urllib.request

from harness import TEXT, check, same
from words import hover_word


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
