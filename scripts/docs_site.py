"""Hooks of MkDocs (mkdocs.yml): tables, a search from disk, colours of code, schemas."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parents[1]


def on_page_content(html: str, **_: Any) -> str:
    """Give each cell of a table its heading, for phones, and keep the words of code whole."""
    html = re.sub(r"<table>.*?</table>", _labelled, html, flags=re.DOTALL)
    return re.sub(r"<code>(.*?)</code>", _in_words, html)


def _labelled(table: re.Match[str]) -> str:
    headings = re.findall(r"<th[^>]*>(.*?)</th>", table[0], re.DOTALL)
    labels = [escape(re.sub(r"<[^>]*>", "", one), quote=True) for one in headings]

    def row(found: re.Match[str]) -> str:
        label = iter(labels)
        return re.sub(r"<td\b", lambda _: f'<td data-label="{next(label)}"', found[0])

    return re.sub(r"<tr>.*?</tr>", row, table[0], flags=re.DOTALL)


def _in_words(code: re.Match[str]) -> str:
    words = (f"<span>{word}</span>" if word else "" for word in code[1].split(" "))
    return f"<code>{' '.join(words)}</code>"


def on_post_build(config: Any) -> None:
    """Write what is no page. The search index is a script: a page on disk cannot fetch JSON."""
    site = Path(config["site_dir"])
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    (site / "search" / "index.js").write_text(f"searchIndex = {index};\n", encoding="utf-8")
    styles = (
        HtmlFormatter(style=style).get_style_defs(f"{theme} .codehilite")
        for style, theme in (("friendly", ""), ("github-dark", "[data-bs-theme=dark]"))
    )
    (site / "css" / "code.css").write_text("\n".join(styles), encoding="utf-8")
    sys.path.insert(0, str(ROOT))  # MkDocs is started as a program
    from scripts.schema import write

    write(site / "reference")
