"""A headless Chromium for tests of pages, driven by Playwright."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any, Iterator, List

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OWN = ("file:", "about:", "data:", "blob:")
#: No page lives long enough for V8's optimisation to pay.
FLAGS = ("--no-sandbox", "--disable-gpu", "--js-flags=--no-opt --no-maglev")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run this machine's Chromium; skip the test if it or Playwright is missing."""
    playwright: Any = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


class Tab:
    """One tab; ``complaints`` collects its pages' errors and external requests."""

    def __init__(self, browser: Browser) -> None:
        self.complaints: List[str] = []
        self._page = browser.new_page()
        self._page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self._page.on("console", self._note_message)
        self._page.on("request", self._note_request)

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Return the tab's page once the scripts of this address have run."""
        self._page.set_viewport_size({"width": width, "height": height})
        self._page.emulate_media(media="screen", color_scheme="dark" if dark else "light")
        self._page.goto("about:blank")  # otherwise another fragment would not reload the page
        self._page.goto(url)
        self._page.wait_for_selector("html[data-ready=yes]", state="attached")
        return self._page

    def _note_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(OWN):
            self.complaints.append(f"loads {request.url}")
