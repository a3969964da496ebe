"""The site as a reader opens it: from disk, without a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import chromium
from tests.support.harness import ROOT

#: Tables with a column off the screen, and words of code that are broken although they fit.
CUT_OFF = """[...document.querySelectorAll("[role=main] :is(table, :not(pre) > code > span)")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1 || one.getClientRects().length > 1)
    .map((one) => one.textContent.slice(0, 80))"""


#: The first element of a page below its menu.
START = r'<div class="container">\s*<div class="row">'


def _all_pages(site: Path) -> Path:
    """Write what all pages show, one below the other: opening each takes longer than the rest."""
    texts = [path.read_text(encoding="utf-8") for path in site.glob("*/*.html")]
    parts = [re.findall(START + r".*?(?=<footer)", text, re.DOTALL) for text in texts]
    shown = [part for (part,) in parts]
    together = site / "how-to" / "all.html"
    together.write_text("".join([texts[0].partition("<body")[0], *shown]), encoding="utf-8")
    return together


@pytest.mark.slow
def test_the_site_can_be_searched_from_disk_and_fits_a_phone(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    site = tmp_path / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", f"--site-dir={site}"]
    subprocess.run(build, cwd=ROOT, check=True, timeout=120)
    with chromium() as browser:
        narrow = browser.new_page(java_script_enabled=False)
        narrow.goto(_all_pages(site).as_uri())
        for width in (380, 1280):
            narrow.set_viewport_size({"width": width, "height": 900})
            assert narrow.evaluate(CUT_OFF) == [], width
        page = browser.new_page(viewport={"width": 400, "height": 900}, color_scheme="dark")
        page.goto((site / "explanation" / "speed.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        assert page.evaluate("document.documentElement.dataset.bsTheme") == "dark"
        page.keyboard.press("s")
        page.fill("#mkdocs-search-query", "merge-base")
        page.click(
            "#mkdocs-search-results a:text-is('Compare two revisions, versions or environments')"
        )
        page.wait_for_url("**/how-to/against.html")
