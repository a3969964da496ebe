"""Results of pytest-benchmark's fixtures that a test, or a fixture of it, makes by hand.

pytest-benchmark's session gets each result before its first round. It becomes a case named after
the test that runs. A result of a test's teardown is too late for that, and is named in the summary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, List, Optional, Tuple

import pytest

from ipubench.plugins.command_line.words import measures, only_tests
from ipubench.plugins.measure.base import CaseRun, measured_key, recorded_key
from ipubench.plugins.measure.benchmark_cases import become_case, case_run_of
from ipubench.plugins.measure.by_pytest_benchmark import Watched
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.run.results import names_key, run_key
from ipubench.plugins.selection.functions import plain_name


@dataclass
class Found:
    """What such fixtures measure, until it is recorded."""

    item: Optional[pytest.Item] = None  # that is set up or called
    watched: List[Watched] = field(default_factory=list)
    late: List[Any] = field(default_factory=list)  # fixtures that no test could record

    def begin(self, benchmark: Any) -> None:
        """Watch a fixture that is about to measure."""
        self.end()
        request = getattr(self.item, "_request", None)
        if self.item is None or request is None:
            self.late.append(benchmark)
            return
        case_run = case_run_of(self.item, become_case(self.item), benchmark, request)
        pytest_benchmark_adapter.take(benchmark)
        self.watched.append(Watched.begin(case_run))

    def end(self) -> None:
        """End the measurement before, if it goes on."""
        for watched in self.watched:
            watched.end()


found_key = pytest.StashKey[Found]()


def watch_results(session: pytest.Session) -> None:
    """Be given each result from now on."""
    found = session.config.stash[found_key] = Found()
    if measures(session.config) and not only_tests(session.config):
        pytest_benchmark_adapter.watch_results(session.config, found.begin)


def begin_test(item: pytest.Item) -> None:
    """Have results be this test's; it may be repeated."""
    item.config.stash[found_key].item = item
    item.stash[measured_key], item.stash[recorded_key], item.stash[names_key] = [], [], []


def end_test(item: pytest.Item) -> None:
    """A fixture that measures as it is torn down is too late for its test's verdict."""
    item.config.stash[found_key].item = None


def record_results(item: pytest.Item) -> None:
    """Record what has been measured so far: before the test is judged, or has failed."""
    found = item.config.stash[found_key]
    found.end()
    watched, found.watched = found.watched, []
    for one in watched:
        if pytest_benchmark_adapter.has_result(one.case_run.benchmark):
            one.case_run = _named(one.case_run)
            one.record()


def complete_records(item: pytest.Item) -> None:
    """Record what ``extra_info`` was given after the measurement, by fixtures too."""
    for case_run in item.stash.get(recorded_key, ()):
        case_run.add_extra()
    item.stash[recorded_key] = []  # which hold what the test has measured
    name_late(item.config)


def name_late(config: pytest.Config) -> None:
    """Name what no row shows; without a run pytest-benchmark's table is there alone."""
    found, run = config.stash[found_key], config.stash.get(run_key, None)
    late, found.late = found.late, []
    if run is not None:
        run.closing += [
            f"{benchmark.fullname}: the result {benchmark.name} is not recorded: it was measured "
            "outside of its test's set-up and call"
            for benchmark in filter(pytest_benchmark_adapter.has_result, late)
        ]


def _named(case_run: CaseRun) -> CaseRun:
    """Return the same with a name of its own: its test's, with that of its fixture and a number."""
    item, case = case_run.item, case_run.case
    taken = {other.fullname for other in item.stash[recorded_key]}
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
