"""The journal: saves each finished case at once, so that a run can be resumed.

One JSON-lines file per run under the results folder. Line types:

- ``run``: the first line: format version, command line, start time, and the circumstances that must
  be the same to resume the run (see plugins/run/resume.py);
- ``case``: a measured case, a benchmark in pytest-benchmark's format (plugins/record/record.py);
- ``extra``: what the case's test or its fixtures added to ``extra_info`` after the measurement;
- ``fresh``: a measurement of the case in a fresh process;
- ``pair``: a measurement of the case here and in another environment or revision, which side was
  first, whether no other case ran in these processes, and the rounds of both if they alternated
  (plugins/gate/rounds.py);
- ``count``: a count of the case's instructions by one process;
- ``verdict``: the gate's verdict on a case;
- ``resume``: a later run continues here: its process, its circumstances, the cases that it keeps,
  and those whose pairs it keeps; earlier lines about other cases are void;
- ``begin``: a case starts; if no outcome follows, the run was killed during the case;
- ``outcome``: how the case's test ended (passed, failed, skipped), the reason in one line, and the
  full message if the user can fix the problem;
- ``selected``: the selected cases, before the first of them; again at the end if a plain test
  became a case;
- ``profile``: the operations of a regressed case (plugins/compare/explain.py);
- ``end``: how the run ended, what it was compared with, the missing cases, and the lines below its
  table.

Readers skip unknown types. A number that is not finite is null. The file is locked while its run
lasts.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.masking import mask_text, mask_words
from ipubench.fixtures.case.untrusted import encodable
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import FILE, kind_of, numbered, user_path
from ipubench.plugins.command_line.arguments import spellings, typed_arguments
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import JsonLinesFile
from ipubench.plugins.record.structs import as_plain
from ipubench.plugins.results.lines import (
    ADDED,
    VARIABLES,
    BeginLine,
    OutcomeLine,
    RunLine,
    SelectedLine,
    read_lines,
)
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run import resume
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import case_of

FORMAT = 2
RESUME = "--resume"


def command_line(config: pytest.Config) -> List[str]:
    """Return the arguments that decide what this run measures, without --resume and secrets."""
    variables = {name: os.environ.get(name, "") for name in VARIABLES}
    # The rest of the variable stays as typed, including quotes.
    resume_words = spellings(config, RESUME)
    either = "|".join(resume_words)
    variables[ADDED] = re.sub(rf"(^|\s+)(?:{either})(?=\s|$)", "", variables[ADDED]).strip()
    added = [f"{name}={value}" for name, value in variables.items() if value]
    given = [word for word in typed_arguments(config) if word not in resume_words]
    return list(map(encodable, mask_words(added + given)))


def journals(folder: Path) -> List[Path]:
    """Return the journals of a results folder, oldest first. Raises OSError."""

    def age(path: Path) -> Tuple[str, int]:
        # Process ids do not order runs of the same second, so the file's time decides.
        return path.name[: len("run-20261121T204357")], path.stat().st_mtime_ns

    found = [path for path in folder.glob("run-*.jsonl") if kind_of(path) == FILE]
    return sorted(found, key=age)


def _create(run: Recording, folder: Path) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    path = folder / f"run-{stamp}-{os.getpid()}.jsonl"
    # Build the line before creating the file, which is useless without it.
    first = RunLine(
        format=FORMAT,
        command=command_line(run.config),
        started=time.time(),
        pid=os.getpid(),
        circumstances=resume.circumstances(run),
    )
    # Containers that share the folder may start processes with the same id in the same second.
    journal = next(journal for journal in map(JsonLinesFile, numbered(path)) if journal.create())
    try:
        journal.append(as_plain(first))
    except BaseException:
        journal.path.unlink()
        raise
    run.journal, run.results.name = journal, journal.path.name
    run.results.take(first)


def _resume_latest(
    run: Recording,
    folder: Path,
    items: Sequence[pytest.Item],
) -> None:
    """Resume the latest run of this command line, or start a new one and note why."""
    why = f"nothing to resume in {folder} with this command line"
    for path in reversed(journals(folder)):
        if not _is_this_run(run.config, path):
            continue
        journal = JsonLinesFile(path)
        try:
            is_free = journal.claim()
        except OSError:  # another user's run, which only that user can resume
            continue
        if is_free:
            lines = read_lines(path)
            run.journal, run.results = journal, RunResults.of(lines, path.name)
            resume.resume_run(run, lines, items)
            return
        # The user means the latest run, so older ones do not matter.
        why = f"nothing to resume, because the run of {path} has not ended yet"
        break
    _create(run, folder)
    run.note = f"{why}: a new run"


def _is_this_run(config: pytest.Config, path: Path) -> bool:
    """Return whether a journal belongs to a run with this command line."""
    try:
        lines = read_lines(path)
    except OSError:
        return False
    first = lines[0] if lines else None
    return (
        isinstance(first, RunLine)
        and first.format == FORMAT
        and first.command == command_line(config)
    )


def start(
    run: Recording,
    items: Sequence[pytest.Item],
) -> List[pytest.Item]:
    """Open the run's journal; return the items that a resumed run has already finished."""
    config = run.config
    folder = Path(options_of(config).results_dir)
    scratch.remove_leftovers()
    try:
        folder = user_path(options_of(config).results_dir)
        folder.mkdir(parents=True, exist_ok=True)
        if options_of(config).resume:
            _resume_latest(run, folder, items)
        else:
            _create(run, folder)
        run.order = [item.nodeid for item in items if case_of(item) is not None]
    except OSError as error:
        why = str(error)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            why = f"{next(one for one in (folder, *folder.parents) if one.exists())} is a file"
        raise pytest.UsageError(
            f"--results-dir={folder}: cannot write results there: {why}; choose another folder "
            "with --results-dir=PATH"
        ) from error
    run.keep_results_in(folder)
    done = set(run.results.resumed)
    return [item for item in items if item.nodeid in done]


def start_late(run: Recording) -> None:
    """Start the run when the first plain test measures something."""
    if run.role.keeps_results and not run.journal.stores:
        try:
            start(run, [])
        except pytest.UsageError as error:
            raise CaseError(str(error)) from None


def start_run(run: Recording, items: List[pytest.Item]) -> None:
    """Start the run and deselect the cases that are already done."""
    # Instances leave recording to the run that started them, and workers to their controller.
    if not run.role.keeps_results or run.journal.stores or not any(map(case_of, items)):
        return
    done = start(run, items)
    if done:
        run.config.hook.pytest_deselected(items=done)
        left_out = set(done)
        items[:] = [item for item in items if item not in left_out]


def note_selection(run: Recording, items: Sequence[pytest.Item]) -> None:
    """Record the final selection.

    ``--lf`` or a plugin of the project may deselect cases after all other hooks.
    """
    if run.role is Role.WORKER:  # a worker leaves this to its controller
        return
    left = {item.nodeid for item in items}.union(run.results.resumed)
    run.order = [nodeid for nodeid in run.order if nodeid in left]
    run.add(SelectedLine(run.order))
    for nodeid in run.results.resumed:
        pytest_benchmark_adapter.adopt(run.config, run.results.benchmarks[nodeid])


def where_results_go(run: Recording) -> List[str]:
    """Return where results go and what was resumed."""
    if not run.journal.stores:
        return []
    return [line for line in (run.note, f"results: {run.path}") if line]


def begin_case(run: Recording, item: pytest.Item) -> None:
    """Record that a case starts; a worker leaves this to its controller."""
    if case_of(item) is not None and run.role is not Role.WORKER:
        run.add(BeginLine(item.nodeid))


def end_case(
    run: Recording,
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    names: Sequence[str],
) -> None:
    """Record how a case ended: a pass after its call, anything else at once.

    If the user can fix the error, only its message is shown, without a traceback. ``names`` are the
    further cases that the test has recorded.
    """
    case = case_of(item)
    error = call.excinfo.value if call.excinfo is not None else None
    mendable = isinstance(error, CaseError)
    if mendable:
        report.longrepr = mask_text(str(error))
    message = str(report.longrepr) if mendable else ""
    if case is None:
        return
    if report.when == "call" or report.outcome != "passed":
        why = "" if report.outcome == "passed" else _why(report)
        for name in names if names and item.nodeid not in run.order else [item.nodeid, *names]:
            run.add(OutcomeLine(name, report.outcome, why, message))


def _why(report: pytest.TestReport) -> str:
    """Return the first line of the message of a test that did not pass."""
    shown: Any = report.longrepr
    if isinstance(shown, tuple):  # of a skip: file, line, reason
        shown = shown[2]
    crash = getattr(shown, "reprcrash", None)
    lines = str(crash.message if crash is not None else shown).splitlines()
    return next(filter(str.strip, lines), "")


def end_selection(run: Recording) -> None:
    """Complete the journal."""
    # The same order as in a run without interruption.
    run.results.arrange(run.order)
    if run.order != run.results.selected:
        run.add(SelectedLine(run.order))
