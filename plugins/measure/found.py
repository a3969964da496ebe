"""Tests that turn out to measure: with a fixture of pytest-benchmark that no argument names.

A test may ask for the fixture while it runs, or make several by hand. pytest-benchmark's session
holds the result of each, which becomes a case named after its test. A result that could not become
one is named in the summary, and pytest-benchmark's own table shows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generator, List, Optional, Tuple

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import CaseError
from ipubench.plugins.command_line.words import measures, only_tests
from ipubench.plugins.measure.base import CaseRun, recorded_key
from ipubench.plugins.measure.by_pytest_benchmark import Watched
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.run.journal import run_of
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import names_key, run_key
from ipubench.plugins.run.time_spent import spent_key
from ipubench.plugins.selection.functions import claim, make_case, plain_name, unmeasured_key
from ipubench.plugins.selection.selected import case_of

NAME = "ipubench-found"


def become_case(item: pytest.Item) -> Case:
    """Return the case of a test; one that turns out to measure becomes one."""
    found = case_of(item)
    if found is None:
        config = item.config
        claim(item)
        found = make_case(item)
        if measures(config):
            run_of(config)
            config.stash[spent_key].begin_case()
            config.stash[progress_key].add(item.nodeid, found.id)
    if found.error:
        raise CaseError(found.error)
    return found


class Found:
    """Records what pytest-benchmark measures with fixtures that our meter was not given."""

    def __init__(self) -> None:
        self._item: Optional[pytest.Item] = None  # that is set up or called
        self._watched: List[Watched] = []
        self._unrecorded = 0  # that were named

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Be given each result from now on."""
        pytest_benchmark_adapter.watch_results(session.config, self._begin)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Note which test a result belongs to; a test may be repeated."""
        self._item = item
        item.stash[names_key], item.stash[recorded_key] = [], []
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Record what a test has measured that failed, and what ``extra_info`` was given since."""
        if call.when == "call":
            self.record()
        elif call.when == "teardown":
            for case_run in item.stash.get(recorded_key, ()):
                case_run.add_extra()
            item.stash[recorded_key] = []  # which hold what the test has measured
            self._name_unrecorded(item.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """A fixture that measures as it is torn down is too late for its test's verdict."""
        self.record()
        self._item = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Name what was not recorded; refuse options that no test has obeyed."""
        stash = session.config.stash
        idle = unmeasured_key in stash and run_key not in stash
        if idle and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        self._name_unrecorded(session.config)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Say which options those were."""
        message = config.stash.get(unmeasured_key, "")
        if message and run_key not in config.stash:
            terminalreporter.write_line(f"ERROR: {message}", red=True)

    def _begin(self, benchmark: Any) -> None:
        """Watch a fixture that is about to measure."""
        for watched in self._watched:
            watched.end()
        request = getattr(self._item, "_request", None)
        if self._item is None or request is None:
            return
        case = become_case(self._item)
        names = ("ipubench_device", "ipubench_conditions")
        device, conditions = map(request.getfixturevalue, names)
        pytest_benchmark_adapter.take(benchmark)
        case_run = CaseRun(self._item, case, benchmark, device, conditions)
        self._watched.append(Watched.begin(case_run))

    def _name_unrecorded(self, config: pytest.Config) -> None:
        """Name what no row shows; without a run pytest-benchmark's table is there alone."""
        run = config.stash.get(run_key, None)
        found = pytest_benchmark_adapter.unrecorded(config)
        if run is not None:
            run.closing += [
                f"{name}: a result is not recorded: it was measured outside of its test's set-up "
                "and call"
                for name in found[self._unrecorded :]
            ]
            self._unrecorded = len(found)

    def record(self) -> None:
        """Record what has been measured so far."""
        found, self._watched = self._watched, []
        for watched in found:
            watched.end()
            if pytest_benchmark_adapter.has_result(watched.case_run.benchmark):
                watched.case_run = _named(watched.case_run)
                watched.record()


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


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Look for results in sessions that measure."""
    if measures(config) and not only_tests(config):
        config.pluginmanager.register(Found(), NAME)


# This module is registered before plugins/compare/judge_plugin.py, which is trylast too.
@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Record what a test has measured before it is judged."""
    found: Optional[Found] = item.config.pluginmanager.getplugin(NAME)
    if found is not None:
        found.record()
