"""Records results of ``BenchmarkFixture`` objects that a test, or its fixtures, make by hand.

pytest-benchmark's session gets each result before its first round. It becomes a case with the name
of the running test. Results of a test's teardown come too late: the summary lists them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, List, Tuple

import pytest

from ipubench.plugins.command_line.arguments import all_arguments
from ipubench.plugins.measure.base import CaseRun, Measured, state_of
from ipubench.plugins.measure.benchmark_cases import become_case, case_run_of
from ipubench.plugins.measure.by_pytest_benchmark import begin, record
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.selection.functions import plain_name
from ipubench.plugins.state import Run

#: Options of pytest-benchmark that affect its table.
TABLE_OPTIONS = tuple(
    f"--benchmark-{name}"
    for name in (
        "columns",
        "sort",
        "group-by",
        "name",
        "time-unit",
        "histogram",
        "compare",
        "cprofile",
    )
)


def watch_results(run: Run) -> None:
    """Watch for results from now on."""
    if run.role.measures and not run.selection.own_tests:
        pytest_benchmark_adapter.watch_results(run.config, partial(_begin, run))


def _begin(run: Run, benchmark: Any) -> None:
    """Watch a fixture that is about to measure."""
    request = getattr(run.item, "_request", None)
    if run.item is None or request is None:
        run.late.append(benchmark)
        return
    _end(run.item)
    case_run = case_run_of(run.item, become_case(run.item), benchmark, request)
    pytest_benchmark_adapter.take(benchmark)
    state_of(run.item).watched.append((case_run, begin(case_run)))


def _end(item: pytest.Item) -> None:
    """End the test's previous measurement."""
    for _, watched in state_of(item).watched:
        watched.end()


def record_results(item: pytest.Item) -> None:
    """Record all measurements so far, before the test is judged or reported as failed."""
    state = state_of(item)
    _end(item)
    found, state.watched = state.watched, []
    for case_run, watched in found:
        if pytest_benchmark_adapter.has_result(case_run.benchmark):
            named = _named(case_run)
            record(named, watched)
            if named.device.waiting() is not None:
                named.run.closing.append(
                    f"{named.case.id}: only the launches of work on the GPU are timed, because the "
                    "test makes its BenchmarkFixture by hand; the fixture benchmark waits for it"
                )


def take_measured(item: pytest.Item) -> List[Measured]:
    """Return what the test has measured; its records hold what the test wrote meanwhile."""
    state = state_of(item)
    measured, state.measured = state.measured, []  # they hold the step
    for case_run in state.recorded:
        case_run.add_extra()  # a test may write extra_info after its measurement
    return measured


def complete_records(run: Run, item: pytest.Item) -> None:
    """Record what tests and fixtures added to ``extra_info`` after the measurement."""
    state = state_of(item)
    for case_run in state.recorded:
        case_run.add_extra()
    state.recorded = []  # frees what they hold
    name_late(run)


def name_late(run: Run) -> None:
    """List the results that no test could record below the table."""
    late, run.late = run.late, []
    run.closing += [
        f"{benchmark.fullname}: the result {benchmark.name} is not recorded: it was measured "
        "outside of its test's set-up and call"
        for benchmark in filter(pytest_benchmark_adapter.has_result, late)
    ]


def _named(case_run: CaseRun) -> CaseRun:
    """Return the case with a unique name: its test's, the fixture's and, if needed, a number."""
    item, case = case_run.item, case_run.case
    taken = {other.fullname for other in state_of(item).recorded}
    given, test = plain_name(case_run.benchmark.name), plain_name(item.name)
    label = given[len(test) :].lstrip("-_.") if given.startswith(test) else given
    number, part = 1, label
    while True:
        nodeid, name = _with_part(item.nodeid, case.id, part)
        if nodeid not in taken:
            return replace(case_run, case=replace(case, id=name), own_name=nodeid)
        number += 1
        part = f"{label}-{number}" if label else str(number)


def _with_part(nodeid: str, name: str, part: str) -> Tuple[str, str]:
    """Return a node id and a case's name with ``part`` appended, if it is not empty."""
    if not part:
        return nodeid, name
    longer = f"{nodeid[:-1]}-{part}]" if nodeid.endswith("]") else f"{nodeid}[{part}]"
    return longer, f"{name}-{part}"


def hide_table(config: pytest.Config) -> None:
    """Hide pytest-benchmark's table, unless the user has set an option for it."""
    asked = any(word.startswith(TABLE_OPTIONS) for word in all_arguments(config))
    if not asked and not pytest_benchmark_adapter.unrecorded(config):
        pytest_benchmark_adapter.hide_table(config)
