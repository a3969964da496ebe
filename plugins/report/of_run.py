"""A running session's report, and how it ended; implements `--report=DIR`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Optional

import pytest
from pytest import ExitCode

from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.files import check_writable, user_path
from ipubench.plugins.baseline.store import path_text
from ipubench.plugins.compare.baseline import missing_cases
from ipubench.plugins.gate.policy_file import Policy
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.report.files import ReportError, append_summary, check, write
from ipubench.plugins.results.lines import EndLine
from ipubench.plugins.results.rows import Report
from ipubench.plugins.state import Run


def check_places(run: Run) -> None:
    """Refuse an unwritable place before anything is measured."""
    config = run.config
    if not run.role.keeps_results:
        return
    folder, document = options_of(config).report, config.option.benchmark_json
    try:
        if folder is not None:
            check(user_path(folder))
    except (ReportError, OSError) as error:
        raise pytest.UsageError(f"--report={folder}: {error}") from None
    try:
        if isinstance(document, Path):  # pytest-benchmark 4 has opened the file by now
            check_writable(document)
    except OSError as error:
        raise pytest.UsageError(
            f"--benchmark-json={document}: the file cannot be written "
            f"({error.strerror or error}); choose a file in an existing folder"
        ) from None


def write_reports(run: Run, ended: int) -> None:
    """Record the run's end in the journal, and write the requested report in any case.

    ``ended``: the exit code so far.
    """
    run.add(_end_of(run, ended))
    folder = options_of(run.config).report
    if folder is None:
        return
    if not run.results.worth_a_report:
        run.closing.append(f"no report was written to {folder}: no case was measured")
        return
    report = report_of(run)
    report.around = pytest_benchmark_adapter.around(run.config)
    problems = []
    try:
        names = write(report, user_path(folder))
        run.closing.append(f"report: {Path(folder) / names[1]} (and {', '.join(names[2:])})")
    except ReportError as error:
        problems.append(str(error))
    try:
        append_summary(report)
    except ReportError as error:
        problems.append(str(error))
    run.closing += problems
    run.problems.append(ExitCode.USAGE_ERROR if problems else ExitCode.OK)


def _end_of(run: Run, ended: int) -> EndLine:
    """Return the journal's line for the run's end."""
    return EndLine(
        exit_code=int(ended),
        time=time.time(),
        baseline=compared_with(run),
        gate=judged_by(run.policy),
        missing=missing_cases(run),
        spent=run.spent.of_run(),
        closing=list(run.closing),
        gate_notes=list(run.gate_notes),
    )


def report_of(run: Run) -> Report:
    """Return the results of this run, which has ended, without what only a document stores."""
    report = Report(pytest_benchmark_adapter.grouped(run.config, run.results.whole), [run.results])
    if run.baseline is not None:
        report.keep_compared(run.baseline.find)
    return report


def compared_with(run: Run) -> str:
    """Return the name of the baseline or the other side; '' if nothing is compared."""
    if run.baseline is not None:
        return path_text(run.baseline.path, run.config.rootpath)
    return str(options_of(run.config).against) if run.against is not None else ""


def judged_by(policy: Optional[Policy]) -> str:
    """Return the name of the run's gate: a policy, a threshold, or none."""
    if policy is None:
        return "no gate"
    return f"gate {policy.gate}" if any(policy.gate) else policy.name
