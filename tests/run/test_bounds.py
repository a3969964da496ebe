"""A test's time limit does not limit the other work of the run.

A conftest.py stands in for pytest-timeout and pytest-rerunfailures: it has their hooks, their
marker and their names, and records what happens.
"""

from __future__ import annotations

from typing import List

import pytest

from ipubench.plugins.run.bounds import LEAST_BUDGET, fitting_budget
from tests.compare.test_against import interpreter
from tests.support.harness import Project

TIMEOUT = """
import os
from types import SimpleNamespace


def note(text):
    with open("events", "a") as file:
        print(text, file=file)


class Hooks:
    @pytest.hookspec(firstresult=True)
    def pytest_timeout_set_timer(self, item, settings):
        pass

    @pytest.hookspec(firstresult=True)
    def pytest_timeout_cancel_timer(self, item):
        pass


def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(Hooks)


def pytest_sessionstart():
    if "IPUBENCH_LEASE_HOLDER" in os.environ:
        note("process")


@pytest.hookimpl(trylast=True)
def pytest_timeout_set_timer(item, settings):
    note(f"set {settings.timeout}")
    return True


@pytest.hookimpl(trylast=True)
def pytest_timeout_cancel_timer(item):
    note("cancel")
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    item.config.hook.pytest_timeout_set_timer(item=item, settings=SimpleNamespace(timeout=3))
    yield
    item.config.hook.pytest_timeout_cancel_timer(item=item)
"""
RERUNS = """
class Reruns:
    def pytest_configure(self, config):
        config.addinivalue_line("markers", "flaky: of pytest-rerunfailures")

    def pytest_runtest_teardown(self, item):
        marker = item.get_closest_marker("flaky")
        with open("events", "a") as file:
            print(marker and marker.kwargs, file=file)


def pytest_addhooks(pluginmanager):
    pluginmanager.register(Reruns(), "rerunfailures")
"""
NEVER = "{'reruns': 0, 'condition': False}"
CASE = ("-k", "beta-synthetic")


def events(project: Project) -> List[str]:
    path = project.folder / "events"
    found = path.read_text().splitlines()
    path.unlink()
    return found


@pytest.mark.parametrize(
    ("words", "fresh", "timers"),
    [(["--baseline-save=main", "--processes=3"], 2, 3), (["--gate-cap=3"], 7, 3)],
    ids=["fresh", "against"],
)
def test_the_runs_own_work_has_no_timer(
    project: Project, words: List[str], fresh: int, timers: int
) -> None:
    project.add_to_conftest(TIMEOUT)
    other = [interpreter(project)] if "--gate-cap=3" in words else []
    project.run(*CASE, *words, *other).assert_code(0)
    found = events(project)
    assert (found.count("process"), found.count("set 3")) == (fresh, timers)
    # The first test waits for the device, and the last one gets its timer back.
    own = found[found.index("set 3") :]  # pairs end before the test of this process
    assert own[:3] == ["set 3", "cancel", "set 3"] and own[-2:] == ["set 3", "cancel"]


@pytest.mark.parametrize(
    ("left", "budget"), [(21.0, 5.0), (4.0, 0.75), (1.2, LEAST_BUDGET), (-3.0, LEAST_BUDGET)]
)
def test_the_budget_that_fits_into_a_timeout(left: float, budget: float) -> None:
    assert fitting_budget(left) == pytest.approx(budget)


@pytest.mark.parametrize(
    ("words", "stopped_by"),
    [
        (["-p", "stands_in"], "budget"),
        (["-o", "faulthandler_timeout=3"], "budget"),
        (["-o", "faulthandler_timeout=300"], "precision"),
        (["-p", "stands_in", "--steps=4"], "steps"),  # a number of rounds has no budget
    ],
    ids=["timeout", "faulthandler", "room", "steps"],
)
def test_a_case_gets_a_budget_that_fits_into_its_timeout(
    project: Project, words: List[str], stopped_by: str
) -> None:
    """The fake clock's rounds are precise after two seconds of them."""
    (project.folder / "stands_in.py").write_text(f"import pytest\n{TIMEOUT}")
    path = f"{project.environment['PYTHONPATH']}:{project.folder}"
    outcome = project.run("-k", "beta", *words, env={"PYTHONPATH": path}).assert_code(0)
    # pytest's own timeout of the first one is lifted while it waits for the device.
    *_, record = project.records().values()
    assert record["rounds"]["stopped_by"] == stopped_by
    assert ("timeout of 3s" in outcome.text) == (stopped_by == "budget")


def test_only_a_regression_is_not_rerun(project: Project) -> None:
    project.add_to_conftest(RERUNS)
    project.run(*CASE, "--baseline-save=main", "--processes=3").assert_code(0)
    # Fresh processes measure once, whatever happens to them.
    assert events(project) == [NEVER, NEVER, "None"]
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "1.5"}
    project.run(*CASE, "--baseline=main", "--gate=5%", env=slow).assert_code(1)
    assert set(events(project)) == {NEVER}
