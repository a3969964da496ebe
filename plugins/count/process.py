"""The process that counts: all cases in one, and what is left in another if a case ends it.

It has no address randomisation, fixed hashes and one thread. Other programs do not disturb it, so
it waits for no device and may run beside another one.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.devices.cpu import THREAD_VARIABLES
from ipubench.fixtures.machine import scratch
from ipubench.plugins.command_line.words import arguments_of
from ipubench.plugins.count import callgrind, launch
from ipubench.plugins.count.calls import MOST_SECONDS
from ipubench.plugins.count.counter import CALLGRIND
from ipubench.plugins.processes.fresh import (
    folder_of,
    fresh_command,
    fresh_environment,
    known_reason,
    run_bounded,
)
from ipubench.plugins.processes.other_python import Environment
from ipubench.plugins.record.files import lines_in
from ipubench.plugins.run.results import SessionResults

#: Where the counter of a process puts its files.
FOLDER_VARIABLE = "IPUBENCH_COUNT_FOLDER"
#: What a process takes to start and to collect, and beside the counts of each case, at most.
START_SECONDS, BESIDE_SECONDS = 300.0, 30.0
#: Variables of thread pools beside those that a CPU's cases have.
OTHER_THREADS = ("NUMEXPR_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

#: What a process counted of a case, as a journal's line has it.
Line = Mapping[str, object]


@dataclass
class CountingProcess:
    """Counts cases of one side: here, or ``elsewhere``."""

    config: pytest.Config
    way: str
    elsewhere: Optional[Environment] = None
    #: The one that runs.
    _process: List[subprocess.Popen[bytes]] = field(default_factory=list)
    _ended: bool = False

    def count(self, nodeids: Sequence[str]) -> Dict[str, Line]:
        """Return what is found of the tests, by case; each has a count or a reason."""
        waiting = list(nodeids)
        found: Dict[str, Line] = {}
        while waiting and not self._ended:
            results, how = self._run(waiting)
            found.update({name: lines[-1] for name, lines in results.counts.items()})
            ended = {*results.outcomes, *found}
            reasons = {name: _reason(results, name) for name in waiting if name in results.outcomes}
            stopped = [name for name in waiting if name not in ended]
            begun = [name for name in stopped if name in results.running]
            reasons.update(dict.fromkeys(begun or ([] if ended else stopped), how))
            for name, reason in reasons.items():
                found.setdefault(name, {"uncountable": reason})
            waiting = [name for name in stopped if name not in reasons]
        return found

    def end(self) -> None:
        """End what runs; count no more."""
        self._ended = True
        for process in self._process:
            if process.poll() is None:
                process.terminate()

    def _run(self, nodeids: Sequence[str]) -> Tuple[SessionResults, str]:
        """Run one process for these tests; return its results and how it ended."""
        config, elsewhere = self.config, self.elsewhere
        seconds = START_SECONDS + len(nodeids) * (MOST_SECONDS + BESIDE_SECONDS)
        with scratch.folder("count") as folder, scratch.folder("cache") as cache:
            words = fresh_command(config, nodeids[0], str(folder), cache, elsewhere)
            there = elsewhere.revision if elsewhere is not None else None
            root = None if there is None else there.root
            words += [word for name in nodeids[1:] for word in arguments_of(config, name, root)]
            words.append(f"--counting={self.way}")
            environment = {**fresh_environment(elsewhere), **fixed(), FOLDER_VARIABLE: str(folder)}
            # A variable of ours that pytest would put into every test's environment: its length
            # is another each time, and with it where the stack begins.
            code, output = run_bounded(
                [*start(self.way, folder), *words],
                str(folder_of(config, elsewhere)),
                environment,
                seconds,
                self._process.append,
            )
            results = SessionResults.of(lines_in(folder))
        return results, _how(code, output)


def start(way: str, folder: Path) -> List[str]:
    """Return the words before a program's own with which it is counted."""
    launching = [sys.executable, "-S", str(Path(launch.__file__).resolve())]
    return [*launching, *(callgrind.command(folder) if way == CALLGRIND else [])]


def fixed() -> Dict[str, str]:
    """Return the variables with which a process does the same each time it runs."""
    one = dict.fromkeys((*THREAD_VARIABLES, *OTHER_THREADS), "1")
    return {**one, "PYTHONHASHSEED": "0"}


def _reason(results: SessionResults, name: str) -> str:
    outcome = results.outcomes[name]
    why = results.reasons.get(name, "")
    if outcome == "passed":
        return "it made no call that can be counted alone"
    return f"its test {outcome} where it was counted: {why}" if why else f"its test {outcome}"


def _how(code: Optional[int], output: str) -> str:
    """Return in a line how a process ended that counted nothing."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if code is None:
        return "counting it took too long"
    known = known_reason(lines) or (lines[-1] if lines else "it printed nothing")
    return f"the process that counts ended with exit code {code}: {known}"
