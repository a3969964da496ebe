"""Measure a case in fresh processes: how many a baseline has, and how long they may take."""

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
from ipubench.plugins.run.progress import in_words
from ipubench.plugins.run.within import TimeLimit
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run, run_of

#: Processes that measure each case of a baseline: its own and fresh ones.
BASELINE_PROCESSES = 9
#: Python, pytest and a framework's imports, at least.
START_SECONDS = 3.0
UNKNOWN_TIME = "how long that takes is known once a case has been measured"
#: Of the time of ``--within``, the processes that a gate asks for take this share at most.
GATE_SHARE = 1 / 3
#: Parts of a run's time that say nothing of a fresh process, which has the run's device.
NOT_OF_A_PROCESS = ("device", "quiet", "compare")
#: Those that a run does once, and each fresh process again.
OF_RUN = ("start", "import")


def processes_wanted(config: pytest.Config) -> int:
    """Return how many processes measure each case, the session's own among them."""
    option = options_of(config)
    if option.processes is not None:
        return int(option.processes)
    return BASELINE_PROCESSES if option.baseline_save is not None else 1


def reserve_gate_time(config: pytest.Config, limit: Optional[TimeLimit]) -> None:
    """Keep a part of the time of ``--within``, which has begun, for the processes of a gate."""
    option = options_of(config)
    if limit is None or option.baseline is None or not has_gate(config):
        return
    most = GATE_SHARE * (option.within or 0.0)
    seconds = most if option.gate_time is None else min(most, option.gate_time)
    change_options(config, gate_time=seconds)
    limit.keep(seconds)


def gate_time_of(config: pytest.Config, items: Sequence[pytest.Item]) -> GateTime:
    """Return --gate-time, to be shared by the cases that this run, or this worker, is to measure.

    Workers that take turns each have an equal part of it. What a resumed run has done needs none.
    """
    waiting = [item for item in items if case_of(item) is not None]
    cases = math.ceil(len(waiting) / worker_count(config))
    given = options_of(config).gate_time
    seconds = None if given is None else given / workers_in_turns(config)
    return GateTime(seconds, cases)


def seconds_of_fresh(run: Run) -> float:
    """Return what a fresh process of the case that runs will take, about.

    As long as the run's own took for the case, for its start and for imports; and as much more as
    the latest fresh process of another case took, which may have started a GPU.
    """
    case, whole = run.spent.of_case(), run.spent.of_run()
    own = [seconds for part, seconds in case.items() if part not in (*NOT_OF_A_PROCESS, *OF_RUN)]
    once = max(START_SECONDS, math.fsum(whole.get(part, 0.0) for part in OF_RUN))
    return math.fsum([*own, once, run.gate_time.beyond])


class FreshProcesses:
    """Measures one case again and again, each time in a fresh process."""

    def __init__(
        self, item: pytest.Item, name: str, release: Callable[[], None], most: int
    ) -> None:
        """``name``: the case's; a test may have several. ``most``: how many there may be."""
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
        self._beside = ""  # what to note of processes that are disturbed on purpose

    def __call__(self, number: int) -> Optional[Benchmark]:
        """Return the benchmark of the fresh process with this number, from 1 up.

        None where there is no time for one more.
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
        """Measure until ``wanted`` fresh processes are clean; as many again may be disturbed.

        On a CPU two more are measured beside busy programs, unless others have disturbed as many or
        ``--processes`` says how many: a gate beside others then knows what CPU time these cost
        (plugins/gate/cpu_time.py).
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
        self._beside = ", beside busy programs of this run"
        for number in range(first, first + missing):
            with busy_programs(len(allowed_cpus())):
                if self(number) is None:
                    return

    def _forecast(self) -> None:
        """Say how long the fresh processes will take, now that the case has been measured."""
        case = case_of(self._item)
        name = case.id if case is not None else self._item.nodeid
        processes = counted(self._most, "fresh process", "fresh processes")
        whole = in_words(self._most * self._expected)
        each = f"of about {self._expected:.0f} s"
        self._progress.line(f"  {name}: {processes} {each}: {whole}")

    def _measured(self) -> Benchmark:
        """Measure in one more process, for all cases of the test."""
        self._progress.phase(f"fresh process {len(self.benchmarks) + 1}")
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
        note = self._beside
        if not note and was_disturbed(found.record):
            note = ", disturbed"
        name = found.record.name
        took = f"{self._expected:.0f} s"
        self._progress.line(f"  {name}: fresh process {number}: {rate}{note} ({took})")


def too_few(run: Run, nodeid: str) -> str:
    """Say why a case has too few fresh processes for a baseline: --gate-time was over; else ''."""
    wanted = processes_wanted(run.config) - 1
    found = len(run.results.fresh.get(nodeid, ()))
    if options_of(run.config).gate_time is None or found >= min(LEAST_FRESH, wanted):
        return ""
    processes = counted(wanted, "fresh process", "fresh processes")
    return f"--gate-time left time for {found} of {processes}"


def most_time(config: pytest.Config, cases: int, judged: int) -> Optional[str]:
    """Say how long saving or gating takes, as far as it is known before it begins.

    ``cases`` are to run, of which a gate judges ``judged``. None where neither is asked.
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
    return f"{text}: {UNKNOWN_TIME if seconds is None else f'{in_words(seconds)} at most'}"
