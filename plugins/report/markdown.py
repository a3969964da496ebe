"""summary.md: a comment for a pull request, or a job's summary."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Sequence

from ipubench.plugins.baseline.case_row import environment
from ipubench.plugins.baseline.rows import (
    CHANGED,
    Report,
    by_change,
    headline,
    interval_text,
    own_noise,
)
from ipubench.plugins.record.record import compile_text
from ipubench.plugins.record.text import (
    markdown_row,
    minute_of,
    number_text,
    percent,
    share_text,
    short_number,
)
from ipubench.plugins.record.verdict import UNJUDGED, how_compared
from ipubench.plugins.report import published
from ipubench.plugins.report.profiles import caption, explained, table_of

# A comment on GitHub ends at 65,536 characters, one on GitLab at a million.
LARGEST = 60_000
MOST_PROBLEMS = 20  # of runs
# Kept free for the environment, which comes last and may be cut itself.
LAST = 6_000
MARKS = {
    "regressed": "🔴",
    "failed": "🔴",
    "missing": "🔴",
    "not run": "🔴",
    "inconclusive": "🟡",
    "incomparable": "🟡",
    "improved": "🟢",
    UNJUDGED: "⚪",
}
# Columns of text.
LEFT = ("case", "verdict", "why", "engine")


def markdown(report: Report) -> str:
    """Return the summary: the verdict, what changed, the rest folded; 60 kB at most."""
    rows = report.rows()
    changed = by_change([row for row in rows if row["kind"] in CHANGED])
    worst = by_change(rows)[0]["kind"] if rows else ""
    mark = "🔴" if report.problems else MARKS.get(worst, "🟢")
    lines = [f"**{mark} {escape(headline(report, rows))}**", ""]
    lines += [f"- 🔴 {escape(problem[:300])}" for problem in report.problems[:MOST_PROBLEMS]]
    lines += [""] if report.problems else []
    if changed:
        head = ["verdict", "case", "before", "now", "change", "why"]
        lines += _fitting(lines, head, [_changed(row) for row in changed], LARGEST - 2 * LAST)
        how = how_compared(any(row["in_turns"] for row in rows))
        lines += ["", f"Change is {how}, with its 95% interval; + is faster.", ""]
    lines += _profiles(lines, explained(changed))
    noisy = own_noise((row["name"], row) for row in rows)
    lines += [escape(noisy), ""] if noisy else []
    full = ["case", "throughput", "engine", "±", "p50 ms", "p99 ms", "compile s", "peak"]
    full += ["change", "verdict"]
    lines += [f"<details><summary>All {len(rows)} cases</summary>", ""]
    lines += _fitting(lines, full, [_full(row) for row in rows], LARGEST - LAST)
    lines += ["", "</details>", ""]
    known = published.last_lines(report.document["benchmarks"])
    lines += [f"- {escape(line.strip())}" for line in known] + ([""] if known else [])
    return "\n".join(lines) + _environment(report, LARGEST - _size(lines) - 1)


def escape(text: str) -> str:
    """Return text that no Markdown and no HTML reads as markup."""
    return re.sub(r"[^\w .,:;/+%()=±-]", lambda found: f"&#{ord(found.group())};", text)


def _fitting(
    before: Sequence[str], head: List[str], rows: List[List[str]], largest: int
) -> List[str]:
    """Return a table of as many rows as fit, and how many did not."""
    right = [":--" if name in LEFT else "--:" for name in head]
    lines = [markdown_row(head), f"|{'|'.join(right)}|"]
    size = _size([*before, *lines])
    for index, row in enumerate(rows):
        line = markdown_row(row)
        size += _size([line])
        if size > largest:
            return [*lines, "", f"{len(rows) - index} more are in results.csv and report.html."]
        lines.append(line)
    return lines


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "backslashreplace")) + 1 for line in lines)


def _changed(row: Dict[str, Any]) -> List[str]:
    return [
        f"{MARKS.get(row['kind'], '')} {row['kind']}".strip(),
        f"<code>{escape(row['name'])}</code>",
        _rate(row["before"], row["unit"]),
        _rate(row["throughput"] if row["now"] is None else row["now"], row["unit"]),
        change_text(row),
        escape("; ".join(row["reasons"])[:300]),
    ]


def _full(row: Dict[str, Any]) -> List[str]:
    return [
        f"<code>{escape(row['name'])}</code>",
        _rate(row["throughput"], row["unit"]),
        escape(row["engine"]),
        share_text(row["spread"]),
        number_text(row["p50_ms"]),
        number_text(row["p99_ms"]),
        compile_text(row),
        share_text(row["share"], 0),
        change_text(row),
        row["kind"],
    ]


def change_text(row: Dict[str, Any]) -> str:
    """Return the change with its interval, or '' where nothing was compared."""
    if row["change"] is None:
        return ""
    text = percent(row["change"], sign=True)
    interval = interval_text({"low": row["change_low"], "high": row["change_high"]})
    return text if interval == "-" else f"{text} ({interval})"


def _rate(value: Any, unit: Any) -> str:
    return "" if value is None else f"{short_number(value)} {escape(str(unit or ''))}".strip()


def _profiles(before: Sequence[str], rows: Sequence[Dict[str, Any]]) -> List[str]:
    """Return a folded table of operations for each case that was profiled, as far as they fit."""
    lines: List[str] = []
    for row in rows:
        name = f"<code>{escape(row['name'])}</code>"
        found = [
            f"<details><summary>Where the time of {name} went</summary>",
            "",
            escape(caption(row["profile"])),
            "",
        ]
        headings, operations = table_of(row["profile"])
        if operations:
            found += [markdown_row(list(headings)), "|:--" + "|--:" * (len(headings) - 1) + "|"]
            found += [markdown_row([escape(text[:80]) for text in line]) for line in operations]
            found += [""]
        found += ["</details>", ""]
        if _size([*before, *lines, *found]) > LARGEST - 2 * LAST:
            return [*lines, "Operations of more cases are in report.html.", ""]
        lines += found
    return lines


def _environment(report: Report, room: int) -> str:
    lines = ["<details><summary>Environment</summary>", ""]
    if report.started is not None:
        lines.append(f"- started: {minute_of(report.started)}")
    if report.command:
        lines.append(f"- command: <code>{escape(report.command)}</code>")
    groups = environment(report.document)
    for group in ("device", "conditions", "versions", "code"):
        for key, value in groups.get(group, {}).items():
            line = f"- {escape(key)}: {escape(value[:300])}"
            if _size([*lines, line]) > room - 20:
                break
            lines.append(line)
    return "\n".join([*lines, "", "</details>"]) + "\n"
