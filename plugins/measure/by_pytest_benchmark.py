"""Records what pytest-benchmark measures by its rules."""

from __future__ import annotations

from typing import Any

from ipubench.fixtures.runtimes.call import OWN
from ipubench.plugins.command_line.arguments import (
    all_spellings,
    benchmark_arguments,
    options_among,
    typed_arguments,
)
from ipubench.plugins.measure.base import Calls, CaseRun, timed_by_another
from ipubench.plugins.measure.watched import Watched
from ipubench.plugins.record.record import ITSELF
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.record.structs import Memory

UNIT = "calls"
#: Why such a case cannot take turns with another process, round by round.
AS_THE_TEST_SAYS = "pytest-benchmark measures it with the test's settings"
#: Options of our meter, which pytest-benchmark does not use.
OF_OUR_METER = ("--budget", "--target-precision", "--steps", "--batches-per-step")


def begin(case_run: CaseRun) -> Watched:
    """Begin to watch a measurement of pytest-benchmark; with ``--wait-for-quiet`` wait before."""
    case_run.wait_for_quiet()
    case_run.phase("rounds", "measuring as pytest-benchmark does")
    return Watched.begin(case_run.device)


def record(case_run: CaseRun, watched: Watched) -> None:
    """Write the record of the case."""
    watched.end()
    case_run.phase("record", "recording")
    _name_idle_options(case_run)
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


def _name_idle_options(case_run: CaseRun) -> None:
    """Add a line on the given options that have no effect, once for all cases."""
    config, closing = case_run.item.config, case_run.run.closing
    given = options_among(typed_arguments(config), all_spellings(config, OF_OUR_METER))
    if not given:
        return
    names = ", ".join(words[0].partition("=")[0] for words in given)
    others = benchmark_arguments(config)
    instead = f": leave out {' '.join(others)}" if others else ", with the test's settings"
    line = f"{names}: without effect on cases that pytest-benchmark measures{instead}"
    if line not in closing:
        closing.append(line)
