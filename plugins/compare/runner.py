"""Obtains what cases need: fresh processes here, and pairs of processes here and there."""

from __future__ import annotations

import math
import time
from typing import Mapping, Sequence

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.compare.open_case import OpenCase
from ipubench.plugins.compare.pair_runner import PairRunner
from ipubench.plugins.gate.decision import Need
from ipubench.plugins.gate.pairs import outlook
from ipubench.plugins.measure.base import state_of
from ipubench.plugins.processes.remote_case import RemoteCase
from ipubench.plugins.record.record import was_disturbed
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import rate_text
from ipubench.plugins.results.lines import FreshLine
from ipubench.plugins.run.progress import rough_duration
from ipubench.plugins.state import Run

#: The least time to start Python, pytest and a framework.
START_SECONDS = 3.0
#: Parts of the run's time that a fresh process does not need: it uses the run's device.
NOT_OF_A_PROCESS = ("device", "quiet", "compare")
#: Parts that a run needs once, but each fresh process too.
OF_RUN = ("start", "import")


class ProcessRunner:
    """Measures cases in other processes, and adds the results to those of the run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pairs = PairRunner(run)
        #: The seconds of a fresh process; 0 before the first.
        self._process_seconds = 0.0

    def seconds(self, cases: Sequence[OpenCase], need: Need) -> float:
        """Return about how long it takes to measure what these cases need next."""
        if need.pairs:
            return self._pairs.seconds(cases)
        known = len(state_of(cases[0].item).processes) > len(cases[0].fresh)
        return 0.0 if known else self._process_seconds or seconds_of_fresh(self._run)

    def seconds_left(self, cases: Sequence[OpenCase], need: Need) -> float:
        """Return about how long it takes until these cases are decided."""
        return self._pairs.seconds_left(cases) if need.pairs else self.seconds(cases, need)

    def obtain(self, cases: Sequence[OpenCase], need: Need) -> None:
        """Measure the cases once more: in a pair of processes, or one case in a fresh process."""
        for case in cases:
            case.release()
        if need.pairs:
            self._pairs.measure(cases)
        else:
            self._measure_fresh(cases[0])

    def show(
        self, cases: Sequence[OpenCase], waiting: Mapping[OpenCase, Need], left: float
    ) -> None:
        """Print how many of several cases are decided, and about how long the others take."""
        if len(cases) < 2:
            return
        decided = len(cases) - len(waiting)
        text = f"  {decided} of {counted(len(cases), 'case')} decided"
        if waiting:
            views = [outlook(case.pairs, case.pair_rule) for case in waiting]
            slower, faster = views.count("slower"), views.count("faster")
            noisy = len(views) - slower - faster
            kinds = (slower, "slower so far"), (faster, "faster so far"), (noisy, "not clear yet")
            parts = [f"{number} {what}" for number, what in kinds if number]
            needed = self._pairs.seconds_left(list(waiting))
            text += f", {len(waiting)} open: {', '.join(parts)}; "
            text += f"{rough_duration(min(left, needed))} left"
            if needed > left:
                text += f", {rough_duration(needed)} needed"
        self._run.progress.line(text)

    def stop(self, cases: Sequence[OpenCase], need: Need, left: float) -> None:
        """Print what the verdicts of several cases take, for which ``left`` seconds are too few."""
        if not need.pairs or len(cases) < 2:
            return
        needed = rough_duration(self._pairs.seconds_left(cases))
        self._run.progress.line(
            f"  --gate-time ends the comparison: it leaves {rough_duration(left)}, and "
            f"{len(cases)} open cases take {needed}; allow more time, or select fewer cases with -k"
        )

    def _measure_fresh(self, case: OpenCase) -> None:
        """Measure a test in a fresh process, unless one has already measured all its cases."""
        run, known = self._run, state_of(case.item).processes
        number = len(case.fresh) + 1
        if len(known) < number:
            expected = self._process_seconds or seconds_of_fresh(run)
            if number == 1:
                most = counted(case.most_processes, "fresh process", "fresh processes")
                seconds = min(run.gate_time.share(1), case.most_processes * expected)
                total = f"{rough_duration(seconds)} at most"
                run.progress.line(f"  {case.shown}: {most} of about {expected:.0f} s: {total}")
            run.progress.phase(f"fresh process {number}, about {expected:.0f} s")
            started = time.monotonic()
            known.append(RemoteCase(run, case.item.nodeid).measured(case.name))
            self._process_seconds = time.monotonic() - started
        self._add(case, known[number - 1][case.name])

    def _add(self, case: OpenCase, found: Benchmark) -> None:
        self._run.add(FreshLine(found))
        throughput = found.record.throughput
        rate = f"{rate_text(throughput.median)} {throughput.unit}"
        note = ", disturbed" if was_disturbed(found.record) else ""
        took = f"{self._process_seconds:.0f} s"
        number = len(case.fresh)
        self._run.progress.line(f"  {case.shown}: fresh process {number}: {rate}{note} ({took})")


def seconds_of_fresh(run: Run) -> float:
    """Return the estimated seconds of a fresh process for the current case.

    This is the run's own time for the case, for starting and for imports.
    """
    case, total = run.spent.of_case(), run.spent.of_run()
    own = [seconds for part, seconds in case.items() if part not in (*NOT_OF_A_PROCESS, *OF_RUN)]
    once = max(START_SECONDS, math.fsum(total.get(part, 0.0) for part in OF_RUN))
    return math.fsum([*own, once])
