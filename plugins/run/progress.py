"""One line per case while the suite runs, and how long the rest will take.

Live rewriting, colours and names cut to the width are for terminals; in a file each case has one
whole line.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.cases import Case, case_key
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.machine.output import uncaptured
from ipubench.plugins.command_line.arguments import is_worker
from ipubench.plugins.gate.shown_throughput import shown_throughput
from ipubench.plugins.record.record import is_timed, of_test
from ipubench.plugins.record.text import (
    cut_middle,
    name_of_test,
    rate_text,
    share_text,
    told_apart,
)
from ipubench.plugins.run.results import SessionResults
from ipubench.plugins.run.time_spent import TimeSpent
from ipubench.plugins.selection.selected import case_of

NARROWEST_NAME = 16
#: Parts of a case's time (plugins/run/time_spent.py) that the cases after it do not have.
ONCE = ("device", "import", "peak")


class Progress:
    """Writes to the terminal past pytest's capture; several cases may run at a time."""

    #: The real one, where a test puts another into the module, as freezegun does.
    _clock = staticmethod(time.monotonic)

    def __init__(self, config: pytest.Config) -> None:
        self.terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        self.config = config
        # A worker of pytest-xdist has a terminal that nobody sees.
        nobody = self.terminal is None or is_worker(config)
        self.quiet = nobody or config.getoption("verbose", 0) < 0
        self.live = not self.quiet and self.terminal.isatty and self.terminal.hasmarkup
        self.running: List[str] = []
        #: Whether the line that the terminal is in is ours, which the next one may replace.
        self._in_line = False
        #: Whether nothing runs any more.
        self.over = False
        self.expect({})

    def expect_of(self, items: Sequence[pytest.Item]) -> None:
        """Count the cases; without ordinary tests among them, pytest's own dots are not needed.

        Pytest's percentages would be of the ordinary tests alone: less than 100 at the end.
        """
        cases = [(item, case_of(item)) for item in items]
        self.expect(told_apart({item.nodeid: _shown(item, case) for item, case in cases if case}))
        if self.names and self.terminal is not None:
            self.terminal._show_progress_info = False
            if len(self.names) == len(cases):
                self.terminal.showfspath = False

    def expect(self, names: Dict[str, str]) -> None:
        """Take the cases that are to run: their names by node id."""
        self.names = names
        self.positions: Dict[str, int] = {}  # of those that have ended
        self.seconds: Dict[str, float] = {}
        self.remaining = Remaining({nodeid: _function(nodeid) for nodeid in names})

    def add(self, nodeid: str, name: str) -> None:
        """Take one more case, which has started: its test turned out to measure."""
        self.names[nodeid] = name
        self.remaining.add(nodeid, _function(nodeid))
        self.begin(nodeid)

    def begin_test(self, item: pytest.Item) -> None:
        """Start the line of a case, which takes the place of pytest's with the file."""
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
        """Show what the case is doing now; only where a line can be rewritten."""
        if not self.live or not self.running:
            return
        several = len(self.running) > 1
        names = ", ".join(self.names[nodeid] for nodeid in self.running)
        start = f"[{len(self.positions) + 1}/{len(self.names)}] "
        tail = f" {len(self.running)} at a time" if several else f" {text}"
        with uncaptured(self.config):
            self._leave_others()
            self.terminal.rewrite(fitting(start, names, [tail], self._width()), erase=True)
            self._in_line = True

    def line(self, text: str) -> None:
        """Write a line that stays, of a case that goes on."""
        if not self.quiet:
            self._write(text[: self._width()], text)

    def _write(self, fitting: str, whole: str, **markup: bool) -> None:
        """Write a line that stays: in place of the one that is rewritten, else as a whole."""
        with uncaptured(self.config):
            self._leave_others()
            if self.live:
                self.terminal.rewrite(fitting, erase=True, **markup)
                self.terminal.write_line("")
                self._in_line = False
            else:
                self.terminal.write_line(whole, **markup)

    def _leave_others(self) -> None:
        """End the line that ordinary tests have begun with their file and letters."""
        self.terminal.ensure_newline()
        if not self._in_line and self.terminal._tw.width_of_current_line:
            self.terminal._tw.line()

    def end(self, nodeid: str, result: str, once: float = 0.0, **markup: bool) -> None:
        """Write a case's line: of one that fails after its end, a second one.

        ``once``: seconds of it that the cases after it will not need.
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
            tails.insert(0, f"{tails[0][:-1]}, {in_words(left)} left)")
        start, name = f"[{self.positions[nodeid]}/{len(self.names)}] ", self.names[nodeid]
        line = fitting(start, name, tails, self._width())
        self._write(line, f"{start}{name}{tails[0]}", **markup)
        self.phase("")

    def forget(self, nodeid: str) -> None:
        """Take back that a case has started: it will start again."""
        if nodeid in self.running:
            self.running.remove(nodeid)

    def reported(
        self, report: Any, results: SessionResults, where: str = "", once: float = 0.0
    ) -> None:
        """Write the line of a case whose end this report is; ``where`` it was, if not here."""
        report.ipubench_case = True
        if (report.when != "setup" and report.when != "teardown") or report.outcome != "passed":
            text, markup = _result(results, report)
            self.end(report.nodeid, text + where, once, **markup)

    def without_letter(self, report: Any, status: Any) -> Any:
        """Count a case as pytest and its plugins do, without a letter: it has its own line.

        The word is what the short summary calls a case; while the suite runs, that of a failure
        alone.
        """
        if not getattr(report, "ipubench_case", False):
            return status
        category, _, word = status
        return category, "", word if report.failed or self.over else ""

    def _width(self) -> int:
        width: int = self.terminal._tw.fullwidth
        return width - 1


def fitting(start: str, name: str, tails: Iterable[str], width: int) -> str:
    """Return a line within ``width`` columns: the name is cut in its middle, the figures never.

    ``tails`` are tried in turn, so the first is the one that says most.
    """
    for tail in tails:
        room = width - len(start) - len(tail)
        if room >= min(len(name), NARROWEST_NAME):
            break
    return start + cut_middle(name, max(room, NARROWEST_NAME)) + tail


def _shown(item: pytest.Item, case: Case) -> str:
    """Return a case's name with its function's, which a test without ``@cases`` is named by."""
    return case.id if case_key in item.stash else f"{_function(item.nodeid)}[{case.id}]"


def _function(nodeid: str) -> str:
    return name_of_test(nodeid).partition("[")[0]


def once_of(spent: TimeSpent) -> float:
    """Return the seconds of the case that runs which the cases after it do not have."""
    parts = spent.of_case()
    return math.fsum(parts.get(part, 0.0) for part in ONCE)


def _result(results: SessionResults, report: pytest.TestReport) -> Tuple[str, Any]:
    if report.outcome == "skipped":
        said = "failed as expected" if hasattr(report, "wasxfail") else "skipped"
        return said, {"yellow": True}
    if report.outcome == "failed":
        if report.when in ("setup", "teardown"):
            return f"ERROR in {report.when}", {"red": True}
        return "FAILED" if report.when == "call" else "CRASHED", {"red": True}
    if report.nodeid not in results.benchmarks:
        found = sum(of_test(one) == report.nodeid for one in results.benchmarks.values())
        return counted(found, "result") if found else "ran, not measured", {}
    verdict = results.verdicts.get(report.nodeid)
    whole = results.whole(report.nodeid)
    if not is_timed(whole.record):
        return "counted, not timed", {}
    throughput = shown_throughput(whole, verdict)
    rate = f"{rate_text(throughput.median)} {throughput.unit}"
    spread = share_text(throughput.spread)
    return f"{rate} ±{spread}" if spread else rate, {}


class Remaining:
    """Seconds that are left, by the mean of each bench function's finished cases.

    A function without a finished case counts as the mean of all. Times are seconds of any clock
    that goes forward; cases may overlap.
    """

    def __init__(self, functions: Dict[str, str]) -> None:
        """``functions``: the bench function of each case that is to run."""
        self._functions = dict(functions)
        self._running: Dict[str, float] = {}
        self._finished: Dict[str, List[float]] = {}
        self._first: Optional[float] = None

    def add(self, case: str, function: str) -> None:
        """Take one more case."""
        self._functions[case] = function

    def begin(self, case: str, now: float) -> None:
        """Note that a case starts."""
        if self._first is None:
            self._first = now
        self._running[case] = now

    def finish(self, case: str, now: float, once: float = 0.0) -> float:
        """Note that a case has ended; return its seconds, ``once`` of which no other case needs."""
        seconds = now - self._running.pop(case, now)
        function = self._functions.pop(case, None)
        once = min(once, seconds)
        if function is not None and self._first is not None:
            self._finished.setdefault(function, []).append(seconds - once)
            self._first += once
        return seconds

    def left(self, now: float) -> Optional[float]:
        """Return the seconds to go; None where there is no case to go by, or none is left."""
        known = [seconds for times in self._finished.values() for seconds in times]
        if not known or not self._functions or self._first is None:
            return None
        means = {name: statistics.fmean(times) for name, times in self._finished.items()}
        work = math.fsum(
            means.get(one, statistics.fmean(known)) for one in self._functions.values()
        )
        spent = math.fsum(now - start for start in self._running.values())
        # How many cases ran at a time so far; with workers more than one.
        busy = math.fsum(known) + spent
        return max(0.0, work - spent) * (now - self._first) / busy if busy > 0 else None


def in_words(seconds: float) -> str:
    """Return a rough duration: the digits that an estimate deserves."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 95:
        return f"about {10 * round(seconds / 10):.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"about {minutes:.0f} min"
    return f"about {minutes / 60:.1f} h"
