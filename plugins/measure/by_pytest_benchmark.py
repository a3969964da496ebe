"""Records what pytest-benchmark measures by its rules."""

from __future__ import annotations

from typing import Any

from ipubench.fixtures.runtimes.call import OWN
from ipubench.plugins.measure.base import Calls, CaseRun, timed_by_another
from ipubench.plugins.measure.watched import Watched
from ipubench.plugins.record.record import ITSELF
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.record.structs import Memory

UNIT = "calls"
#: Why such a case cannot take turns with another process, round by round.
AS_THE_TEST_SAYS = "pytest-benchmark measures it with the test's settings"


def begin(case_run: CaseRun) -> Watched:
    """Begin to watch a measurement of pytest-benchmark; with ``--wait-for-quiet`` wait before."""
    case_run.wait_for_quiet()
    case_run.phase("rounds", "measuring as pytest-benchmark does")
    return Watched.begin(case_run.device)


def record(case_run: CaseRun, watched: Watched) -> None:
    """Write the record of the case."""
    watched.end()
    case_run.phase("record", "recording")
    stats: Any = case_run.benchmark.stats
    calls, seconds = stats.iterations, [s * stats.iterations for s in stats.stats.data]
    if min(seconds) <= 0:
        why = "a round took no time by its timer, so it has no rate"
        case_run.run.closing.append(f"{case_run.case.id}: not recorded: {why}")
        return
    found = timed_by_another(
        case_run.first_facts(),
        Calls(ITSELF, calls, UNIT),
        seconds,
        latency([s / calls for s in seconds], ITSELF),
        Memory(watched.memory.read(), watched.memory.since, None),
        watched.others.describe_at_once(len(seconds)),
        effective={"precision": OWN, "measured_by": ITSELF},
        compile="none",
        canary_kind=case_run.device.canary_kind,
        data={"mode": OWN},
    )
    case_run.finish(found, release=lambda: None)
