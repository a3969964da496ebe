"""Counts cases in another process, whose children each count one (plugins/count/children.py).

The process has no address randomisation, fixed hashes and one thread. Other programs do not disturb
it, so it waits for no device, and two may run at once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Sequence

from ipubench.fixtures.devices.cpu import THREAD_VARIABLES
from ipubench.fixtures.machine import scratch
from ipubench.plugins.command_line.arguments import LONG
from ipubench.plugins.count import callgrind, launch
from ipubench.plugins.count.calls import MOST_SECONDS
from ipubench.plugins.count.counter import CALLGRIND
from ipubench.plugins.processes.place import THIS_PLACE, Place
from ipubench.plugins.processes.remote_case import Outcome, RemoteCase, more_tests, tests_not_found
from ipubench.plugins.record.structs import CountedCase
from ipubench.plugins.results.lines import CountLine, lines_in
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.recording import Recording

#: Where the counter of a process puts its files.
FOLDER_VARIABLE = "IPUBENCH_COUNT_FOLDER"
#: The numbers of a case's children: the first one, and the one after the last.
CHILDREN_VARIABLE = "IPUBENCH_COUNT_CHILDREN"
#: What a process takes to start and to collect, and beside the counts of each case, at most.
START_SECONDS, BESIDE_SECONDS = 300.0, 30.0
#: Variables of thread pools beside those that a CPU's cases have.
OTHER_THREADS = ("NUMEXPR_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

#: Of a test that the other side does not have.
NO_SUCH_CASE = "there is no such case"


@dataclass(frozen=True)
class CountedCases(RemoteCase):
    """Cases that another process counts; ``nodeid`` is the first."""

    way: str = ""

    def command(self, results: Path, cache: Path, director: str = "") -> List[str]:
        """Return the command of the process."""
        command = super().command(results, cache, director)
        words = [*start(self.way, results), *command, f"{LONG}counting={self.way}"]
        # Each child empties it: folders that pytest numbers would stay for days.
        has_folders = self.ours.config.pluginmanager.hasplugin("tmpdir")
        return [*words, *([f"--basetemp={results / 'tests'}"] if has_folders else [])]


@dataclass(frozen=True)
class CountingProcess:
    """Counts cases on one side."""

    ours: Recording
    way: str
    place: Place = THIS_PLACE

    def count(
        self, nodeids: Sequence[str], children: range, told: Callable[[int], None]
    ) -> Dict[str, List[CountedCase]]:
        """Return what the children of each test counted, or the reason why there is no count.

        A child's number decides its litter. ``told`` gets the number of counts so far.
        """
        found: Dict[str, List[CountedCase]] = {}
        waiting = list(nodeids)
        while waiting:
            outcome = self._run(waiting, children, told)
            unknown = tests_not_found(self.ours, self.place, waiting, outcome.lines)
            found.update({name: [CountedCase(uncountable=NO_SUCH_CASE)] for name in unknown})
            for name in () if unknown else waiting:
                why = _reason(outcome.results, name) or _how(outcome)
                found[name] = outcome.results.counts.get(name) or [CountedCase(uncountable=why)]
            waiting = [name for name in waiting if name not in found]  # pytest has run none
        return found

    def _run(self, nodeids: Sequence[str], children: range, told: Callable[[int], None]) -> Outcome:
        """Run one process for these tests."""
        first, *others = nodeids
        words = more_tests(self.ours, self.place, others)
        with scratch.folder("count") as folder:
            variables = {
                **fixed(),
                FOLDER_VARIABLE: str(folder),
                CHILDREN_VARIABLE: f"{children.start}-{children.stop}",
            }
            cases = CountedCases(self.ours, first, self.place, words, variables, self.way)
            each = MOST_SECONDS + BESIDE_SECONDS
            most = START_SECONDS + len(nodeids) * len(children) * each
            return cases.run(folder, most, lambda: told(_done(folder, len(children))))


def start(way: str, folder: Path) -> List[str]:
    """Return the start of a command that counts a program: its own words follow."""
    launching = [sys.executable, "-S", str(Path(launch.__file__).resolve())]
    return [*launching, *(callgrind.command(folder) if way == CALLGRIND else [])]


def fixed() -> Dict[str, str]:
    """Return the variables that make a process do the same each time it runs."""
    one = dict.fromkeys((*THREAD_VARIABLES, *OTHER_THREADS), "1")
    return {**one, "PYTHONHASHSEED": "0"}


def _done(folder: Path, children: int) -> int:
    """Return the number of counts so far; a case that cannot be counted has had all of them."""
    found = [line.counted for line in lines_in(folder) if isinstance(line, CountLine)]
    return sum(children if one.uncountable else 1 for one in found)


def _reason(results: RunResults, name: str) -> str:
    outcome, why = results.outcomes.get(name, ""), results.reasons.get(name, "")
    if outcome == "passed":
        return "it made no call that can be counted alone"
    reason = f"its test {outcome} where it was counted" if outcome else ""
    return f"{reason}: {why}" if outcome and why else reason


def _how(outcome: Outcome) -> str:
    """Return a line on how a process ended without counting a case."""
    return f"the process that counts did not count it: {outcome.how}, {outcome.why}"
