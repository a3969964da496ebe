"""Prints a line per case while the suite runs, with the time left.

Only on a terminal are lines rewritten, coloured and cut to the width; in a file each case has one
full line.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.cases import Case, case_key
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.machine.output import uncaptured
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.gate.shown_throughput import shown_throughput
from ipubench.plugins.record.record import is_timed, of_test
from ipubench.plugins.record.text import (
    cut_middle,
    distinct_names,
    name_of_test,
    rate_text,
    share_text,
)
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.time_spent import TimeSpent
from ipubench.plugins.selection.selected import case_of

NARROWEST_NAME = 16
#: Parts of a case's time (plugins/run/time_spent.py) that later cases do not need.
ONCE = ("device", "import", "peak")
#: The least time between two running estimates.
ESTIMATE_SECONDS = 0.2
#: The least time between two lines of a log about the same work.
LOG_SECONDS = 30.0


class Progress:
    """Writes to the terminal, bypassing pytest's capture; several cases may run at a time."""

    #: The real clock, even if a test replaces the module's, as freezegun does.
    _clock = staticmethod(time.monotonic)

    def __init__(self, config: pytest.Config, role: Role) -> None:
        self.terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        self.config = config
        # The terminal of a pytest-xdist worker is not visible.
        unseen = self.terminal is None or role is Role.WORKER
        self.quiet = unseen or config.getoption("verbose", 0) < 0
        self.live = not self.quiet and _can_rewrite(config, self.terminal)
        self.running: List[str] = []
        #: Whether the current line of the terminal is ours, so that we may replace it.
        self._in_line = False
        self._next_estimate = 0.0
        self._passing = ""
        self._next_passing = self._clock() + LOG_SECONDS if not self.live else 0.0
        #: Whether all tests have ended.
        self.over = False
        self.expect({})

    def expect_of(self, items: Sequence[pytest.Item]) -> None:
        """Count the cases, and hide pytest's percentages, which would ignore cases.

        If all tests are cases, pytest's file names are hidden too.
        """
        cases = [(item, case_of(item)) for item in items]
        self.expect(
            distinct_names({item.nodeid: _shown(item, case) for item, case in cases if case})
        )
        if self.names and self.terminal is not None:
            self.terminal._show_progress_info = False
            if len(self.names) == len(cases):
                self.terminal.showfspath = False

    def expect(self, names: Dict[str, str]) -> None:
        """Set the cases to run: their names by node id."""
        self.names = names
        self.positions: Dict[str, int] = {}  # of finished cases
        self.seconds: Dict[str, float] = {}
        self.remaining = Remaining({nodeid: _function(nodeid) for nodeid in names})

    def add(self, nodeid: str, name: str) -> None:
        """Add a case that has started: its plain test measures something."""
        self.names[nodeid] = name
        self.remaining.add(nodeid, _function(nodeid))
        self.begin(nodeid)

    def begin_test(self, item: pytest.Item) -> None:
        """Start the line of a case, in place of pytest's line with the file name."""
        case = case_of(item)
        if self.names and self.terminal is not None:
            self.terminal.showfspath = None if case is None else False
        if case is not None:
            self.begin(item.nodeid)

    def begin(self, nodeid: str) -> None:
        """Show that a case starts."""
        self.running.append(nodeid)
        self.remaining.begin(nodeid, self._clock())
        self.phase("starting")

    def phase(self, text: str) -> None:
        """Show what the case, or the run before its first case, does now, on a live terminal."""
        if not self.live or not (text or self.running):
            return
        several = len(self.running) > 1
        names = ", ".join(self.names[nodeid] for nodeid in self.running)
        start = f"[{len(self.positions) + 1}/{len(self.names)}] " if names else ""
        tail = f" {len(self.running)} at a time" if several else f" {text}"
        with uncaptured(self.config):
            self._leave_others()
            line = fitting(start, names, [tail], self._width())
            self.terminal.rewrite(printable(line)[: self._width()], erase=True)
            self._in_line = True

    def estimate(self, text: Callable[[], str]) -> None:
        """Show a running estimate, a few times a second; call ``text`` only for these."""
        if self.live and self._clock() >= self._next_estimate:
            self.phase(text())
            self._next_estimate = self._clock() + ESTIMATE_SECONDS

    def close(self) -> None:
        """Clear the line of a case that an interruption ended."""
        self.over = True
        if self._in_line:
            with uncaptured(self.config):
                self.terminal.rewrite("", erase=True)
                self.terminal.rewrite("")
            self._in_line = False

    def line(self, text: str) -> None:
        """Write a permanent line about a running case."""
        if not self.quiet:
            self._write(text[: self._width()], text)

    def passing(self, text: str) -> None:
        """Show a line that the next one replaces; in a log, one every LOG_SECONDS."""
        if self.quiet or self._clock() < self._next_passing or text == self._passing:
            return
        self._passing = text
        if not self.live:
            self._next_passing = self._clock() + LOG_SECONDS
            self.line(text)
            return
        with uncaptured(self.config):
            self._leave_others()
            self.terminal.rewrite(text[: self._width()], erase=True)
            self._in_line = True

    def waits(self, what: str, seconds: float) -> None:
        """Show in a log what has taken so long; a live terminal shows it already."""
        if not self.live and seconds >= LOG_SECONDS:
            self.passing(f"  {what}: {seconds:.0f} s so far")

    def _write(self, fitting: str, full: str, **markup: bool) -> None:
        """Write a permanent line: cut to the width on a live terminal, else in full."""
        fitting, full = printable(fitting), printable(full)
        with uncaptured(self.config):
            self._leave_others()
            if self.live:
                self.terminal.rewrite(fitting, erase=True, **markup)
                self.terminal.write_line("")
                self._in_line = False
            else:
                self.terminal.write_line(full, **markup)

    def _leave_others(self) -> None:
        """End the line of letters that plain tests have begun."""
        self.terminal.ensure_newline()
        if not self._in_line and self.terminal._tw.width_of_current_line:
            self.terminal._tw.line()

    def end(self, nodeid: str, result: str, once: float = 0.0, **markup: bool) -> None:
        """Write the line of a finished case; a second one if it fails afterwards.

        ``once``: the seconds of it that later cases will not need.
        """
        now = self._clock()
        if nodeid not in self.positions:
            self.positions[nodeid] = len(self.positions) + 1
            self.seconds[nodeid] = self.remaining.finish(nodeid, now, once)
        if nodeid in self.running:
            self.running.remove(nodeid)
        if self.quiet:
            return
        left = self.remaining.left(now)
        tails = [f" {result} ({self.seconds[nodeid]:.0f} s)"]
        if left is not None:
            tails.insert(0, f"{tails[0][:-1]}, {rough_duration(left)} left)")
        start, name = f"[{self.positions[nodeid]}/{len(self.names)}] ", self.names[nodeid]
        line = fitting(start, name, tails, self._width())
        self._write(line, f"{start}{name}{tails[0]}", **markup)
        self.phase("")

    def forget(self, nodeid: str) -> None:
        """Undo the start of a case, which will start again."""
        if nodeid in self.running:
            self.running.remove(nodeid)

    def reported(
        self, report: Any, results: RunResults, where: str = "", once: float = 0.0
    ) -> None:
        """Write a case's line if this report ends it; ``where`` names the machine, if not here."""
        report.ipubench_case = True
        if (report.when != "setup" and report.when != "teardown") or report.outcome != "passed":
            text, markup = _result(results, report)
            self.end(report.nodeid, text + where, once, **markup)

    def without_letter(self, report: Any, status: Any) -> Any:
        """Return pytest's status of a test, without a letter for a case, which has its own line.

        The short summary needs the word; while the suite runs, only a failure keeps it.
        """
        if not getattr(report, "ipubench_case", False):
            return status
        category, _, word = status
        return category, "", word if report.failed or self.over else ""

    def _width(self) -> int:
        width: int = self.terminal._tw.fullwidth
        return width - 1


def _can_rewrite(config: pytest.Config, terminal: Any) -> bool:
    """Return whether lines can be rewritten: not in a log, and not if tests write to them (-s)."""
    in_a_log = os.environ.get("CI") or os.environ.get("BUILD_NUMBER")
    can = terminal.isatty and terminal.hasmarkup and config.getoption("capture", "") != "no"
    return bool(can and not in_a_log)


def fitting(start: str, name: str, tails: Iterable[str], width: int) -> str:
    """Return a line within ``width`` columns; only the name is cut, in its middle.

    Uses the first of ``tails`` that fits, so the longest comes first.
    """
    for tail in tails:
        room = width - len(start) - len(tail)
        if room >= min(len(name), NARROWEST_NAME):
            break
    return start + cut_middle(name, max(room, NARROWEST_NAME)) + tail


def _shown(item: pytest.Item, case: Case) -> str:
    """Return a case's name, with that of its function if the test has no ``@cases``."""
    return case.id if case_key in item.stash else f"{_function(item.nodeid)}[{case.id}]"


def _function(nodeid: str) -> str:
    return name_of_test(nodeid).partition("[")[0]


def once_of(spent: TimeSpent) -> float:
    """Return the seconds of the current case that later cases will not need."""
    parts = spent.of_case()
    return math.fsum(parts.get(part, 0.0) for part in ONCE)


def _result(results: RunResults, report: pytest.TestReport) -> Tuple[str, Any]:
    if report.outcome == "skipped":
        text = "failed as expected" if hasattr(report, "wasxfail") else "skipped"
        return text, {"yellow": True}
    if report.outcome == "failed":
        if report.when in ("setup", "teardown"):
            return f"ERROR in {report.when}", {"red": True}
        return "FAILED" if report.when == "call" else "CRASHED", {"red": True}
    if report.nodeid not in results.benchmarks:
        found = sum(of_test(one) == report.nodeid for one in results.benchmarks.values())
        return counted(found, "result") if found else "ran, not measured", {}
    verdict = results.verdicts.get(report.nodeid)
    whole = results.with_fresh(report.nodeid)
    if not is_timed(whole.record):
        return "counted, not timed", {}
    throughput = shown_throughput(whole, verdict)
    rate = f"{rate_text(throughput.median)} {throughput.unit}"
    spread = share_text(throughput.spread)
    return f"{rate} ±{spread}" if spread else rate, {}


class Remaining:
    """Estimates the seconds left from the mean of each bench function's finished cases.

    A function without a finished case uses the mean of all. Times are seconds of a monotonic clock;
    cases may overlap.
    """

    def __init__(self, functions: Dict[str, str]) -> None:
        """``functions``: the bench function of each case to run."""
        self._functions = dict(functions)
        self._running: Dict[str, float] = {}
        self._finished: Dict[str, List[float]] = {}
        self._first: Optional[float] = None

    def add(self, case: str, function: str) -> None:
        """Add a case."""
        self._functions[case] = function

    def begin(self, case: str, now: float) -> None:
        """Record the start of a case."""
        if self._first is None:
            self._first = now
        self._running[case] = now

    def finish(self, case: str, now: float, once: float = 0.0) -> float:
        """Record the end of a case; return its seconds. Later cases will not need ``once``."""
        seconds = now - self._running.pop(case, now)
        function = self._functions.pop(case, None)
        once = min(once, seconds)
        if function is not None and self._first is not None:
            self._finished.setdefault(function, []).append(seconds - once)
            self._first += once
        return seconds

    def left(self, now: float) -> Optional[float]:
        """Return the seconds left; None if no case has finished, or no case is left."""
        known = [seconds for times in self._finished.values() for seconds in times]
        if not known or not self._functions or self._first is None:
            return None
        means = {name: statistics.fmean(times) for name, times in self._finished.items()}
        work = math.fsum(
            means.get(one, statistics.fmean(known)) for one in self._functions.values()
        )
        spent = math.fsum(now - start for start in self._running.values())
        # Workers run several cases at a time: divide by the average number so far.
        busy = math.fsum(known) + spent
        return max(0.0, work - spent) * (now - self._first) / busy if busy > 0 else None


def time_left(seconds: float) -> str:
    """Return the time left as text, which the next estimate replaces."""
    return f"{math.ceil(seconds)} s left" if seconds < 95 else f"{rough_duration(seconds)} left"


def rough_duration(seconds: float) -> str:
    """Return a duration as text, with few digits because it is an estimate."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 95:
        return f"about {10 * round(seconds / 10):.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"about {minutes:.0f} min"
    return f"about {minutes / 60:.1f} h"
