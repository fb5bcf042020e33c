#!/usr/bin/python3 -B
"""The status pages in a real browser: light, dark and narrow, while the server is under load."""

import base64
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, "tests/observe")
from status_page import PATIENCE, Server, scratch, until

PAGES = ("/", "/methods", "/calls", "/connections", "/pollers", "/configuration")


class Browser:
    """Headless Chromium, driven by its own protocol (chromedevtools.github.io) over a pipe."""

    def __enter__(self):
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()

        def three_and_four():
            # The protocol's file descriptors.
            os.dup2(to_read, 10)
            os.dup2(from_write, 11)
            os.dup2(10, 3)
            os.dup2(11, 4)

        self._process = subprocess.Popen(
            [
                "chromium",
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={scratch()}/chromium",
                "--remote-debugging-pipe",
                "about:blank",
            ],
            preexec_fn=three_and_four,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": scratch()},
        )
        os.close(to_read)
        os.close(from_write)
        self._buffer = b""
        self._next = 0
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(PATIENCE)

    _session = None

    def call(self, method, **params):
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self):
        while b"\0" not in self._buffer:
            bytes_read = os.read(self._from, 65536)
            if not bytes_read:
                raise AssertionError("chromium has ended")
            self._buffer += bytes_read
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self._read())

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def complaints(self):
        """What a user would see in the console, and requests to elsewhere."""
        return [
            each
            for each in self.events
            if each.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        ]


class BrowserTest(unittest.TestCase):
    def test_it_shows_in_each_shape_without_a_complaint(self):
        with Server() as server, Browser() as browser:
            grounds = {}
            for scheme in ("light", "dark"):
                for width in (1280, 390):
                    with self.subTest(scheme=scheme, width=width):
                        browser.call(
                            "Emulation.setDeviceMetricsOverride",
                            width=width,
                            height=844,
                            deviceScaleFactor=1,
                            mobile=width < 500,
                        )
                        browser.call(
                            "Emulation.setEmulatedMedia",
                            features=[{"name": "prefers-color-scheme", "value": scheme}],
                        )
                        for page in PAGES:
                            browser.open(server.url + page)
                            self.assertEqual(browser.complaints(), [], page)
                            self.assertEqual(browser.evaluate("document.querySelectorAll('script').length"), 0)
                            # Wide tables scroll inside of it.
                            self.assertLessEqual(
                                browser.evaluate("document.documentElement.scrollWidth"), width, page
                            )
                            grounds[scheme] = browser.evaluate("getComputedStyle(document.body).backgroundColor")
                            self.keep_picture(browser, f"{page.strip('/') or 'overview'}_{scheme}_{width}.png")
            self.assertNotEqual(grounds["light"], grounds["dark"])

    def test_pages_link_to_each_other_and_to_what_is_there(self):
        with Server() as server, Browser() as browser:
            for page in PAGES:
                browser.open(server.url + page)
                links = browser.evaluate("[...document.links].map(each => each.getAttribute('href'))")
                self.assertLessEqual(set(PAGES), set(links), page)
                self.assertEqual(
                    browser.evaluate("document.querySelector('[aria-current=page]').getAttribute('href')"), page
                )
                for link in set(links):
                    answer = server.get(link)
                    if link.endswith(".json"):
                        json.loads(answer)

    def test_their_figures_are_those_of_the_server(self):
        with Server() as server, Browser() as browser:
            for page in ("/", "/methods"):
                before = self.gets(server)
                browser.open(server.url + page)
                text = browser.evaluate("document.body.innerText")
                after = self.gets(server)
                shown = int(re.search(r"kv\.capnp:KeyValue\.get\s+(\d+)", text)[1])
                self.assertTrue(before <= shown <= after, (page, before, shown, after))
            self.assertGreater(browser.evaluate("document.querySelectorAll('svg rect').length"), 0)
            self.assertEqual(browser.evaluate("document.querySelectorAll('svg[role=img]:not(:has(title))').length"), 0)

            def has_peers():
                browser.open(server.url + "/connections")
                peers = browser.evaluate("[...document.querySelectorAll('td.t')].map(each => each.innerText)")
                return any(each.startswith("tcp://127.0.0.1:") for each in peers)

            until(has_peers)

            browser.open(server.url + "/configuration")
            shown = browser.evaluate("[...document.querySelectorAll('tbody tr')].map(each => each.innerText.split('\\t'))")
            settings = json.loads(server.get("/configuration.json"))["configuration"]
            self.assertEqual(shown, [[each["name"], each["value"]] for each in settings])

    def test_curves_follow_the_server(self):
        with Server() as server, Browser() as browser:
            curves = []

            def are_there():
                browser.open(server.url + "/pollers")
                curves[:] = browser.evaluate("[...document.querySelectorAll('svg.curve title')].map(e => e.textContent)")
                return len(curves) >= 2

            until(are_there)
            names = [poller["name"] for poller in json.loads(server.get("/pollers.json"))["pollers"]]
            self.assertTrue([each for each in curves if each.startswith(names[0] + " busy: now ")], curves)

    def gets(self, server):
        for method in json.loads(server.get("/snapshot.json"))["methods"]:
            if method["name"] == "kv.capnp:KeyValue.get":
                return int(method["calls"])
        raise AssertionError("no such method")

    def keep_picture(self, browser, name):
        """Keeps a picture to look at, in bazel-testlogs, with --test_env=HAWSER_PICTURES=1."""
        folder = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
        if folder and os.environ.get("HAWSER_PICTURES") == "1":
            picture = browser.call("Page.captureScreenshot", format="png")["data"]
            with open(os.path.join(folder, name), "wb") as file:
                file.write(base64.b64decode(picture))


if __name__ == "__main__":
    unittest.main()
