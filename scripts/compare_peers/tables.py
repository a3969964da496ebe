"""The rows of a comparison as a table for a terminal and for a page in Markdown."""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import dataclass
from typing import Dict, Iterator, List, Sequence

from ipubench.fixtures.machine.packages import version_of
from ipubench.plugins.record.text import aligned, cut_middle, short_number
from scripts.compare_peers.case import Row
from scripts.markdown_table import markdown_table

WIDTH = 80
#: Packages whose versions can change a row.
PACKAGES = (
    *("torch", "torchvision", "timm", "openvino", "onnxruntime", "tensorflow", "keras"),
    *("tensorflow-probability", "nvidia-pytriton", "tritonclient", "numpy"),
)
MEANING = (
    "ratio: our rate over the peer's in the same round, the median of all rounds and its 95 % "
    "interval. Above 1 ours is faster. All programs of a case take turns in one process."
)
COLUMNS = (40, 10, 6, 13, 6)
GAP = " "
SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
MARKDOWN = ("case", "type", "against", "ours", "theirs", "ratio", "95 % interval", "rounds")


@dataclass(frozen=True)
class Section:
    """The rows of one family at one level."""

    title: str
    machine: str  # as it is at the level
    unit: str
    rows: Sequence[Row]


def versions() -> Dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {name: version_of(name) for name in PACKAGES}
    return {name: version for name, version in found.items() if version}


def ratio_text(value: float) -> str:
    """Return a ratio with three digits, where it has so many before the point or after it."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def terminal(sections: Sequence[Section], packages: Dict[str, str]) -> List[str]:
    """Return the lines of all tables, at most WIDTH columns each."""
    lines = _wrapped(_versions_text(packages)) + _wrapped(MEANING)
    for section in sections:
        lines += ["", *_wrapped(f"{section.title}: {section.machine}")]
        if any(row.ratio is not None for row in section.rows):
            headings = ("", section.unit, "ratio", "95 % interval", "rounds")
            lines.append(aligned(headings, COLUMNS, GAP))
        for case, rows in itertools.groupby(section.rows, key=lambda row: row.case):
            lines += _case(case, list(rows))
    return [*lines, "", *_wrapped(summary(sections))]


def _case(case: str, rows: List[Row]) -> Iterator[str]:
    rates = [row.ours for row in rows if row.ours is not None]
    if case:
        label = ", ".join(filter(None, (case, SHORT.get(rows[0].dtype, rows[0].dtype))))
        shown = cut_middle(label, COLUMNS[0])
        if rates:
            yield f"{shown:{COLUMNS[0]}} {short_number(rates[0]):>{COLUMNS[1]}}"
        else:
            yield shown
    for row in rows:
        name = "  " + cut_middle(row.peer, COLUMNS[0] - 2) if row.peer else ""
        if row.ratio is None or row.theirs is None or row.low is None or row.high is None:
            yield from _wrapped(f"{name.strip()} {_reason(row)}".strip(), "  ")
        else:
            interval = f"{ratio_text(row.low)} to {ratio_text(row.high)}"
            yield aligned(
                (name, short_number(row.theirs), ratio_text(row.ratio), interval, str(row.rounds)),
                COLUMNS,
                GAP,
            )


def _reason(row: Row) -> str:
    return f"not measured: {row.reason}"


def _wrapped(text: str, indent: str = "") -> List[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")


def _versions_text(packages: Dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def summary(sections: Sequence[Section]) -> str:
    """Return in one sentence how often ours was slower than a peer, and where most."""
    compared = [row for section in sections for row in section.rows if row.ratio is not None]
    if not compared:
        return "Nothing was measured."
    slower = [row for row in compared if row.high is not None and row.high < 1]
    text = f"Ours is slower than a peer in {len(slower)} of {len(compared)} comparisons"
    if not slower:
        return f"{text}."
    slower.sort(key=lambda row: row.ratio or 0)
    named = (f"{r.case} ({r.level}) against {r.peer} {ratio_text(r.ratio or 0)}" for r in slower)
    return f"{text}: {'; '.join(named)}."


def markdown(sections: Sequence[Section], packages: Dict[str, str], day: str) -> str:
    """Return the tables as Markdown; ``day`` is the date of the run."""
    blocks = [f"{day}. {_versions_text(packages)}.", MEANING]
    for section in sections:
        blocks.append(f"**{section.title}, {section.unit}**: {section.machine}")
        blocks.append(markdown_table(MARKDOWN, map(_cells, section.rows)))
    return "\n\n".join([*blocks, summary(sections)]) + "\n"


def _cells(row: Row) -> List[str]:
    names = [row.case or "all", row.dtype, row.peer]
    if row.ratio is None or row.ours is None or row.theirs is None:
        return [*names, "", "", _reason(row), "", ""]
    assert row.low is not None and row.high is not None
    return [
        *names,
        short_number(row.ours),
        short_number(row.theirs),
        ratio_text(row.ratio),
        f"{ratio_text(row.low)} to {ratio_text(row.high)}",
        str(row.rounds),
    ]
