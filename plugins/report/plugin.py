"""`--report=DIR`: write a report of what this run measured; and tell JUnit's XML the figures."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any, Generator, Optional

import pytest

from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.command_line.words import is_worker, only_lists
from ipubench.plugins.compare.baseline_plugin import missing_cases
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.record import with_processes
from ipubench.plugins.record.verdict import MISSING, Verdict
from ipubench.plugins.report.files import ReportError, append_summary, check, write
from ipubench.plugins.report.terminal import compared_with, judged_by
from ipubench.plugins.run.results import Run, run_key

started_key = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a folder that cannot be written before anything is measured."""
    config.stash[started_key] = time.time()
    folder = config.option.report
    if folder is None or only_lists(config) or is_worker(config):
        return
    try:
        check(user_path(folder))
    except (ReportError, OSError) as error:
        raise pytest.UsageError(f"--report={folder}: {error}") from None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Give a case's figures to --junitxml, as properties of its test case."""
    run = item.config.stash.get(run_key, None)
    # JUnit takes the properties that the last phase reports.
    if run is not None and call.when == "teardown" and item.nodeid in run.results.benchmarks:
        record = run.results.benchmarks[item.nodeid]["extra_info"]["ipubench"]
        item.user_properties += [
            ("throughput", record["throughput"]["median"]),
            ("unit", record["throughput"]["unit"]),
        ]
        verdict = run.results.verdicts.get(item.nodeid, {})
        item.user_properties += [
            (name, verdict[key])
            for name, key in (("verdict", "kind"), ("change", "change"))
            if verdict.get(key) is not None
        ]
    yield


# Registered after plugins/compare/baseline_plugin.py, so the verdicts of the session are known.
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the report of a run that measured something, however it ended."""
    config = session.config
    run = config.stash.get(run_key, None)
    folder = config.option.report
    if run is None or folder is None:
        return
    if not run.results.benchmarks:
        run.closing.append(f"no report was written to {folder}: no case was measured")
        return
    try:
        report = report_of(config, run, exitstatus)
        names = write(report, user_path(folder))
        run.closing.append(f"report: {Path(folder) / names[1]} ({', '.join(names[2:])} beside it)")
        append_summary(report)
    except ReportError as error:
        run.closing.append(str(error))
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR


def report_of(config: pytest.Config, run: Run, exitstatus: Optional[int] = None) -> Report:
    """Return what a report says of this run."""
    results = run.results
    benchmarks = [
        with_processes(benchmark, results.fresh.get(nodeid, ()))
        for nodeid, benchmark in results.benchmarks.items()
    ]
    missing = Verdict(MISSING).as_dict()
    words = [str(word) for word in config.invocation_params.args]
    return Report(
        document=pytest_benchmark_adapter.document(config, benchmarks),
        verdicts={**results.verdicts, **dict.fromkeys(missing_cases(config), missing)},
        outcomes=dict(results.outcomes),
        baseline=compared_with(config),
        gate=judged_by(config),
        command=" ".join(map(shlex.quote, ["pytest", *words])),
        started=config.stash.get(started_key, None),
        ended=time.time(),
        interrupted=exitstatus == pytest.ExitCode.INTERRUPTED,
    )
