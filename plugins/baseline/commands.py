"""What the commands of ``python -m ipubench.plugins.baseline`` do. Each returns its exit code."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.fixtures.machine.files import kind_of, user_path, write_atomically
from ipubench.plugins.baseline import show, store
from ipubench.plugins.baseline.collected import all_cases
from ipubench.plugins.baseline.entries import (
    Benchmark,
    accepting,
    by_case,
    complete,
    configurations_of,
    differences,
    exit_code,
    gone,
    key_of,
    names_of,
    software_since,
)
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.run_facts import KINDS, RunFacts, in_time, superseded, worst_run
from ipubench.plugins.baseline.runs import StoredRun, read_run, runs_of
from ipubench.plugins.baseline.store import baseline_path, load_all, load_document
from ipubench.plugins.record.record import NAMESPACE, record_of, unnamed
from ipubench.plugins.record.text import (
    EXIT_USAGE,
    percent,
    short_number,
    table,
    terminal_width,
    told_apart,
)
from ipubench.plugins.record.verdict import EXIT_NOTHING_COMPARED

#: Where pytest looks for its settings, and the line that these begin with where a file has others.
SETTINGS: Dict[str, str] = {
    "pytest.toml": "",
    ".pytest.toml": "",
    "pytest.ini": "",
    ".pytest.ini": "",
    "pyproject.toml": r"\[tool\.pytest(\.ini_options)?\]",
    "tox.ini": r"\[pytest\]",
    "setup.cfg": r"\[tool:pytest\]",
}


def suite_root() -> Path:
    """Return the suite's folder from here upwards, which pytest calls the root.

    The nearest one with settings of pytest, else with a pyproject.toml or a setup.py; where there
    is none, the nearest one with baselines, or this one.
    """
    here = Path.cwd()
    rules: Sequence[Callable[[Path], bool]] = (
        _has_settings,
        lambda folder: os.path.isfile(folder / "pyproject.toml"),
        lambda folder: os.path.isfile(folder / "setup.py"),
        lambda folder: os.path.isdir(folder / "baselines"),
    )
    found = (folder for rule in rules for folder in (here, *here.parents) if rule(folder))
    return next(found, here)


def _has_settings(folder: Path) -> bool:
    return any(_holds_settings(folder / name, line) for name, line in SETTINGS.items())


def _holds_settings(path: Path, line: str) -> bool:
    if not os.path.isfile(path):
        return False
    try:
        text = read_bytes(path).decode(errors="replace")
    except OSError:
        return not line
    return not line or re.search(rf"^\s*{line}\s*(#.*)?$", text, re.MULTILINE) is not None


def path_of(name: str) -> Path:
    """Return the file that a baseline's name, or its path with a slash, means."""
    return baseline_path(name, suite_root())


def list_all(args: Namespace) -> int:
    """Show all baselines of the suite; a damaged one makes the exit code 4."""
    rows: List[Dict[str, Any]] = []
    damaged = 0
    for path in store.baselines_in(suite_root() / "baselines"):
        try:
            benchmarks = load_all(path)
        except BaselineError as error:
            damaged += 1
            print(error, file=sys.stderr)
            continue
        rows.append(
            {
                "name": path.stem,
                "cases": len({benchmark["fullname"] for benchmark in benchmarks}),
                "machines": sorted({key_of(benchmark).fingerprint for benchmark in benchmarks}),
                "newest": max((record_of(b)["time"] for b in benchmarks), default=None),
                "bytes": path.stat().st_size,
            }
        )
    if args.json:
        print_json(rows)
    elif rows:
        print_lines(show.listing(rows))
    elif not damaged:
        print(f"no baselines in {suite_root() / 'baselines'}; --baseline-save=NAME writes one")
    return EXIT_USAGE if damaged else 0


def show_one(args: Namespace) -> int:
    """Show a baseline's cases, or all that it holds of some."""
    benchmarks = load_all(path_of(args.name))
    if args.case is not None:
        benchmarks = matching(benchmarks, args.case, args.name)
    if args.json:
        print_json(benchmarks)
    elif args.case is None:
        print_lines(show.overview(benchmarks))
    else:
        print_lines(line for benchmark in benchmarks for line in show.details(benchmark))
    return 0


def matching(benchmarks: List[Benchmark], part: str, where: str) -> List[Benchmark]:
    """Return the entries whose node id contains a text. Raises BaselineError without any."""
    found = [benchmark for benchmark in benchmarks if part in benchmark["fullname"]]
    if not found:
        raise BaselineError(f"no case of {where} has {part!r} in its name")
    return found


def merge(args: Namespace) -> int:
    """Join files and journals into one file, which takes part if it exists."""
    out = path_of(args.out)
    # A name of a journal is one of a run, any other a baseline's.
    paths = [run_path(one) if one.endswith(".jsonl") else path_of(one) for one in args.inputs]
    stored = list(map(read_run, paths))
    for path, one in zip(paths, stored):
        refuse_each_host(path, one)
    newest = max(stored, key=lambda one: str(one.document.get("datetime", ""))).document
    runs: List[RunFacts] = []
    count = twice = 0

    def join(old: List[Benchmark]) -> List[Benchmark]:
        nonlocal count, twice
        found = {key_of(benchmark): benchmark for benchmark in old}
        for benchmark in (complete(b) for one in stored for b in one.benchmarks):
            known = found.setdefault(key_of(benchmark), benchmark)
            # What was accepted is said of the case, and makes no other result of one.
            two = (
                accepting(known, record_of(benchmark).get("accepted", ())),
                accepting(benchmark, record_of(known).get("accepted", ())),
            )
            if two[0] != two[1]:
                if not args.newest:
                    raise BaselineError(
                        f"nothing was merged: {benchmark['fullname']} was measured twice on "
                        f"{key_of(benchmark).fingerprint} ({record_of(known)['time']} and "
                        f"{record_of(benchmark)['time']}); --newest takes the newer of two"
                    )
                twice += 1
            found[key_of(benchmark)] = max(two, key=lambda one: str(record_of(one)["time"]))
        if not found:
            raise BaselineError(f"nothing was merged: no result is in {', '.join(args.inputs)}")
        count = len(found)
        return list(found.values())

    def around(old: Dict[str, Any]) -> Dict[str, Any]:
        # What a newer run measured again says the newer run alone.
        kept = superseded if args.newest else in_time
        runs.extend(kept([*runs_of(old), *(run for one in stored for run in one.runs)]))
        return {**newest, NAMESPACE: {"runs": [run.as_dict() for run in runs]}}

    store.change(out, join, around)
    note = f", {twice} measured twice: the newer kept" if twice else ""
    print(f"{out} has {counted(count, 'entry', 'entries')} now{note}")
    print_lines(words_of(runs))
    return 0


def refuse_each_host(path: Path, stored: StoredRun) -> None:
    """Raise BaselineError for a run that has cases on each host, called by the host's name too."""
    for benchmark in stored.benchmarks:
        name, host = benchmark["fullname"], record_of(benchmark).get("host")
        if isinstance(host, str) and unnamed(name, host) != name:
            raise BaselineError(
                f"the run {path} has a result of a case for each host, and a baseline has room for "
                "one: give a run without --each-host"
            )


def words_of(runs: Sequence[RunFacts]) -> Iterator[str]:
    """Yield how the cases of some runs ended, and what is wrong with the runs themselves."""
    kinds = [run.kind_of(nodeid) for nodeid, run in worst_run(runs).items()]
    counts = [f"{kinds.count(kind)} {kind}" for kind in KINDS if kind in kinds]
    if counts:
        yield f"its runs: {', '.join(counts)}"
    for run in runs:
        if run.trouble():
            yield f"  {run.name}: {run.trouble()}"


def run_path(given: str) -> Path:
    """Return the file of a run: a path, or the name of a journal. Raises BaselineError.

    A journal is where pytest was started: in this folder's results, else in those of the root.
    """
    try:
        run = user_path(given)
        if "/" in given or kind_of(run):
            return run
    except OSError as error:
        raise BaselineError(f"the run {given} cannot be read: {error}") from error
    name = given if Path(given).suffix else f"{given}.jsonl"
    here = Path.cwd() / "results" / name
    return here if here.is_file() else suite_root() / "results" / name


def prune(args: Namespace) -> int:
    """Take out the cases that the suite no longer has."""
    path = path_of(args.name)
    # A file that cannot be used is said before a collection.
    load_all(path)
    cases = all_cases(suite_root())
    pruned: List[str] = []

    def keep(old: List[Benchmark]) -> List[Benchmark]:
        lost = {benchmark["fullname"] for benchmark in gone(old, cases)}
        pruned.extend(sorted(lost))
        return [benchmark for benchmark in old if benchmark["fullname"] not in lost]

    if args.dry_run:
        keep(load_all(path))
    else:
        store.change(path, keep)
    verb = "would be" if args.dry_run else "was" if len(pruned) == 1 else "were"
    count = counted(len(pruned), "case")
    print_lines([*(f"  {nodeid}" for nodeid in pruned), f"{count} {verb} pruned"])
    return 0


def diff(args: Namespace) -> int:
    """Compare two files as the gate compares a run with a baseline."""
    before, now = load_all(path_of(args.before)), load_all(path_of(args.now))
    found = differences(before, now, args.gate)
    code = exit_code(found, args.gate)
    if args.json:
        print_json([difference.as_dict() for difference in found])
        return code
    rows = [("case", "before", "now", "change", "interval", "verdict")]
    places = names_of(one.place for one in found)
    which = configurations_of([one.key for one in found])
    called = [places[one.place] + configuration for one, configuration in zip(found, which)]
    names = told_apart(
        {full: one.name + full[len(one.key.nodeid) :] for one, full in zip(found, called)}
    )
    for full, difference in zip(called, found):
        verdict = difference.verdict
        known = math.isfinite(verdict.change)
        interval = f"{percent(verdict.low, sign=True)} to {percent(verdict.high, sign=True)}"
        rows.append(
            (
                names[full],
                short_number(verdict.before),
                short_number(verdict.now),
                percent(verdict.change, sign=True),
                interval if known else "-",
                verdict.kind,
            )
        )
    print_lines(table(rows, terminal_width()))
    kinds = [difference.verdict.kind for difference in found]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    rule = "no gate" if args.gate is None else f"gate {percent(args.gate)}"
    print(f"{args.before} against {args.now} ({rule}): {counts or 'nothing to compare'}")
    for full, difference in zip(called, found):
        if difference.verdict.reasons:
            reasons = "; ".join(difference.verdict.reasons)
            print(f"  {difference.verdict.kind}: {full}: {reasons}")
    software = software_since(by_case(before), now)
    if software:
        print(f"since {args.before}: {software}")
    if code == EXIT_NOTHING_COMPARED:
        print("  nothing was compared, so the gate says nothing (exit code 6)")
    return code


def export(args: Namespace) -> int:
    """Write a baseline in the format of another tool."""
    from ipubench.plugins.baseline.exports import EXPORTS

    if args.format not in EXPORTS:
        raise BaselineError(
            f"--format={args.format} is unknown; there are: {', '.join(sorted(EXPORTS))}"
        )
    text = EXPORTS[args.format](load_document(path_of(args.name)))
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        write_atomically(user_path(args.output), text)
    except OSError as error:
        raise BaselineError(f"{args.output} cannot be written: {error}") from error
    return 0


def print_json(value: Any) -> None:
    """Print a value for a machine."""
    print(json.dumps(value, indent=1, sort_keys=True))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of text."""
    for line in lines:
        print(line)
