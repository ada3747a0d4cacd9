"""Tests of the server's page in a real browser.

Every test is a function `test_*(browser, site)`. Those marked `@mock` need several languages, slow answers or failures on demand;
they run only with --mock, against a server that also takes `POST /mock` (delay, fail, key) and speaks the same API.
The others hold against a real server with English to Portuguese.
"""

import argparse
import sys
import time
import traceback
from pathlib import Path

import files
import languages
import looks
import states
import translating
import words
from chromium import Browser
from harness import Site, same

MODULES = [translating, languages, words, files, states, looks]


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
    tests = [test for module in MODULES for name, test in vars(module).items() if name.startswith("test_")]
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
