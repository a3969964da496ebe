"""Formats stored results for the command line."""

from __future__ import annotations

import textwrap
from statistics import median
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.baseline.entries import (
    by_machine,
    configurations_of,
    key_of,
)
from ipubench.plugins.gate.shown_throughput import throughput_of
from ipubench.plugins.record.record import COMPILED, processes_of
from ipubench.plugins.record.structs import Benchmark, Energy, Facts
from ipubench.plugins.record.text import (
    cut_middle,
    distinct_names,
    energy_text,
    minute,
    percent,
    short_number,
    table,
    terminal_width,
)
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.columns import STORED, texts_of


class Listed(NamedTuple):
    """A baseline in the list of all."""

    name: str
    cases: int
    machines: Sequence[str]
    newest: Optional[str]  # entry
    bytes: int


def listing(rows: Sequence[Listed]) -> List[str]:
    """Return one line per baseline."""
    cells = [("baseline", "cases", "machines", "newest (UTC)", "KiB")]
    cells += [
        (
            row.name,
            str(row.cases),
            str(len(row.machines)),
            minute(row.newest),
            f"{row.bytes / 1024:,.0f}",
        )
        for row in rows
    ]
    return table(cells, terminal_width())


def overview(benchmarks: Sequence[Benchmark]) -> Iterator[str]:
    """Yield the entries of a baseline, one line each, by machine."""
    for machine, entries in sorted(by_machine(benchmarks).items()):
        count = counted(len(entries), "entry", "entries")
        yield cut_middle(f"{machine} ({count})", terminal_width())
        which = configurations_of(list(map(key_of, entries)))
        called = [entry.fullname + one for entry, one in zip(entries, which)]
        own = [entry.record.name + one for entry, one in zip(entries, which)]
        names = distinct_names(dict(zip(called, own)))
        rows = [
            CaseRow(full, names[full], entry.fullname, entry)
            for full, entry in zip(called, entries)
        ]
        for line in table(texts_of(STORED, rows), terminal_width() - 2):
            yield f"  {line}"


def details(benchmark: Benchmark) -> Iterator[str]:
    """Yield the details of one entry."""
    record = benchmark.record
    rate = throughput_of(benchmark)
    latency = record.latency
    times = (("p50", latency.p50_ms), ("p90", latency.p90_ms), ("p99", latency.p99_ms))
    interval = ""
    if rate.low is not None and rate.high is not None:
        interval = f" ({short_number(rate.low)} to {short_number(rate.high)})"
    facts = [
        ("machine", key_of(benchmark).fingerprint),
        ("configuration", record.config_hash),
        ("options", _pairs(record.effective_options)),
        ("really ran", _pairs(record.effective)),
        ("conditions", _pairs(record.conditions)),
        ("data", _pairs(record.data)),
        ("revision", record.git or "-"),
        ("versions", _pairs(record.versions)),
        ("throughput", f"{short_number(rate.median)} {rate.unit}{interval}"),
        ("latency", ", ".join(f"{name} {short_number(ms)} ms" for name, ms in times)),
        *([("energy", _energy(record.energy))] if record.energy else []),
        (
            "compilation",
            f"{record.compile_seconds:.1f} s ({record.compile})"
            if record.compile in COMPILED
            else record.compile,
        ),
    ]
    for one in record.accepted:
        change = f"{percent(one.change, sign=True)}, " if one.change is not None else ""
        # One line each, even for several on the same day.
        facts.append((f"accepted {minute(one.time)[:10]}", f"{change}{one.reason}"))
    yield benchmark.fullname
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        yield from textwrap.wrap(
            value,
            terminal_width(),
            initial_indent="  " + name.ljust(width),
            subsequent_indent=" " * (width + 2),
        )
    rows: List[Tuple[str, ...]] = [
        ("  process", "measured (UTC)", "rounds", rate.unit, "canary ms", "alone")
    ]
    for number, process in enumerate(processes_of(benchmark), 1):
        canaries = process.canaries
        rows.append(
            (
                f"  {number}",
                minute(process.time),
                str(len(process.seconds)),
                short_number(process.items_per_round / median(process.seconds)),
                short_number(1000 * median(canaries)) if canaries else "-",
                "yes" if process.fresh else "no",
            )
        )
    yield from table(rows, terminal_width())


def _energy(energy: Energy) -> str:
    return energy.unknown or f"{energy_text(energy.per_item)} an item ({energy.source})"


def _pairs(values: Facts) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(values.items()))
