"""The end of a run on the terminal: the table, what the gate found, what went wrong with data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from plugins import gate, pedantic
from plugins.gating import comparison_key, missing_cases
from plugins.journal import Run, run_key
from plugins.record import record_of, rounds_of
from plugins.units import percent, short_number

NARROWEST_NAME = 16
GAPS = (2, 1)  # between columns; the narrow one where a name would be cut
LARGEST_PRECISE_SPREAD = 0.05
MOST_LINES = 6  # of one kind of note
HEADINGS = ("case", "throughput", "±", "p50 ms", "p99 ms", "compile s", "peak", "change")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Ours is the table that people read."""
    pedantic.hide_table(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the table and everything that a number alone does not say."""
    run = config.stash.get(run_key, None)
    if run is None:
        return
    lines = summary(run, terminalreporter._tw.fullwidth)
    lines += gate_lines(config, run)
    lines += run.closing
    if lines:
        terminalreporter.section("benchmarks")
        for line in lines:
            terminalreporter.write_line(line)


def summary(run: Run, width: int) -> List[str]:
    """Return the table of all measured cases, grouped by bench function, and notes on them."""
    groups: Dict[str, List[Dict[str, Any]]] = {}
    for benchmark in run.results.benchmarks.values():
        groups.setdefault(benchmark["fullname"].split("[")[0], []).append(benchmark)
    rows: List[Tuple[str, ...]] = []
    for function, benchmarks in groups.items():
        unit = record_of(benchmarks[0])["throughput"]["unit"]
        rows.append((f"{function.split('::')[-1]} ({unit})",))
        rows += [_row(run, benchmark) for benchmark in benchmarks]
    return layout(rows, width) + _notes(run)


def _row(run: Run, benchmark: Dict[str, Any]) -> Tuple[str, ...]:
    record = record_of(benchmark)
    throughput, latency = record["throughput"], record["latency"]
    share = (record["compute"] or {}).get("share")
    compiled = short_seconds(record["compile_seconds"])
    return (
        f"  {record['name']}",
        short_number(throughput["median"]),
        percent(throughput["spread"]),
        short_number(latency["p50_ms"]),
        short_number(latency["p99_ms"]),
        compiled if record["compile"] in ("fresh", "cached") else "reused",
        "-" if share is None else percent(share, 0),
        change_text(run.results.verdicts.get(benchmark["fullname"])),
    )


def short_seconds(value: float) -> str:
    """Return seconds with a tenth."""
    return f"{value:.1f}"


def change_text(verdict: Any) -> str:
    """Return the change against the baseline, or why there is none."""
    if verdict is None:
        return "-"
    if verdict["change"] is None:
        return str(verdict["kind"])
    return percent(verdict["change"], sign=True)


def layout(rows: Sequence[Tuple[str, ...]], width: int) -> List[str]:
    """Align rows under the headings within ``width`` columns; a row of one cell is a heading.

    Columns that are empty throughout are left out; a name that does not fit is cut in its middle,
    where names differ least.
    """
    if not rows:
        return []
    full = [row for row in rows if len(row) > 1]
    shown = [
        index
        for index in range(len(HEADINGS))
        if index < 2 or any(row[index] not in ("-", "") for row in full)
    ]
    table = [HEADINGS, *full]
    widths = {index: max(len(row[index]) for row in table) for index in shown}
    numbers = sum(widths[index] for index in shown if index)
    for gap in GAPS:
        room = width - 1 - numbers - gap * (len(shown) - 1)
        if room >= widths[0]:
            break
    widths[0] = max(NARROWEST_NAME, min(widths[0], room))
    lines = []
    for row in (HEADINGS, *rows):
        if len(row) == 1:
            lines.append(row[0][: width - 1])
            continue
        cells = [_cut(row[0], widths[0]).ljust(widths[0])]
        cells += [row[index].rjust(widths[index]) for index in shown if index]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def _cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return text[:head] + ".." + text[len(text) - (width - 2 - head) :]


def _notes(run: Run) -> List[str]:
    lines = []
    corrupt: Dict[str, None] = {}
    imprecise = []
    for benchmark in run.results.benchmarks.values():
        record = record_of(benchmark)
        corrupt.update(dict.fromkeys(record["data"].get("corrupt", ())))
        if record["implausible"]:
            lines.append(f"{record['name']}: implausible, see its failure")
        spread = record["throughput"]["spread"]
        if record["rounds"]["stopped_by"] == "budget" and spread > LARGEST_PRECISE_SPREAD:
            imprecise.append(benchmark)
    records = [record_of(benchmark) for benchmark in run.results.benchmarks.values()]
    lines += _fewer_instances(records) + _input_limits(records) + _saved_seconds(records)
    lines += [
        f"{record['name']}: the loss was not finite at the end: training diverged; "
        "--set=abs_learning_rate=RATE lowers the rate"
        for record in records
        if "loss" in record.get("counters", {}) and record["counters"]["loss"] is None
    ]
    if imprecise:
        lines.append(_imprecise(imprecise))
    if corrupt:
        names = ", ".join(Path(path).name for path in list(corrupt)[:5])
        more = f" and {len(corrupt) - 5} more" if len(corrupt) > 5 else ""
        lines.append(f"{len(corrupt)} images could not be read and were replaced: {names}{more}")
    if run.results.resumed:
        lines.append(f"{len(run.results.resumed)} cases were measured before this run was resumed")
    return lines


def _fewer_instances(records: List[Dict[str, Any]]) -> List[str]:
    """Say which cases ran fewer processes than they asked for."""
    found: Dict[Tuple[int, int], List[str]] = {}
    for record in records:
        facts = record["effective"].get("instances") or {}
        if facts and facts["ran"] < facts["asked"]:
            found.setdefault((facts["asked"], facts["ran"]), []).append(record["name"])
    return [
        f"{names[0] if len(names) == 1 else f'{len(names)} cases'}: {ran} of {asked} instances "
        "ran, one per core that this run may use"
        for (asked, ran), names in found.items()
    ]


def _input_limits(records: List[Dict[str, Any]]) -> List[str]:
    """Say of cases that read from disk what loading and the model reach alone, and which limits."""
    found = [record for record in records if record.get("input")]
    lines = []
    for record in found[:MOST_LINES]:
        facts = record["input"]
        rates = {part: short_number(facts[part]) for part in ("loader", "model")}
        lines.append(
            f"{record['name']}: loader {rates['loader']}, model {rates['model']} {facts['unit']} "
            f"alone: the {facts['limit']} limits"
        )
    if len(found) > MOST_LINES:
        limited = sum(record["input"]["limit"] == "loader" for record in found)
        lines.append(
            f"{len(found) - MOST_LINES} more read from disk; of all {len(found)} the loader limits "
            f"{limited}, the model {len(found) - limited}"
        )
    return lines


def _saved_seconds(records: List[Dict[str, Any]]) -> List[str]:
    saved = [record["compile_saved_seconds"] or 0 for record in records if _cached(record)]
    if not saved:
        return []
    return [f"{len(saved)} compiled models were kept from earlier: {sum(saved):.1f} s saved"]


def _cached(record: Dict[str, Any]) -> bool:
    return bool(record["compile"] == "cached")


def _imprecise(benchmarks: List[Dict[str, Any]]) -> str:
    """Say which cases, at least how many, ended before their figure was precise."""
    records = [record_of(benchmark) for benchmark in benchmarks]
    budget = max(_longer_budget(benchmark) for benchmark in benchmarks)
    helps = f"a quieter machine or --budget={budget:.0f} helps"
    if len(records) > 1:
        return f"{len(records)} cases are not precise (± above 5%); {helps}"
    (record,) = records
    return (
        f"{record['name']}: ±{record['throughput']['spread']:.1%} after "
        f"{record['rounds']['count']} rounds is not precise; {helps}"
    )


def _longer_budget(benchmark: Dict[str, Any]) -> float:
    return max(10.0, 4 * math.fsum(rounds_of(benchmark)))


def gate_lines(config: pytest.Config, run: Run) -> List[str]:
    """Return the verdicts: how many of each kind, and by name every case that did not pass."""
    comparison = config.stash.get(comparison_key, None)
    if comparison is None:
        return []
    by_kind: Dict[str, List[str]] = {}
    for nodeid, verdict in run.results.verdicts.items():
        by_kind.setdefault(verdict["kind"], []).append(nodeid)
    gone = missing_cases(config)
    if gone:
        by_kind[gate.MISSING] = gone
    unselected = [
        nodeid
        for nodeid in comparison.stored
        if nodeid not in {*run.results.benchmarks, *run.results.outcomes, *gone}
    ]
    counts = ", ".join(f"{len(names)} {kind}" for kind, names in sorted(by_kind.items()))
    threshold = (
        "no gate" if comparison.threshold is None else f"gate {percent(comparison.threshold)}"
    )
    lines = ["", f"against {comparison.path} ({threshold}): {counts or 'nothing to compare'}"]
    for kind in (gate.REGRESSED, gate.IMPROVED, gate.INCOMPARABLE, gate.NEW, gate.MISSING):
        for nodeid in by_kind.get(kind, ()):
            reasons = run.results.verdicts.get(nodeid, {}).get("reasons") or ()
            why = f": {'; '.join(reasons)}" if reasons else ""
            lines.append(f"  {kind}: {nodeid}{why}")
    if unselected:
        lines.append(f"  {len(unselected)} cases of the baseline were not selected in this run")
    if config.option.gate is not None and not set(by_kind) & set(gate.COMPARED):
        lines.append("  nothing was compared, so the gate says nothing (exit code 6)")
    return lines
