"""One line per case while the suite runs."""

from __future__ import annotations

import time
from typing import Any, Optional, Tuple

import pytest

from fixtures.capture import uncaptured
from plugins.journal import run_key
from plugins.record import record_of
from plugins.selection import case_of
from plugins.units import short_number

progress_key = pytest.StashKey["Progress"]()


class Progress:
    """Writes to the terminal past pytest's capture; on a terminal the line is rewritten live."""

    def __init__(self, config: pytest.Config) -> None:
        self.terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        self.config = config
        self.quiet = config.getoption("verbose", 0) < 0 or self.terminal is None
        self.live = not self.quiet and self.terminal.isatty and self.terminal.hasmarkup
        self.total = 0
        self.position = 0
        self.label = ""
        self.started = 0.0

    def begin(self, label: str) -> None:
        """Start the line of the next case."""
        self.position += 1
        self.label = f"[{self.position}/{self.total}] {label}"
        self.started = time.monotonic()
        self.phase("starting")

    def phase(self, text: str) -> None:
        """Show what the case is doing now; only where a line can be rewritten."""
        if self.live:
            with uncaptured(self.config):
                line = f"{self.label} {text} "
                self.terminal.rewrite(line[: self.terminal._tw.fullwidth - 1], erase=True)

    def end(self, result: str, **markup: bool) -> None:
        """Finish the case's line."""
        if self.quiet:
            return
        with uncaptured(self.config):
            line = f"{self.label} {result} ({time.monotonic() - self.started:.0f} s)"
            if self.live:
                self.terminal.rewrite(line, erase=True, **markup)
                self.terminal.write_line("")
            else:
                self.terminal.write_line(line, **markup)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Make the progress line of this session; pytest's reporter exists by now."""
    session.config.stash[progress_key] = Progress(session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the cases; without ordinary tests among them, pytest's own dots are not needed."""
    progress = session.config.stash[progress_key]
    cases = [item for item in session.items if case_of(item) is not None]
    progress.total = len(cases)
    if cases and len(cases) == len(session.items) and progress.terminal is not None:
        progress.terminal.showfspath = False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Start the line of a case."""
    case = case_of(item)
    if case is not None:
        item.config.stash[progress_key].begin(f"{_function(item)}[{case.id}]")


def _function(item: pytest.Item) -> str:
    return item.nodeid.split("::")[-1].split("[")[0]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Finish the line of a case with its throughput, or with how it failed."""
    report = (yield).get_result()
    if case_of(item) is None:
        return
    report.ipubench_case = True
    if report.when == "call" or report.outcome != "passed":
        text, markup = _result(item, report)
        item.config.stash[progress_key].end(text, **markup)


def _result(item: pytest.Item, report: pytest.TestReport) -> Tuple[str, Any]:
    if report.outcome == "skipped":
        return "skipped", {"yellow": True}
    if report.outcome == "failed":
        return "FAILED" if report.when == "call" else f"ERROR in {report.when}", {"red": True}
    run = item.config.stash.get(run_key, None)
    benchmark = run.results.benchmarks.get(item.nodeid) if run is not None else None
    if benchmark is None:
        return "ran, not measured", {}
    throughput = record_of(benchmark)["throughput"]
    rate = f"{short_number(throughput['median'])} {throughput['unit']}"
    return f"{rate} ±{throughput['spread']:.1%}", {}


def pytest_report_teststatus(report: Any) -> Optional[Tuple[str, str, str]]:
    """Count a case without a letter: it has its own line."""
    if not getattr(report, "ipubench_case", False):
        return None
    # The word is what the short summary calls a failure.
    if report.when == "call":
        return report.outcome, "", "FAILED" if report.failed else ""
    return ("error", "", "ERROR") if report.failed else None
