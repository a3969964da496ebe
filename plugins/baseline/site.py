"""Implements ``ipubench-baseline site DIR``, which writes the history's trends as web pages.

index.html shows the latest changes and lists every trend. Each case has a page with a chart and a
table of its runs for each machine and configuration. The pages need no network and open from disk.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
from argparse import Namespace
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.machine.files import user_path, write_atomically
from ipubench.plugins.baseline.change_points import Change
from ipubench.plugins.baseline.commands import suite_root
from ipubench.plugins.baseline.entries import HASH_LENGTH, grouped
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.history import (
    FOLDER,
    chance_text,
    nothing_in,
    read,
    slug,
    with_changes,
)
from ipubench.plugins.baseline.trends import (
    Trend,
    less_likely,
    levels,
    names_of_cases,
    trends_of,
    undecided_text,
)
from ipubench.plugins.record.text import (
    complain,
    minute,
    name_of_test,
    percent,
    rate_text,
    say,
    without_identifier,
)
from ipubench.plugins.record.verdict import interval_text
from ipubench.plugins.web.templates import is_installed, render, script

#: Limits of the latest changes on the front page.
MOST_EVENTS = 50
NO_LIBRARIES = "the site needs jinja2: pip install jinja2"
COLUMNS = (
    ("case", "name", False),
    ("level", "level", True),
    ("last change", "change", True),
    ("at", "changed", False),
    ("runs", "runs", True),
    ("machine", "machine", False),
)
#: Columns of a trend's runs.
POINT_COLUMNS = (
    ("run (UTC)", "when", False),
    ("revision", "revision", False),
    ("throughput", "rate", True),
    ("95% interval", "interval", True),
    ("processes", "processes", True),
    ("change of level", "change", True),
    ("what was decided", "decided", False),
)
#: Keys of a row that the filters use.
FILTERED = ("id", "function", "name", "machine", "kind")

Marked = Tuple[Trend, List[Change]]


def site(args: Namespace) -> int:
    """Write the pages; return the exit code."""
    try:
        source = user_path(args.folder) if args.folder else suite_root() / FOLDER
        target = user_path(args.out)
    except OSError as error:
        raise BaselineError(f"a folder cannot be used: {error}") from error
    kept = read(source, lambda nodeid: True, args.last)
    for note in kept.notes:
        complain(note)
    found = trends_of(kept.benchmarks)
    if not found:
        raise nothing_in(source, "", args.last)
    if not is_installed():
        raise BaselineError(NO_LIBRARIES)
    files = pages(with_changes(found), kept.runs, args.commits or "")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in files:
            write_atomically(target / name, text)
    except OSError as error:
        raise BaselineError(f"{target} cannot be written: {error.strerror or error}") from error
    say(f"{counted(len(found), 'trend')} written to {target / 'index.html'}")
    return 0


def pages(found: Sequence[Marked], runs: int, commits: str = "") -> Iterator[Tuple[str, str]]:
    """Yield the name and the text of each file. Raises ImportError without jinja2.

    ``runs``: the number of runs in the trends.
    ``commits``: the address of a commit, with {} in place of its number; '' for no links.
    """
    yield "site.css", script("style.css", "site.css")
    yield "index.js", script("table.js", "index.js")
    yield "case.js", script("plot.js", "case.js")
    yield "index.html", _index(found, runs, commits)
    for nodeid, ours in grouped(found, lambda one: one[0].key.nodeid).items():
        yield file_of(nodeid), _case(nodeid, ours, commits)


def address_of_commits(text: str) -> str:
    """Return a valid --commits=ADDRESS unchanged. Raises ArgumentTypeError."""
    if not text.startswith(("https://", "http://")) or "{}" not in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address like https://example.org/project/commit/{{}}"
        )
    return text


def file_of(nodeid: str) -> str:
    """Return the name of a case's page."""
    return f"case-{slug(nodeid)}.html"


def _index(found: Sequence[Marked], runs: int, commits: str) -> str:
    names = names_of_cases([trend for trend, _ in found])
    rows = [_row(trend, changes, names) for trend, changes in found]
    machines = sorted({row["machine"] for row in rows})
    newest = max(point.time for trend, _ in found for point in trend.points)
    events = sorted(_events(found, commits, names), key=lambda event: event["time"], reverse=True)
    moments = _moments(event["time"] for event in events)
    for event in events:
        event["when"] = moments[event["time"]]
    facts = {
        **({"machine": machines[0]} if len(machines) == 1 else {"machines": str(len(machines))}),
        "cases": str(len({row["id"] for row in rows})),
        "runs": str(runs),
        "newest run": f"{minute(newest)} UTC",
    }
    functions = sorted({row["function"] for row in rows})
    kinds = sorted({row["kind"] for row in rows})
    values = {
        "facts_of_site": facts,
        "events": events[:MOST_EVENTS],
        "undecided": sum(bool(row["undecided"]) for row in rows),
        "more": max(0, len(events) - MOST_EVENTS),
        "filters": [
            {"key": key, "label": label, "values": list(filter(None, choices))}
            for key, label, choices in (
                ("machine", "Machine", machines),
                ("function", "Function", functions),
                ("kind", "Last change", kinds),
            )
            if len(choices) > 1
        ],
        "columns": [
            column
            for column in COLUMNS
            if any(row[column[1]] or (column[1] == "change" and row["undecided"]) for row in rows)
            and (column[1] != "machine" or machines[1:])
        ],
        "rows": rows,
        "data": {"rows": [{key: row[key] for key in FILTERED} for row in rows]},
    }
    return render("site.html", values)


def _row(trend: Trend, changes: Sequence[Change], names: Mapping[str, str]) -> Dict[str, Any]:
    """Return a trend's line on the front page."""
    function, name = _names(trend.key.nodeid)
    change = changes[-1] if changes else None
    moment = trend.points[change.run] if change else None
    level = levels(trend, changes)[-1][1]
    return {
        "id": trend.key.nodeid,
        "function": function,
        "where": _where(trend.key.nodeid, names),
        "name": name,
        "file": file_of(trend.key.nodeid),
        "anchor": anchor_of(trend),
        "machine": trend.key.fingerprint,
        "configuration": trend.key.config_hash[:HASH_LENGTH],
        "runs": len(trend.points),
        "level": rate_text(level),
        "unit": trend.unit,
        **_change_fields(change),
        "undecided": undecided_text(trend.runs_needed(changes)),
        "changed": "" if moment is None else f"{moment.revision} {minute(moment.time)}".strip(),
        "sorted_by": {
            "name": name,
            "machine": trend.key.fingerprint,
            "runs": len(trend.points),
            "level": level,
            "change": "" if change is None else change.change,
            "changed": "" if moment is None else moment.time,
        },
    }


def _events(
    found: Sequence[Marked], commits: str, names: Mapping[str, str]
) -> Iterator[Dict[str, Any]]:
    """Yield events: changes of level and accepted slow-downs."""
    for trend, changes in found:
        common = {
            "case": names[trend.key.nodeid],
            "link": f"{file_of(trend.key.nodeid)}#{anchor_of(trend)}",
            "machine": trend.key.fingerprint,
        }
        marks = {change.run: change for change in changes}
        for index, point in enumerate(trend.points):
            change = marks.get(index)
            if change is None and not point.accepted:
                continue
            yield {
                **common,
                "time": point.time,
                "revision": point.revision,
                "commit": _commit(point.revision, commits),
                **_change_fields(change),
                "why": point.accepted,
            }


def _case(nodeid: str, ours: Sequence[Marked], commits: str) -> str:
    _, name = _names(nodeid)
    trends = []
    for trend, changes in ours:
        marks, others = {change.run: change for change in changes}, less_likely(changes)
        moments = _moments(point.time for point in trend.points)
        points: List[Dict[str, Any]] = [
            {
                **dataclasses.asdict(point),
                **_change_fields(marks.get(index)),
                "perhaps": chance_text(others[index]) if index in others else "",
                "when": moments[point.time],
                "rate": rate_text(point.throughput),
                "interval": _interval(point.low, point.high),
                "commit": _commit(point.revision, commits),
            }
            for index, point in enumerate(trend.points)
        ]
        trends.append(
            {
                "anchor": anchor_of(trend),
                "machine": trend.key.fingerprint,
                "configuration": trend.key.config_hash[:HASH_LENGTH],
                "unit": trend.unit,
                "columns": [
                    column
                    for column in POINT_COLUMNS
                    if any(_filled(point, column[1]) for point in points)
                ],
                "undecided": undecided_text(trend.runs_needed(changes)),
                "points": points,
                "levels": levels(trend, changes),
            }
        )
    return render(
        "case.html", {"where": without_identifier(nodeid), "name": name, "trends": trends}
    )


def _filled(point: Mapping[str, Any], key: str) -> bool:
    """Return whether a run has something in a column."""
    keys = {"decided": ("promoted", "accepted"), "change": ("change", "perhaps")}
    return any(point[one] for one in keys.get(key, (key,)))


def _moments(times: Iterable[str]) -> Dict[str, str]:
    """Return how each time is written: to the minute, or to the second if minutes repeat."""
    different = set(times)
    minutes = collections.Counter(map(minute, different))
    return {
        time: minute(time) if minutes[minute(time)] == 1 else time[:19].replace("T", " ")
        for time in different
    }


def anchor_of(trend: Trend) -> str:
    """Return the anchor of a trend on its case's page: machine, configuration and unit."""
    return slug(json.dumps([trend.key.fingerprint, trend.key.config_hash, trend.unit]))[-8:]


def _change_fields(found: Optional[Change]) -> Dict[str, str]:
    """Return a change as text, its colour, and how sure it is."""
    if found is None:
        return {"change": "", "kind": "", "sure": ""}
    interval, chance = interval_text(found.low, found.high), chance_text(found.sure)
    return {
        "change": percent(found.change, sign=True),
        "kind": "faster" if found.change > 0 else "slower",
        "sure": f"{interval}; {chance} sure that it began with this run",
    }


def _names(nodeid: str) -> Tuple[str, str]:
    """Return the function and the name of a case."""
    function, _, rest = name_of_test(nodeid).partition("[")
    return function, rest[:-1] or function


def _where(nodeid: str, names: Mapping[str, str]) -> str:
    """Return the prefix of a case's name: its function and, if shown, its file."""
    called = names[nodeid]
    return without_identifier(nodeid) if called == nodeid else called.partition("[")[0]


def _interval(low: Optional[float], high: Optional[float]) -> str:
    if low is None or high is None:
        return ""
    return f"{rate_text(low)} to {rate_text(high)}"


def _commit(revision: str, commits: str) -> str:
    """Return the address of a commit, or ''."""
    number = revision.partition("-")[0]
    return commits.replace("{}", number) if commits and number else ""
