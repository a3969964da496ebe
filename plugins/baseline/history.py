"""Keeps runs of many revisions with `--history`; the command ``history`` shows their trends."""

from __future__ import annotations

import hashlib
import os
import re
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Callable, Iterator, List, NamedTuple, Sequence, Tuple

from msgspec.structs import replace
from pytest import ExitCode

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.change_points import Change, ChangesUnavailable
from ipubench.plugins.baseline.commands import print_json, print_lines, suite_root
from ipubench.plugins.baseline.entries import (
    HASH_LENGTH,
    by_machine,
    configurations_of,
    grouped,
    key_of,
    left_out,
    measured,
    unproven,
)
from ipubench.plugins.baseline.format import BaselineError, Document
from ipubench.plugins.baseline.renamed import name_now, names_in, renamed
from ipubench.plugins.baseline.trends import (
    Trend,
    as_dict,
    less_likely,
    names_of_cases,
    trends_of,
    undecided_text,
)
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.host_process import short_revision
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import (
    complain,
    cut_middle,
    minute,
    percent,
    safe_name,
    say,
    short_number,
    table,
    terminal_width,
    time_stamp,
)
from ipubench.plugins.record.verdict import interval_text
from ipubench.plugins.run.recording import Recording

FOLDER = Path("baselines", "history")
# A run that ended like this does not count in a trend.
UNFINISHED = (ExitCode.INTERRUPTED, ExitCode.INTERNAL_ERROR)


def keep_run(run: Recording, ended: int) -> None:
    """Write a file for each machine; report a disk error and make the exit code 4.

    ``ended``: the exit code so far.
    """
    config = run.config
    if not options_of(config).history or ended in UNFINISHED:
        return
    if not run.is_complete:
        run.closing.append("nothing was kept for the history: the run ended before its last case")
        return
    failed = unproven(run.results)
    benchmarks = [one for one in measured(run.results) if one.fullname not in failed]
    run.closing += left_out(failed, "which the history does not keep")
    if not benchmarks:
        why = "no case was left" if failed else "no case was measured"
        run.closing.append(f"nothing was kept for the history: {why}")
        return
    now = time_stamp()
    # The hosts of a fleet may be different machines.
    for ours in by_machine(benchmarks).values():
        path = path_of(config.rootpath / FOLDER, ours, now, str(os.getpid()))
        try:
            store.write(path, Document.of(pytest_benchmark_adapter.around(config), ours))
        except BaselineError as error:
            run.closing.append(f"{error}{run.where}")
            run.problems.append(ExitCode.USAGE_ERROR)
            return
        run.closing.append(f"kept for the history in {path}")


def path_of(folder: Path, benchmarks: Sequence[Benchmark], moment: str, run: str) -> Path:
    """Return the file that keeps a run: MACHINE/TIME-REVISION-RUN.json in the history's folder.

    ``moment`` is UTC, ISO 8601. ``run`` distinguishes runs within one second.
    """
    record = benchmarks[0].record
    revision = short_revision(record.git) or "unversioned"
    name = f"{moment.replace('-', '').replace(':', '')}-{revision}-{run}.json"
    return folder / slug(record.device.fingerprint) / name


def slug(fingerprint: str) -> str:
    """Return a readable folder name for a machine, different for each fingerprint."""
    words = re.sub(r"[^a-z0-9]+", "-", fingerprint.lower()).strip("-")[:60]
    return f"{words}-{hashlib.sha256(fingerprint.encode(errors='replace')).hexdigest()[:8]}"


class Kept(NamedTuple):
    """The runs read from a history."""

    benchmarks: List[Benchmark]
    runs: int  # the number of files, one for each run and machine
    notes: List[str]  # on unusable files


def read(root: Path, wanted: Callable[[str], bool], last: int) -> Kept:
    """Return the wanted cases of the last runs of each machine.

    ``root`` has a folder for each machine, or is the folder of one.
    """
    names = names_in(suite_root())
    benchmarks: List[Benchmark] = []
    runs = 0
    notes: List[str] = []
    paths = store.numbered_in(root)[-last:]
    for folder in store.listed(root):
        try:
            # Names begin with the time.
            paths += store.baselines_in(folder)[-last:]
        except BaselineError as error:
            notes.append(f"left out: {error}")
    for path in paths:
        try:
            document = store.load_document(path, lambda old: wanted(name_now(old, names)))
        except BaselineError as error:
            notes.append(f"left out: {error}")
            continue
        benchmarks += document.benchmarks
        runs += bool(document.benchmarks)
    benchmarks = renamed(benchmarks, names)
    # A run that was kept at its end and again when promoted is one point.
    benchmarks.sort(key=lambda one: bool(one.record.promoted))
    points = {(key_of(one), one.record.time): one for one in benchmarks}
    return Kept(list(points.values()), runs, notes)


def history(args: Namespace) -> int:
    """Show the trend of each case, or one trend run by run, with change points."""
    try:
        folder = user_path(args.folder) if args.folder else suite_root() / FOLDER
    except OSError as error:
        raise BaselineError(f"--folder={args.folder}: {error}") from error
    part = args.case or ""
    kept = read(folder, lambda nodeid: part in nodeid, args.last)
    for note in kept.notes:
        complain(note)
    found = trends_of(kept.benchmarks)
    if not found:
        raise nothing_in(folder, part, args.last)
    marked = with_changes(found)
    if args.json:
        print_json([as_dict(trend, changes) for trend, changes in marked])
    elif args.case is None:
        print_lines(trend_overview(marked))
    else:
        print_lines(line for one in marked for line in trend_details(*one))
    return 0


def import_files(args: Namespace) -> int:
    """Keep results of files, such as those of pytest-benchmark, in the history."""
    paths: List[Path] = []
    for given in map(user_path, args.files):
        paths += sorted(given.rglob("*.json")) if given.is_dir() else [given]
    if not paths:
        raise BaselineError(f"{', '.join(args.files)}: found no file *.json")
    root = user_path(args.folder) if args.folder else suite_root() / FOLDER
    for path, document in [(path, store.load_document(path)) for path in paths]:
        for ours in by_machine(document.benchmarks).values():
            newest = max(one.record.time for one in ours)
            kept = path_of(root, ours, newest, safe_name(path.stem))
            store.write(kept, replace(document, benchmarks=ours))
            say(f"{counted(len(ours), 'case')} of {path} kept for the history in {kept}")
    return 0


def nothing_in(folder: Path, part: str, last: int) -> BaselineError:
    """Return the error for a history without matching cases."""
    named = f" with {part!r} in its name" if part else ""
    return BaselineError(
        f"{folder} has no case{named} in the last {last} runs of each machine; read more runs with "
        "--last=N, and keep runs there with --history"
    )


def with_changes(found: Sequence[Trend]) -> List[Tuple[Trend, List[Change]]]:
    """Return each trend with its changes; without the library, print why there are none."""
    try:
        return [(trend, trend.changes()) for trend in found]
    except ChangesUnavailable as error:
        complain(f"no change points are marked: {error}")
        return [(trend, []) for trend in found]


def trend_overview(trends: Sequence[Tuple[Trend, Sequence[Change]]]) -> Iterator[str]:
    """Yield one line per trend, by machine: its current level, and when it last changed."""
    names = names_of_cases([trend for trend, _ in trends])
    for machine, entries in grouped(trends, lambda one: one[0].key.fingerprint).items():
        yield cut_middle(f"{machine} ({counted(len(entries), 'trend')})", terminal_width())
        rows: List[Tuple[str, ...]] = [("  case", "runs", "level", "unit", "last change (sure)")]
        which = configurations_of([trend.key for trend, _ in entries])
        for (trend, changes), configuration in zip(entries, which):
            start = changes[-1].run if changes else 0
            level = median([point.throughput for point in trend.points[start:]])
            needed = trend.runs_needed(changes)
            last = f"needs about {needed} runs" if needed else "-"
            if changes:
                point = trend.points[start]
                change = percent(changes[-1].change, sign=True)
                sure = chance_text(changes[-1].sure)
                last = f"{change} at {point.revision or minute(point.time)} ({sure})"
            name = f"  {names[trend.key.nodeid]}{configuration}"
            runs = str(len(trend.points))
            rows.append((name, runs, short_number(level), trend.unit, last))
        yield from table(rows, terminal_width())
    if any(trend.runs_needed(changes) and not changes for trend, changes in trends):
        yield "needs about N runs: these are too few to say whether the level changed"


def chance_text(chance: float) -> str:
    """Return a probability as text; the model behind it is not sure of more than 99%."""
    return percent(min(chance, 0.99), 0)


def trend_details(trend: Trend, changes: Sequence[Change]) -> Iterator[str]:
    """Yield a trend run by run, with its change points marked."""
    yield trend.key.nodeid
    yield f"  {trend.key.fingerprint}, configuration {trend.key.config_hash[:HASH_LENGTH]}"
    rows: List[Tuple[str, ...]] = [
        ("  run (UTC)", "revision", trend.unit, "processes", "change (sure)")
    ]
    marks = {run: f"or here ({chance_text(one)})" for run, one in less_likely(changes).items()}
    for change in changes:
        size = percent(change.change, sign=True)
        marks[change.run] = f"<-- {size} ({chance_text(change.sure)})"
    for index, point in enumerate(trend.points):
        mark = marks.get(index, "")
        became = f"baseline {point.promoted}" if point.promoted else ""
        rows.append(
            (
                f"  {minute(point.time)}",
                point.revision or "-",
                short_number(point.throughput),
                str(point.processes),
                "; ".join(filter(None, [mark, became, point.accepted])),
            )
        )
    yield from table(rows, terminal_width())
    for change in changes:
        point = trend.points[change.run]
        size = f"{percent(change.change, sign=True)} ({interval_text(change.low, change.high)})"
        sure = f"{chance_text(change.sure)} sure that it began with this run"
        yield f"  {point.revision or minute(point.time)}: {size}, {sure}"
    needed = trend.runs_needed(changes)
    if needed:
        yield f"  {undecided_text(needed)}"
