"""Formats the rows of a comparison as Markdown tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence

from ipubench.fixtures.machine.packages import version_of
from ipubench.plugins.record.text import short_number
from scripts.compare_peers.case import Row
from scripts.markdown_table import markdown_table

#: Packages whose versions can affect a row.
PACKAGES = (
    *("torch", "torchvision", "timm", "openvino", "onnxruntime", "tensorflow", "keras"),
    *("tensorflow-probability", "nvidia-pytriton", "tritonclient", "numpy"),
)
MEANING = (
    "ratio: our rate over the peer's in the same round, the median of all rounds and its 95 % "
    "interval. Above 1 ours is faster. All programs of a case take turns in one process."
)
MARKDOWN = ("case", "type", "against", "ours", "theirs", "ratio", "95 % interval", "rounds")


@dataclass(frozen=True)
class Section:
    """The rows of one group at one level."""

    title: str
    machine: str  # the processor at that level
    unit: str
    rows: Sequence[Row]


def versions() -> Dict[str, str]:
    """Return the installed versions of PACKAGES."""
    found = {name: version_of(name) for name in PACKAGES}
    return {name: version for name, version in found.items() if version}


def ratio_text(value: float) -> str:
    """Return a ratio with three significant digits."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _versions_text(packages: Dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def summary(sections: Sequence[Section]) -> str:
    """Return a sentence: how often ours was slower than a peer, and where most."""
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
        return [*names, "", "", f"not measured: {row.reason}", "", ""]
    assert row.low is not None and row.high is not None
    return [
        *names,
        short_number(row.ours),
        short_number(row.theirs),
        ratio_text(row.ratio),
        f"{ratio_text(row.low)} to {ratio_text(row.high)}",
        str(row.rounds),
    ]
