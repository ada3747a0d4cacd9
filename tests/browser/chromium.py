"""Chromium by plain WebDriver calls: no package beyond the standard library."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

ENTER, TAB, ESCAPE, CONTROL, RIGHT, DOWN = "\ue007", "\ue004", "\ue00c", "\ue009", "\ue014", "\ue015"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
NOTICE = "const n = document.getElementById('notice'); return n.hidden ? '' : n.innerText"


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
