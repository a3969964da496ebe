"""Results of pytest-benchmark's fixtures that a test, or a fixture of it, makes by hand.

pytest-benchmark's session gets each result before its first round. It becomes a case named after
the test that runs. A result of a test's teardown is too late for that, and is named in the summary.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Tuple

import pytest

from ipubench.plugins.command_line.words import measures, only_tests
from ipubench.plugins.measure.base import CaseRun, state_of
from ipubench.plugins.measure.benchmark_cases import become_case, case_run_of
from ipubench.plugins.measure.by_pytest_benchmark import begin, record
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.selection.functions import plain_name
from ipubench.plugins.state import Run


def watch_results(run: Run) -> None:
    """Be given each result from now on."""
    if measures(run.config) and not only_tests(run.config):
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
    """End the measurement before, if it goes on."""
    for _, watched in state_of(item).watched:
        watched.end()


def record_results(item: pytest.Item) -> None:
    """Record what has been measured so far: before the test is judged, or has failed."""
    state = state_of(item)
    _end(item)
    found, state.watched = state.watched, []
    for case_run, watched in found:
        if pytest_benchmark_adapter.has_result(case_run.benchmark):
            record(_named(case_run), watched)


def complete_records(run: Run, item: pytest.Item) -> None:
    """Record what ``extra_info`` was given after the measurement, by fixtures too."""
    state = state_of(item)
    for case_run in state.recorded:
        case_run.add_extra()
    state.recorded = []  # which hold what the test has measured
    name_late(run)


def name_late(run: Run) -> None:
    """Name what no row shows; without a run pytest-benchmark's table is there alone."""
    late, run.late = run.late, []
    run.closing += [
        f"{benchmark.fullname}: the result {benchmark.name} is not recorded: it was measured "
        "outside of its test's set-up and call"
        for benchmark in filter(pytest_benchmark_adapter.has_result, late)
    ]


def _named(case_run: CaseRun) -> CaseRun:
    """Return the same with a name of its own: its test's, with that of its fixture and a number."""
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
    """Return a node id and a case's name with one more part, if it is not empty."""
    if not part:
        return nodeid, name
    longer = f"{nodeid[:-1]}-{part}]" if nodeid.endswith("]") else f"{nodeid}[{part}]"
    return longer, f"{name}-{part}"
