"""Measures a case in fresh processes, as many as a baseline or a gate needs."""

from __future__ import annotations

import math
from typing import Callable, List, Optional, Sequence

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.command_line import change_options, options_of
from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.plugins.command_line.arguments import worker_count, workers_in_turns
from ipubench.plugins.compare.policy import has_gate
from ipubench.plugins.elsewhere.busy_programs import busy_programs
from ipubench.plugins.elsewhere.remote_case import RemoteCase
from ipubench.plugins.gate.countable import LEAST_FRESH, too_disturbed
from ipubench.plugins.gate.cpu_time import LEAST_DISTURBED
from ipubench.plugins.measure.base import state_of
from ipubench.plugins.record.record import was_disturbed
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import rate_text
from ipubench.plugins.run.gate_time import GateTime
from ipubench.plugins.run.lines import FreshLine
from ipubench.plugins.run.progress import rough_duration
from ipubench.plugins.run.within import TimeLimit
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run, run_of

#: Processes that measure each case of a baseline: the session's own and fresh ones.
BASELINE_PROCESSES = 9
#: The least time to start Python, pytest and a framework.
START_SECONDS = 3.0
UNKNOWN_TIME = "how long that takes is known once a case has been measured"
#: The gate's fresh processes take at most this share of ``--within``.
GATE_SHARE = 1 / 3
#: Parts of the run's time that a fresh process does not need: it uses the run's device.
NOT_OF_A_PROCESS = ("device", "quiet", "compare")
#: Parts that a run needs once, but each fresh process too.
OF_RUN = ("start", "import")


def processes_wanted(config: pytest.Config) -> int:
    """Return how many processes measure each case, including the session's own."""
    option = options_of(config)
    if option.processes is not None:
        return int(option.processes)
    return BASELINE_PROCESSES if option.baseline_save is not None else 1


def reserve_gate_time(config: pytest.Config, limit: Optional[TimeLimit]) -> None:
    """Keep part of the time of ``--within`` for the gate's fresh processes."""
    option = options_of(config)
    if limit is None or option.baseline is None or not has_gate(config):
        return
    most = GATE_SHARE * (option.within or 0.0)
    seconds = most if option.gate_time is None else min(most, option.gate_time)
    change_options(config, gate_time=seconds)
    limit.keep(seconds)


def gate_time_of(config: pytest.Config, items: Sequence[pytest.Item]) -> GateTime:
    """Return --gate-time, to be shared by the cases of this run or worker.

    Workers that take turns get equal parts. Cases that a resumed run has finished need none.
    """
    waiting = [item for item in items if case_of(item) is not None]
    cases = math.ceil(len(waiting) / worker_count(config))
    given = options_of(config).gate_time
    seconds = None if given is None else given / workers_in_turns(config)
    return GateTime(seconds, cases)


def seconds_of_fresh(run: Run) -> float:
    """Return the estimated seconds of a fresh process for the current case.

    This is the run's own time for the case, for starting and for imports, plus the extra time of
    the previous case's first fresh process, which may have started a GPU.
    """
    case, total = run.spent.of_case(), run.spent.of_run()
    own = [seconds for part, seconds in case.items() if part not in (*NOT_OF_A_PROCESS, *OF_RUN)]
    once = max(START_SECONDS, math.fsum(total.get(part, 0.0) for part in OF_RUN))
    return math.fsum([*own, once, run.gate_time.beyond])


class FreshProcesses:
    """Measures one case repeatedly, each time in a fresh process."""

    def __init__(
        self, item: pytest.Item, name: str, release: Callable[[], None], most: int
    ) -> None:
        """``name`` is the case's name, as a test may have several; ``most`` limits processes."""
        self._item = item
        self._name = name
        self._most = most
        self._run = run = run_of(item.config)
        self._processes = state_of(item).processes
        self._release = release
        self._progress, self._time = run.progress, run.gate_time
        self._time.begin()
        self._expected = seconds_of_fresh(run)
        self.benchmarks: List[Benchmark] = []
        self._note = ""  # for processes that are disturbed on purpose

    def __call__(self, number: int) -> Optional[Benchmark]:
        """Return the benchmark of the fresh process with this number, counted from 1.

        Returns None if there is no time for another process.
        """
        while len(self.benchmarks) < number:
            known = self._processes[len(self.benchmarks) :]
            if not known and not self._time.allows(self._expected):
                return None
            if not self.benchmarks:
                self._forecast()
                self._release()
            self._add(known[0][self._name] if known else self._measured())
        return self.benchmarks[number - 1]

    def for_a_baseline(self, wanted: int) -> None:
        """Measure until ``wanted`` fresh processes are clean; stop after twice as many.

        On a CPU, two more run next to busy programs, unless two were disturbed anyway or
        ``--processes`` is given. They show how much CPU time a case uses when other programs
        disturb it (plugins/gate/cpu_time.py).
        """
        clean: List[bool] = []
        on_cpu = False
        while len(clean) < 2 * wanted and sum(clean) < wanted and not too_disturbed(clean):
            measured = self(len(clean) + 1)
            if measured is None:
                return
            clean.append(not was_disturbed(measured.record))
            on_cpu = measured.record.device.kind == "cpu"
        if not on_cpu or options_of(self._item.config).processes is not None:
            return
        first, missing = len(clean) + 1, LEAST_DISTURBED - clean.count(False)
        self._note = ", next to busy programs that this run started"
        for number in range(first, first + missing):
            with busy_programs(len(allowed_cpus())):
                if self(number) is None:
                    return

    def _forecast(self) -> None:
        """Print how long the fresh processes will take at most."""
        case = case_of(self._item)
        name = case.id if case is not None else self._item.nodeid
        processes = counted(self._most, "fresh process", "fresh processes")
        total = rough_duration(self._time.at_most(self._most * self._expected))
        each = f"of about {self._expected:.0f} s"
        self._progress.line(f"  {name}: {processes} {each}: {total} at most")

    def _measured(self) -> Benchmark:
        """Measure all cases of the test in another process; return this case's benchmark."""
        number = len(self.benchmarks) + 1
        self._progress.phase(f"fresh process {number}, about {self._expected:.0f} s")
        with self._time.spending():
            found = RemoteCase(self._run, self._item.nodeid).measured(self._name)
        if not self._processes:
            self._time.beyond = max(0.0, self._time.latest - self._expected + self._time.beyond)
        self._expected = self._time.latest
        self._processes.append(found)
        return found[self._name]

    def _add(self, found: Benchmark) -> None:
        self.benchmarks.append(found)
        number = len(self.benchmarks)
        self._run.add(FreshLine(found))
        throughput = found.record.throughput
        rate = f"{rate_text(throughput.median)} {throughput.unit}"
        note = self._note
        if not note and was_disturbed(found.record):
            note = ", disturbed"
        name = found.record.name
        took = f"{self._expected:.0f} s"
        self._progress.line(f"  {name}: fresh process {number}: {rate}{note} ({took})")


def too_few(run: Run, nodeid: str) -> str:
    """Return why a case has too few fresh processes for a baseline, or ''."""
    wanted = processes_wanted(run.config) - 1
    found = len(run.results.fresh.get(nodeid, ()))
    if options_of(run.config).gate_time is None or found >= min(LEAST_FRESH, wanted):
        return ""
    processes = counted(wanted, "fresh process", "fresh processes")
    return f"--gate-time left time for {found} of {processes}"


def most_time(config: pytest.Config, cases: int, judged: int) -> Optional[str]:
    """Return how long saving or gating takes at most; None if the run does neither.

    ``cases`` run, and a gate judges ``judged`` of them.
    """
    option, wanted = options_of(config), processes_wanted(config)
    if not cases or (wanted == 1 and not judged):
        return None
    parts = []
    most = max(option.gate_cap, LEAST_FRESH)
    if wanted > 1:
        processes = counted(wanted - 1, "fresh process", "fresh processes")
        parts.append(f"{processes} for each of {counted(cases, 'case')}")
    if judged:
        looking = f"{counted(judged, 'case')} that looks slower"
        parts.append(f"up to {most} fresh processes for each of {looking}")
    text = " and ".join(parts)
    seconds = option.gate_time
    return f"{text}: {UNKNOWN_TIME if seconds is None else f'{rough_duration(seconds)} at most'}"
