#!/usr/bin/env python3
"""tests/process/report_live_page.py BROWSER FOLDER SERVER JOB ADDRESS: looks at the page of `tutti report --live`
at ADDRESS in a headless Chromium, while the ranks of JOB (a process of tutti run) go on, one of them is stopped, and
they end; then ends SERVER (a process), too. The pictures go to FOLDER. Exit code 77: the browser does not start here.
"""
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from report_page import Browser, Gone, expect  # noqa: E402


class Live:
    def __init__(self, browser):
        self.browser = browser

    def text(self):
        return self.browser.value("document.getElementById('running').parentElement.innerText")

    def wait(self, what, script):
        """Until the script's value is true: the page looks once a second."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.browser.value(script):
                return
            time.sleep(0.2)
        sys.exit(f"{what}: not after 60 s; the page shows:\n{self.text()}")


def children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def watch(browser, folder, server, job):
    live = Live(browser)
    # Two looks, so that there are rates.
    live.wait("rates", "/[1-9].* calls\\/s, .*B\\/s a rank/.test(document.querySelector('.rates')?.textContent)")
    expect("a job", live.text(), "3 ranks on", "by shared_memory", "all_reduce of", "job <b>ranks</b>: ")
    if browser.value("document.querySelector('#live b') !== null"):
        sys.exit("the name of a job became markup")
    if browser.value("document.querySelectorAll('.ring .rank').length") != 3:
        sys.exit("the picture does not have 3 ranks")
    browser.picture(folder / "live.png")
    stopped = children(job)[1]
    number = browser.value("[...document.querySelectorAll('.ranks tr')].find(row => row.cells[1].textContent"
                           f".startsWith('{stopped} ')).cells[0].textContent")
    os.kill(stopped, signal.SIGSTOP)
    live.wait("a stopped rank", "document.querySelector('.ring .stopped.blocker') !== null"
                                " && document.querySelectorAll('.wait').length === 2")
    expect("a stopped rank", live.text(), f"rank {number} is stopped", "have waited for it")
    if browser.value("document.querySelector('.ring .stopped').dataset.rank") != number:
        sys.exit("the picture marks another rank than the one that is stopped")
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.picture(folder / "live_dark.png")
    os.kill(stopped, signal.SIGCONT)
    live.wait("going on", "document.querySelector('.ring .stopped') === null"
                          " && document.querySelector('.sentence') === null")
    os.kill(job, signal.SIGTERM)
    live.wait("the end of the job", "document.getElementById('live').innerText.includes('No rank')")
    if browser.errors:
        sys.exit("the browser complains:\n" + "\n".join(browser.errors))
    os.kill(server, signal.SIGINT)
    live.wait("the end of the server", "document.getElementById('seen').innerText.includes('has ended')")


def main():
    program, folder, server, job, address = sys.argv[1:]
    with tempfile.TemporaryDirectory() as profile:
        try:
            browser = Browser(program, profile, address)
        except (Gone, OSError):
            sys.exit(77)
        browser.open(address)
        try:
            watch(browser, Path(folder), int(server), int(job))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
