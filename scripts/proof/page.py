"""Writes the tables of docs/explanation/other-projects.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator, List, Mapping, Sequence

from scripts.markdown_table import markdown_table
from scripts.proof.releases import RELEASES, SAME, Release
from scripts.proof.tools import FAILED, OPEN, TOOLS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "other-projects.md"
BEGIN, END = "<!-- begin: python -m scripts.proof -->", "<!-- end -->"


def write(results: Mapping[str, Any]) -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tables(text, results), encoding="utf-8")


def with_tables(text: str, results: Mapping[str, Any]) -> str:
    """Return the text of the page with the tables of these results."""
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    tables = "\n\n".join(_tables(results))
    return f"{before}{BEGIN}\n\n{tables}\n\n{after}"


def key_of(release: Release) -> str:
    """Return the name of a comparison."""
    return f"{release.package} {release.before} -> {release.now}"


def _tables(results: Mapping[str, Any]) -> Iterator[str]:
    head = ("condition", "tool", "found", "missed", "false", "inconclusive", "minutes")
    rows = [row for named in sorted(results, reverse=True) for row in sums(named, results[named])]
    yield markdown_table(head, rows)
    for named in sorted(results, reverse=True):
        loads, answers = results[named]["loads"], results[named]["answers"]
        tools = [tool for tool in TOOLS if any(tool in given for given in answers.values())]
        most = f", at most {results[named]['gate_time']} of pairs for a benchmark"
        yield (
            f"{named[:1].upper()}{named[1:]}: load of the machine {min(loads)} to {max(loads)} on "
            f"{results[named]['cpus']} CPUs{most if 'ipubench' in tools else ''}."
        )
        yield markdown_table(
            ("release", "code", "known", *tools),
            [_row(one, answers.get(key_of(one), {}), tools) for one in RELEASES],
        )
    yield "The words of the changelogs:"
    words = [(key_of(one).replace("->", "→"), one.words) for one in RELEASES if one.words]
    yield markdown_table(("release", "words"), words)


def sums(named: str, condition: Mapping[str, Any]) -> Iterator[List[str]]:
    """Yield a row for each tool: how often it was right, and how long all took."""
    for tool in TOOLS:
        given = {
            one: condition["answers"][key_of(one)][tool]
            for one in RELEASES
            if tool in condition["answers"].get(key_of(one), {})
        }
        if not given:
            continue
        known = sum(one.known != SAME for one in given)
        found = sum(one.known == it["found"] for one, it in given.items() if one.known != SAME)
        undecided = sum(it["found"] in (OPEN, FAILED) for it in given.values())
        missed = sum(it["found"] == SAME for one, it in given.items() if one.known != SAME)
        decided = {one: it for one, it in given.items() if it["found"] not in (OPEN, FAILED)}
        false = sum(it["found"] not in (one.known, SAME) for one, it in decided.items())
        minutes = sum(it["seconds"] for it in given.values()) / 60
        cells = [f"{found} of {known}", str(missed), str(false), str(undecided), f"{minutes:.0f}"]
        yield [named, tool, *cells]


def _row(
    release: Release, given: Mapping[str, Mapping[str, Any]], tools: Sequence[str]
) -> List[str]:
    code = "compiled" if release.compiled else "Python"
    cells = [_cell(given[tool]) if tool in given else "" for tool in tools]
    return [key_of(release).replace("->", "→"), code, release.known, *cells]


def _cell(answer: Mapping[str, Any]) -> str:
    change = f" {answer['change']:+.0%}" if answer["change"] else ""
    return f"{answer['found']}{change}, {answer['seconds']:.0f} s"
