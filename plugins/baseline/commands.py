"""The commands of ``python -m ipubench.plugins.baseline``. Each returns its exit code."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any, Iterable, List, Sequence

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.machine.files import kind_of, user_path
from ipubench.plugins.baseline import show, store
from ipubench.plugins.baseline.collected import all_cases
from ipubench.plugins.baseline.entries import (
    by_case,
    configurations_of,
    differences,
    exit_code,
    gone,
    key_of,
    software_since,
)
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.renamed import names_in, renamed
from ipubench.plugins.baseline.store import baseline_path, load_all, load_document
from ipubench.plugins.record.structs import Benchmark, as_plain
from ipubench.plugins.record.text import (
    EXIT_USAGE,
    complain,
    distinct_names,
    percent,
    say,
    table,
    terminal_width,
)
from ipubench.plugins.record.verdict import EXIT_UNDECIDED
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.columns import DIFFERENCE, texts_of
from ipubench.plugins.results.places import names_of

#: Files that mark the folder of a project.
OF_A_ROOT = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py")


def suite_root() -> Path:
    """Return the project's folder: the nearest one upwards with baselines.

    Without one, return the nearest folder with a project's file, else the current folder.
    """
    here = Path.cwd()
    folders = (here, *here.parents)
    found = [folder for folder in folders if (folder / "baselines").is_dir()]
    found += [folder for folder in folders if any((folder / n).is_file() for n in OF_A_ROOT)]
    return [*found, here][0]


def path_of(name: str) -> Path:
    """Return the file of a baseline, given its name or a path with a slash."""
    return baseline_path(name, suite_root())


def list_all(args: Namespace) -> int:
    """List all baselines of the suite; exit with 4 if one is damaged."""
    rows: List[show.Listed] = []
    damaged = 0
    for path in store.baselines_in(suite_root() / "baselines"):
        try:
            benchmarks = load_all(path)
        except BaselineError as error:
            damaged += 1
            complain(str(error))
            continue
        rows.append(
            show.Listed(
                name=path.stem,
                cases=len({benchmark.fullname for benchmark in benchmarks}),
                machines=sorted({key_of(benchmark).fingerprint for benchmark in benchmarks}),
                newest=max((b.record.time for b in benchmarks), default=None),
                bytes=path.stat().st_size,
            )
        )
    if args.json:
        print_json([row._asdict() for row in rows])
    elif rows:
        print_lines(show.listing(rows))
    elif not damaged:
        say(f"no baselines in {suite_root() / 'baselines'}; --baseline-save=NAME writes one")
    return EXIT_USAGE if damaged else 0


def show_one(args: Namespace) -> int:
    """Show a baseline's cases, or all details of some."""
    benchmarks = load_all(path_of(args.name))
    if args.case is not None:
        benchmarks = matching(benchmarks, args.case, args.name)
    if args.json:
        print_json(list(map(as_plain, benchmarks)))
    elif args.case is None:
        print_lines(show.overview(benchmarks))
    else:
        print_lines(line for benchmark in benchmarks for line in show.details(benchmark))
    return 0


def matching(benchmarks: List[Benchmark], part: str, where: str) -> List[Benchmark]:
    """Return the entries whose node id contains a text. Raises BaselineError without any."""
    found = [benchmark for benchmark in benchmarks if part in benchmark.fullname]
    if not found:
        raise BaselineError(f"no case of {where} has {part!r} in its name")
    return found


def run_path(given: str) -> Path:
    """Return the file of a run, given its path or a journal's name. Raises BaselineError.

    Looks for a journal in this folder's results, then in those of the project's folder.
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
    """Remove the cases that the suite no longer has."""
    path = path_of(args.name)
    # Report an unusable file before the slow collection.
    load_all(path)
    cases, names = all_cases(suite_root()), names_in(suite_root())
    pruned: List[str] = []

    def keep(old: Sequence[Benchmark]) -> List[Benchmark]:
        lost = {
            one.fullname
            for one, now in zip(old, renamed(old, names))
            if gone([now], cases)  # the old name of a case is not gone
        }
        pruned.extend(sorted(lost))
        return [benchmark for benchmark in old if benchmark.fullname not in lost]

    if args.dry_run:
        keep(load_all(path))
    else:
        store.change(path, keep)
    verb = "would be" if args.dry_run else "was" if len(pruned) == 1 else "were"
    count = counted(len(pruned), "case")
    print_lines([*(f"  {nodeid}" for nodeid in pruned), f"{count} {verb} pruned"])
    return 0


def last_time(benchmarks: Sequence[Benchmark]) -> str:
    """Return when the latest of some cases was measured; '' if there is none."""
    return max((one.record.time for one in benchmarks), default="")


def diff(args: Namespace) -> int:
    """Compare two files as the gate compares a run with a baseline."""
    files = [load_document(path_of(name)) for name in (args.before, args.now)]
    before, now = (list(one.benchmarks) for one in files)
    found = differences(renamed(before, names_in(suite_root())), now, args.gate)
    code = exit_code(found, args.gate)
    if args.json:
        print_json([difference.as_plain() for difference in found])
        return code
    places = names_of(one.place for one in found)
    which = configurations_of([one.key for one in found])
    called = [places[one.place] + configuration for one, configuration in zip(found, which)]
    names = distinct_names(
        {full: one.name + full[len(one.key.nodeid) :] for one, full in zip(found, called)}
    )
    rows = [
        CaseRow(full, names[full], one.key.nodeid, verdict=one.verdict, kind=one.verdict.kind)
        for full, one in zip(called, found)
    ]
    print_lines(table(texts_of(DIFFERENCE, rows), terminal_width()))
    kinds = [difference.verdict.kind for difference in found]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    rule = "no gate" if args.gate is None else f"gate {percent(args.gate)}"
    say(f"{args.before} against {args.now} ({rule}): {counts or 'nothing to compare'}")
    if last_time(before) > last_time(now) > "":
        say(f"{args.before} was measured after {args.now}: swap them to see what changed since")
    for full, difference in zip(called, found):
        if difference.verdict.reasons:
            reasons = "; ".join(difference.verdict.reasons)
            say(f"  {difference.verdict.kind}: {full}: {reasons}")
    for name, one in zip((args.before, args.now), files):
        for damage in filter(None, (run.damage() for run in one.ipubench.runs)):
            say(f"{name}: {damage}")
    software = software_since(by_case(before), now)
    if software:
        say(f"since {args.before}: {software}")
    if code == EXIT_UNDECIDED:
        say("  the gate could decide no case (exit code 6)")
    return code


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=1, sort_keys=True))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of text."""
    for line in lines:
        say(line)
