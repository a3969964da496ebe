"""Hooks of MkDocs (mkdocs.yml): a search that works from disk, code highlighting, the schemas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parents[1]


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
