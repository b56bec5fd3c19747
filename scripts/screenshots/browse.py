#!/usr/bin/env python3
"""Logs in to a controller's page with a real browser and takes pictures of it: scripts/screenshots.sh runs this. Speaks
WebDriver with Debian's chromedriver, which drives Debian's Chromium."""
import argparse
import base64
import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's own key for elements.
DESK, PHONE = (1200, 860), (390, 844)            # Width and least height.


class Browser:
    """Within `with`: a headless Chromium."""

    def __enter__(self):
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self._driver.stdout:
            if "started successfully on port " in line:
                self._at = "http://127.0.0.1:" + line.split("on port ")[1].rstrip(".\n") + "/session"
                break
        options = {"args": ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--force-color-profile=srgb"], "binary": "/usr/bin/chromium"}
        made = self.call("", capabilities={"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}})
        self._at += "/" + made["sessionId"]
        return self

    def __exit__(self, *_):
        self.call("", "DELETE")
        self._driver.terminate()
        self._driver.wait()

    def call(self, path, method="POST", **words):
        body = json.dumps(words).encode() if method == "POST" else None
        request = urllib.request.Request(self._at + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{path}: {error.read().decode()[:500]}")

    def devtools(self, command, **words):
        return self.call("/goog/cdp/execute", cmd=command, params=words)

    def element(self, selector):
        return "/element/" + self.call("/element", using="css selector", value=selector)[ELEMENT]

    def run(self, script):
        return self.call("/execute/sync", script=script, args=[])

    def look(self, url, size, dark, most_height):
        """A picture of the page from its top, of at most that height."""
        width, height = size
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size is PHONE)
        self.call("/url", url=url)
        wide, high = self.run("const e = document.documentElement; return [e.scrollWidth, document.body.scrollHeight]")
        if wide > width:
            sys.exit(f"{url} is {wide} wide on a screen of {width}")
        clip = {"x": 0, "y": 0, "width": width, "height": min(high, most_height), "scale": 1}
        return base64.b64decode(self.devtools("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])

    def complaints(self):
        """What the content security policy has kept the browser from, which nothing of the page should need."""
        return [entry["message"] for entry in self.call("/se/log", type="browser") if "Content Security Policy" in entry["message"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("page", "token", "images", "job"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    with Browser() as browser:
        browser.call("/url", url=options.page + "/")
        browser.call(browser.element("#token") + "/value", text=options.token)
        browser.call(browser.element("form button") + "/click")
        if browser.run("return document.querySelector('h1').textContent") != "Jobs":
            sys.exit("the login did not lead to the jobs: " + browser.run("return document.body.textContent"))
        job = f"{options.page}/jobs/{options.job}?pause=1"
        for name, url, size, dark, most_height in (
                ("page-jobs", options.page + "/?pause=1", DESK, False, 620),
                ("page-job", job, DESK, False, 1180),
                ("page-job-dark", job, DESK, True, 1000),
                ("page-job-phone", job, PHONE, False, 1200),
                ("page-jobs-phone", options.page + "/?pause=1", PHONE, True, 900),
                ("page-workers", options.page + "/workers?pause=1", DESK, False, 700)):
            pathlib.Path(options.images, name + ".png").write_bytes(browser.look(url, size, dark, most_height))
        if complaints := browser.complaints():
            sys.exit("the browser complains: " + "\n".join(complaints))


if __name__ == "__main__":
    main()
