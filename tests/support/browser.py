"""A headless Chromium for tests, driven over its DevTools pipe; nothing else is needed."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    # No page lives long enough for what V8 would optimise.
    "--js-flags=--no-opt --no-maglev",
)

# Within this the browser answers a command, and a page is there; a busy machine takes a second.
MOST_SECONDS = 120.0
POLL_SECONDS = 0.02
# Of a page of ours: what it unpacks first takes a moment.
READY = "document.documentElement.dataset.ready === 'yes'"


class BrowserError(AssertionError):
    """The browser or its page does not answer."""


def chromium() -> Optional[str]:
    """Return the program, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for found in map(shutil.which, names) if found), None)


class Browser:
    """One tab. What its pages report as errors, or fail to load, is in ``complaints``."""

    def __init__(self, profile: Path) -> None:
        # The browser reads commands from its descriptor 3 and writes answers to 4.
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (commands, answers)]

        def connect() -> None:
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        program = chromium()
        assert program is not None
        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (commands, answers, *theirs):
            os.close(descriptor)
        self.complaints: List[str] = []
        self._number = 0
        self._rest = b""
        self._session = ""
        target = next(
            t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        self._session = self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._session = ""
        with contextlib.suppress(BrowserError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **params: Any) -> Dict[str, Any]:
        """Send one command of the DevTools protocol and return its answer.

        Raises BrowserError where none comes.
        """
        self._number += 1
        message: Dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._out, text) :]
        deadline = time.monotonic() + MOST_SECONDS
        while True:
            answer = self._read(deadline, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer}")
                result: Dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of that size and wait until its scripts have run."""
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        # Another fragment alone would not load the page again.
        for address, ready in (("about:blank", "true"), (url, READY)):
            self.call("Page.navigate", url=address)
            self._wait_for(address.partition("#")[0], ready)

    def _wait_for(self, address: str, ready: str) -> None:
        """Ask again and again: a promise of the page before would never be kept."""
        deadline = time.monotonic() + MOST_SECONDS
        found: Any = None
        while found != [address, True]:
            if time.monotonic() > deadline:
                raise BrowserError(f"{address} is not ready: {found}; it said: {self.complaints}")
            try:
                found = self.evaluate(f"[location.href.split('#')[0], {ready}]")
            except BrowserError as error:  # between two pages
                found = error
            time.sleep(POLL_SECONDS)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write what the window shows, or the whole page, as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        answer = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(answer["data"])

    def _read(self, deadline: float, method: str) -> Dict[str, Any]:
        while b"\0" not in self._rest:
            left = max(0.0, deadline - time.monotonic())
            if not wait([self._in], left):
                raise BrowserError(f"no answer to {method} within {MOST_SECONDS:.0f} s")
            part = os.read(self._in, 1 << 16)
            if not part:
                raise BrowserError(f"the browser has ended, asked for {method}")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: Dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: Dict[str, Any]) -> None:
        if "id" in event:  # the answer to a command that was given up
            return
        params = event.get("params", {})
        if event["method"] == "Inspector.targetCrashed":
            raise BrowserError("the page has crashed")
        if event["method"] == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", str(details)))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
        ):
            self.complaints.append(str([arg.get("value") for arg in params["args"]]))
        elif event["method"] == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "about:", "data:", "blob:")):
                self.complaints.append(f"loads {url}")
