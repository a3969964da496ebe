"""The journal: every finished case is on disk at once, and a run can be continued.

One JSON-lines file per run under the results folder. Line types:

- ``run``: first line; format version, command line, when, and the circumstances that a run which
  continues this one must share (see plugins/run/resume.py);
- ``case``: a measured case, a benchmark in pytest-benchmark's format (plugins/record/record.py);
- ``extra``: what its test, or a fixture of it, put into ``extra_info`` after that;
- ``fresh``: the same, measured once more in a fresh process;
- ``pair``: the same, measured here and in another environment or revision, and which was first;
  the rounds of both where they alternated (plugins/gate/adjacent.py);
- ``verdict``: what the gate said of a case;
- ``resume``: a later run goes on here; its process, its circumstances, and the cases that it kept;
  what the lines before it say of others no longer holds;
- ``begin``: a case starts; without an outcome after it, the run was killed while the case ran;
- ``outcome``: how the case's test ended (passed, failed, skipped), why in one line, and what a user
  can mend as its whole message;
- ``selected``: the cases that the run is about, before the first of them; once more at the end of
  a run that had no time for some (plugins/run/within.py);
- ``profile``: where the time of a regressed case went (plugins/compare/explain.py);
- ``end``: how the run ended, what it was compared with, the cases that are missing, and the lines
  below its table.

A reader leaves out types that it does not know. A number that is not finite is null. The file is
locked for as long as its run goes on.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import time
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.masking import mask_text, mask_words
from ipubench.fixtures.command_line import change_options, options_of
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import FILE, kind_of, numbered, user_path
from ipubench.plugins.command_line.arguments import is_worker, measures, spellings, typed_arguments
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import JsonLinesFile
from ipubench.plugins.record.structs import as_plain
from ipubench.plugins.run import resume
from ipubench.plugins.run.lines import BeginLine, OutcomeLine, RunLine, SelectedLine, read_lines
from ipubench.plugins.run.results import Recording, SessionResults
from ipubench.plugins.selection.selected import case_of

FORMAT = 2
#: They are a part of the command line; the first one has words of it.
ADDED = "PYTEST_ADDOPTS"
VARIABLES = (ADDED, "DATASETS_DIR")
RESUME = "--resume"


def command_line(config: pytest.Config) -> List[str]:
    """Return the words that decide what this run measures, without ``--resume`` and secrets."""
    variables = {name: os.environ.get(name, "") for name in VARIABLES}
    # What is beside it stays as it was typed, quotes and all.
    resume_words = spellings(config, RESUME)
    either = "|".join(resume_words)
    variables[ADDED] = re.sub(rf"(^|\s+)(?:{either})(?=\s|$)", "", variables[ADDED]).strip()
    added = [f"{name}={value}" for name, value in variables.items() if value]
    given = [word for word in typed_arguments(config) if word not in resume_words]
    return mask_words(added + given)


def shown_command(words: Sequence[str]) -> str:
    """Return what :func:`command_line` returned as a shell takes it."""
    added = list(itertools.takewhile(lambda word: word.partition("=")[0] in VARIABLES, words))
    variables = (word.partition("=") for word in added)
    assigned = [f"{name}={shlex.quote(value)}" for name, _, value in variables]
    return " ".join([*assigned, "pytest", *map(shlex.quote, words[len(added) :])])


def journals(folder: Path) -> List[Path]:
    """Return the journals of a results folder, oldest first. Raises OSError."""

    def age(path: Path) -> Tuple[str, int]:
        # Of runs in the same second, the numbers of their processes say nothing.
        return path.name[: len("run-20261121T204357")], path.stat().st_mtime_ns

    found = [path for path in folder.glob("run-*.jsonl") if kind_of(path) == FILE]
    return sorted(found, key=age)


def _begin_anew(run: Recording, folder: Path) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    path = folder / f"run-{stamp}-{os.getpid()}.jsonl"
    # It is known before the file is there, which says nothing without it.
    first = RunLine(
        format=FORMAT,
        command=command_line(run.config),
        started=time.time(),
        pid=os.getpid(),
        circumstances=resume.circumstances(run),
    )
    # In containers that share the folder, processes of one number may start in one second.
    journal = next(journal for journal in map(JsonLinesFile, numbered(path)) if journal.create())
    try:
        journal.append(as_plain(first))
    except BaseException:
        journal.path.unlink()
        raise
    run.journal = journal


def _go_on(
    run: Recording,
    folder: Path,
    items: Sequence[pytest.Item],
) -> None:
    """Go on with the latest run of this command line, or begin anew and say why."""
    why = f"nothing to resume in {folder} with this command line"
    for path in reversed(journals(folder)):
        if not _is_this_run(run.config, path):
            continue
        journal = JsonLinesFile(path)
        try:
            is_free = journal.claim()
        except OSError:  # another user's, who alone can continue it
            continue
        if is_free:
            lines = read_lines(path)
            run.journal, run.results = journal, SessionResults.of(lines)
            resume.go_on(run, lines, items)
            return
        # An older run is not the one that is meant.
        why = f"nothing to resume, as the run of {path} still goes on"
        break
    _begin_anew(run, folder)
    run.note = f"{why}: a new run"


def _is_this_run(config: pytest.Config, path: Path) -> bool:
    """Tell whether a journal is that of a run with this command line."""
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


#: What a run writes into below its results, by names that a repository can foresee.
WRITTEN = ("apart", "instances", "loadgen", "profiles", "servers", "specs")


def _refuse_links(folder: Path) -> None:
    """Raise OSError if a link leads what is written to another place."""
    tops = [folder / name for name in WRITTEN]
    found = (
        Path(where, name)
        for top in tops
        for where, folders, files in os.walk(str(top))
        for name in (*folders, *files)
    )
    for path in itertools.chain(tops, found):
        if path.is_symlink():
            raise OSError(f"{path} is a link, which is not followed")


def start(
    run: Recording,
    items: Sequence[pytest.Item],
) -> List[pytest.Item]:
    """Open the run's journal; return the items that a resumed run has already done."""
    config = run.config
    folder = Path(options_of(config).results_dir)
    scratch.remove_leftovers()
    try:
        folder = user_path(options_of(config).results_dir)
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_links(folder)
        if options_of(config).resume:
            _go_on(run, folder, items)
        else:
            _begin_anew(run, folder)
        run.order = [item.nodeid for item in items if case_of(item) is not None]
    except OSError as error:
        why = str(error)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            why = f"{next(one for one in (folder, *folder.parents) if one.exists())} is a file"
        raise pytest.UsageError(
            f"--results-dir={folder}: results cannot be written there: {why}; name another "
            "folder with --results-dir=PATH"
        ) from error
    # A test may change the working directory, and its case have logs.
    change_options(config, results_dir=str(folder.absolute()))
    done = set(run.results.resumed)
    return [item for item in items if item.nodeid in done]


def start_late(run: Recording) -> None:
    """Start a run with the first test that turns out to measure."""
    if run.journal is None:
        try:
            start(run, [])
        except pytest.UsageError as error:
            raise CaseError(str(error)) from None


def start_run(run: Recording, items: List[pytest.Item]) -> None:
    """Start the run and leave out what was resumed."""
    # The run that started an instance records what all of them did. A worker's lines go to the
    # controller, which has started the run.
    if not measures(run.config) or run.journal is not None or not any(map(case_of, items)):
        return
    done = start(run, items)
    if done:
        run.config.hook.pytest_deselected(items=done)
        left_out = set(done)
        items[:] = [item for item in items if item not in left_out]


def note_selection(run: Recording, items: Sequence[pytest.Item]) -> None:
    """Now that the selection is final, note what the run is about.

    ``--lf``, or a plugin of the project, leaves out cases after all other hooks.
    """
    if run.journal is None or is_worker(run.config):  # whose controller says what the run is about
        return
    left = {item.nodeid for item in items}.union(run.results.resumed)
    run.order = [nodeid for nodeid in run.order if nodeid in left]
    run.add(SelectedLine(run.order))
    for nodeid in run.results.resumed:
        pytest_benchmark_adapter.adopt(run.config, run.results.benchmarks[nodeid])


def where_results_go(run: Recording) -> List[str]:
    """Say where results go and what was resumed."""
    if run.journal is None:
        return []
    return [line for line in (run.note, f"results: {run.path}") if line]


def begin_case(run: Recording, item: pytest.Item) -> None:
    """Note that a case starts; of a worker's cases its controller does."""
    if run.journal is not None and case_of(item) is not None and not is_worker(item.config):
        run.add(BeginLine(item.nodeid))


def end_case(
    run: Recording,
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    names: Sequence[str],
) -> None:
    """Record how a case ended: passed after its call, anything else whenever it happens.

    An error that the user can mend is shown as its message, without a traceback. ``names`` are what
    the test has recorded beside the case that is named as it is.
    """
    case = case_of(item)
    error = call.excinfo.value if call.excinfo is not None else None
    mendable = isinstance(error, CaseError)
    if mendable:
        report.longrepr = mask_text(str(error))
    message = str(report.longrepr) if mendable else ""
    if run.journal is None or case is None:
        return
    if report.when == "call" or report.outcome != "passed":
        why = "" if report.outcome == "passed" else _why(report)
        for name in names if names and item.nodeid not in run.order else [item.nodeid, *names]:
            run.add(OutcomeLine(name, report.outcome, why, message))


def _why(report: pytest.TestReport) -> str:
    """Return the first line of what a test that did not pass says."""
    said: Any = report.longrepr
    if isinstance(said, tuple):  # where it was skipped, and why
        said = said[2]
    crash = getattr(said, "reprcrash", None)
    lines = str(crash.message if crash is not None else said).splitlines()
    return next(filter(str.strip, lines), "")


def end_selection(run: Recording) -> None:
    """Complete the journal."""
    if run.journal is None:
        return
    # As in a run that nothing interrupted.
    run.results.arrange(run.order)
    if run.order != run.results.selected and not is_worker(run.config):
        run.add(SelectedLine(run.order))
