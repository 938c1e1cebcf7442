#!/usr/bin/env python3
"""tests/process/report_page.py BROWSER PAGE FOLDER: points and clicks in a page of `tutti report` with a real
mouse, in a headless Chromium, and looks at what the page then shows. The pictures go to FOLDER.

It speaks the DevTools protocol over the browser's pipe, so that it needs no package. Exit code 77: the browser
does not start here.
"""
import base64
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path


class Gone(Exception):
    """The browser has ended, or has said nothing for a minute."""


class Browser:
    SILENCE = 60  # Seconds.

    def __init__(self, program, folder, server="file:"):
        to_read, self.out = os.pipe()
        self.into, to_write = os.pipe()

        def descriptors():  # The browser reads orders from 3 and answers on 4.
            os.dup2(to_read, 13)
            os.dup2(to_write, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "--window-size=1280,1000", "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.session, self.errors = 0, b"", None, []
        self.allowed = (server, "about:")
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def message(self):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], self.SILENCE)
            got = os.read(self.into, 1 << 16) if ready else b""
            if not got:
                self.process.kill()
                raise Gone()
            self.rest += got
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def note(self, event):
        """What must not happen in any page: an exception, a complaint, a request to anywhere else."""
        method, what = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(what["exceptionDetails"].get("exception", {}).get("description", str(what)))
        if method == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.errors.append(what["entry"]["text"])
        if method == "Network.requestWillBeSent" and not what["request"]["url"].startswith(self.allowed):
            self.errors.append("it asks for " + what["request"]["url"])

    def ask(self, method, **parameters):
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.out, json.dumps(order).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def open(self, url):
        self.ask("Page.navigate", url=url)
        while True:
            event = self.message()
            self.note(event)
            if event.get("method") == "Page.loadEventFired":
                return

    def value(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def panel(self):
        return self.value("document.getElementById('panel').innerText")

    def point(self, selector, click=False):
        """Moves the mouse to the middle of the element, or of the first point of a line that nothing covers."""
        place = self.value(f"""(() => {{
          const shape = document.querySelector({json.dumps(selector)});
          if (!shape) return null;
          shape.scrollIntoView({{block: "center"}});
          const box = shape.getBoundingClientRect();
          if (shape.localName !== "path") return [box.x + box.width / 2, box.y + box.height / 2];
          const matrix = shape.getScreenCTM(), all = shape.getTotalLength();
          for (let i = 1; i < 100; ++i) {{
            const at = shape.getPointAtLength(all * i / 100).matrixTransform(matrix);
            if (document.elementFromPoint(at.x, at.y) === shape) return [at.x, at.y];
          }}
          return null;
        }})()""")
        if place is None:
            sys.exit(f"there is no {selector} that the mouse could reach")
        x, y = place
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for what in ("mousePressed", "mouseReleased") if click else ():
            self.ask("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=1)

    def close(self):
        self.session = None
        self.ask("Browser.close")
        self.process.wait(30)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))
        if path.stat().st_size < 20_000:
            sys.exit(f"{path}: a picture of {path.stat().st_size} bytes shows hardly anything")


def expect(what, text, *words):
    for word in words:
        if word not in text:
            sys.exit(f"{what}: '{word}' is not in what the page shows:\n{text}")


def named(name):
    return f'.picture [data-name="{name}"]'


def main():
    program, page, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with tempfile.TemporaryDirectory() as profile:
        try:
            browser = Browser(program, profile)
        except (Gone, OSError):
            sys.exit(77)
        browser.open(page.resolve().as_uri())
        expect("at first", browser.panel(), "Point at a box or a line")
        browser.picture(folder / "light.png")
        browser.point(named("host0/gpu3"))
        expect("a GPU", browser.panel(), "host0/gpu3", "GPU 3 of host0")
        browser.point(named("host0/gpu0 - host0/nvswitch3"))
        expect("a link", browser.panel(), "host0/gpu0 - host0/nvswitch3", "forward:", "GB/s (table)")
        browser.point(named("host0/gpu3"), click=True)
        browser.point(named("host0/mlx5_3"), click=True)
        text = browser.panel()
        expect("the path from gpu3", text, "gpu3 to mlx5_3", "PIX, 24.0 GB/s", "pcie to ", ": 24.0 GB/s (table)")
        ways = browser.value("document.querySelectorAll('.picture .way').length")
        if ways != 4:
            sys.exit(f"4 links of the path are to be marked, not {ways}:\n{text}")
        browser.picture(folder / "path.png")
        for ends, rate in ((("gpu6", "mlx5_6"), "PIX, 48.0 GB/s"), (("mlx5_6", "gpu6"), "PIX, 24.0 GB/s")):
            for end in ends:  # Its link is narrower towards gpu6.
                browser.point(named("host0/" + end), click=True)
            expect("a way and the way back", browser.panel(), " to ".join(ends), rate)
        browser.point(named("host0/mlx5_3"), click=True)  # Begins anew.
        expect("chosen again", browser.panel(), "host0/mlx5_3")
        browser.point('.finding button[data-node="host0/gpu5"]', click=True)
        expect("a finding's node", browser.panel(), "host0/gpu5")
        if browser.value("document.querySelector('.picture .picked').dataset.name") != "host0/gpu5":
            sys.exit("a click on a finding's node does not mark it")
        browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        if browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)":
            sys.exit("the page is white where dark is asked for")
        browser.picture(folder / "dark.png")
        browser.close()
    if browser.errors:
        sys.exit("the browser complains:\n" + "\n".join(browser.errors))


if __name__ == "__main__":
    main()
