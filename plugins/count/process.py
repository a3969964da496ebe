"""Counts all cases in one process, and the remaining ones in another if a case ends it.

The process has no address randomisation, fixed hashes and one thread. Other programs do not disturb
it, so it waits for no device, and two may run at once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence

from ipubench.fixtures.devices.cpu import THREAD_VARIABLES
from ipubench.fixtures.machine import scratch
from ipubench.plugins.command_line.arguments import LONG
from ipubench.plugins.count import callgrind, launch
from ipubench.plugins.count.calls import MOST_SECONDS
from ipubench.plugins.count.counter import CALLGRIND
from ipubench.plugins.elsewhere.place import HERE, Place
from ipubench.plugins.elsewhere.remote_case import Outcome, RemoteCase, more_tests, tests_not_found
from ipubench.plugins.record.structs import CountedCase
from ipubench.plugins.run.results import Recording, SessionResults

#: Where the counter of a process puts its files.
FOLDER_VARIABLE = "IPUBENCH_COUNT_FOLDER"
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
        return [*start(self.way, results), *command, f"{LONG}counting={self.way}"]


@dataclass(frozen=True)
class CountingProcess:
    """Counts cases on one side."""

    ours: Recording
    way: str
    place: Place = HERE

    def count(self, nodeids: Sequence[str]) -> Dict[str, CountedCase]:
        """Return the count of each test, or the reason why it has none."""
        waiting = list(nodeids)
        found: Dict[str, CountedCase] = {}
        while waiting:
            outcome = self._run(waiting)
            results = outcome.results
            unknown = tests_not_found(self.ours, self.place, waiting, outcome.lines)
            if unknown:
                found.update({name: CountedCase(uncountable=NO_SUCH_CASE) for name in unknown})
                waiting = [name for name in waiting if name not in unknown]
                continue
            found.update({name: lines[-1] for name, lines in results.counts.items()})
            ended = {*results.outcomes, *found}
            stopped = [name for name in waiting if name not in ended]
            # The one that ran has ended the process; if none did, no other process would do better.
            begun = [name for name in stopped if name in results.running]
            reasons = dict.fromkeys(begun or ([] if ended else stopped), _how(outcome))
            for name in results.outcomes:
                reasons.setdefault(name, _reason(results, name))
            for name, reason in reasons.items():
                found.setdefault(name, CountedCase(uncountable=reason))
            left = [name for name in stopped if name not in reasons]
            if len(left) == len(waiting):
                found.update({name: CountedCase(uncountable=_how(outcome)) for name in left})
                break
            waiting = left
        return found

    def _run(self, nodeids: Sequence[str]) -> Outcome:
        """Run one process for these tests."""
        first, *others = nodeids
        words = more_tests(self.ours, self.place, others)
        with scratch.folder("count") as folder:
            variables = {**fixed(), FOLDER_VARIABLE: str(folder)}
            cases = CountedCases(self.ours, first, self.place, words, variables, self.way)
            each = MOST_SECONDS + BESIDE_SECONDS
            return cases.run(folder, START_SECONDS + len(nodeids) * each)


def start(way: str, folder: Path) -> List[str]:
    """Return the start of a command that counts a program: its own words follow."""
    launching = [sys.executable, "-S", str(Path(launch.__file__).resolve())]
    return [*launching, *(callgrind.command(folder) if way == CALLGRIND else [])]


def fixed() -> Dict[str, str]:
    """Return the variables that make a process do the same each time it runs."""
    one = dict.fromkeys((*THREAD_VARIABLES, *OTHER_THREADS), "1")
    return {**one, "PYTHONHASHSEED": "0"}


def _reason(results: SessionResults, name: str) -> str:
    outcome = results.outcomes[name]
    why = results.reasons.get(name, "")
    if outcome == "passed":
        return "it made no call that can be counted alone"
    return f"its test {outcome} where it was counted: {why}" if why else f"its test {outcome}"


def _how(outcome: Outcome) -> str:
    """Return a line on how a process ended without counting a case."""
    return f"the process that counts did not count it: {outcome.how}, {outcome.why}"
