"""The generated pages of docs/reference match the declarations."""

from __future__ import annotations

import re
from typing import Dict

import pytest

from ipubench.fixtures.command_line import NAMES
from scripts.option_tables import REFERENCE, pages
from tests.support.harness import ROOT

WRITTEN = sorted(
    path.name for path in REFERENCE.glob("*.md") if "scripts.option_tables" in path.read_text()
)


@pytest.fixture(scope="module")
def generated() -> Dict[str, str]:
    return pages()


def test_each_generated_page_is_up_to_date(generated: Dict[str, str]) -> None:
    stale = [
        name
        for name, text in generated.items()
        if not (REFERENCE / name).is_file()
        or (REFERENCE / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: python -m scripts.option_tables"
    assert sorted(generated) == WRITTEN


def test_every_bench_function_has_a_table(generated: Dict[str, str]) -> None:
    files = sorted(ROOT.glob("bench_*/bench_*.py"))
    text = "".join(generated.values())
    assert [
        str(path.relative_to(ROOT)) for path in files if f"`{path.relative_to(ROOT)}`" not in text
    ] == []
    assert len(files) >= 15


def test_every_option_of_the_table_is_one_of_ours(generated: Dict[str, str]) -> None:
    flags = re.findall(r"^\| `--([a-z-]+)` \|", generated["command-line.md"], re.MULTILINE)
    names = {"case_options" if flag == "set" else flag.replace("-", "_") for flag in flags}
    assert names <= set(NAMES)
    assert {"device", "case_options", "gate", "report"} <= names
    assert "instance" not in names  # hidden in --help too
