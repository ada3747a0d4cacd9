"""Documents that are dropped, opened and pasted, and translations that are copied and saved."""

import tempfile
import time
from pathlib import Path

from chromium import NOTICE
from harness import IDLE, TEXT, check, same


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
