"""What bounds a test's time bounds nothing of what the run does beside it.

A conftest.py stands in for pytest-timeout and for pytest-rerunfailures: it has their hooks, their
marker and their names, and notes what happens.
"""

from __future__ import annotations

import math
from typing import List

import pytest

from ipubench.plugins.record.record import record_of, rounds_of
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


def test_fresh_processes_run_while_no_timer_does_and_have_none(project: Project) -> None:
    project.add_to_conftest(TIMEOUT)
    project.run(*CASE, "--baseline-save=main", "--processes=3").assert_code(0)
    device = ["cancel", "set 3"]
    fresh = ["cancel", "process", "cancel", "process", "cancel", "set 3"]
    # A process of its own cancels at its end what it has not set.
    assert events(project) == ["set 3", *device, *fresh, "cancel"]


def test_both_sides_of_a_comparison_have_no_timer(project: Project) -> None:
    project.add_to_conftest(TIMEOUT)
    project.run(*CASE, interpreter(project), "--gate-cap=3").assert_code(0)
    found = events(project)
    assert found.count("process") == 6 and found.count("set 3") == 3


def test_rounds_fit_into_a_timeout(project: Project) -> None:
    project.add_to_conftest(TIMEOUT)
    words = ("--set=noise=0.5", "--target-precision=0.1%")
    outcome = project.run(*CASE, *words).assert_code(0)
    (benchmark,) = [line["benchmark"] for line in project.journal() if line["type"] == "case"]
    assert record_of(benchmark)["rounds"]["stopped_by"] == "budget"
    assert math.fsum(rounds_of(benchmark)) < 1
    assert "timeout" in outcome.text


@pytest.mark.parametrize("slow", [False, True])
def test_only_a_regression_is_not_run_again(project: Project, slow: bool) -> None:
    project.add_to_conftest(RERUNS)
    project.run(*CASE, "--baseline-save=main", "--processes=3").assert_code(0)
    # Fresh processes measure once, whatever happens to them.
    assert events(project) == [NEVER, NEVER, "None"]
    env = {"IPUBENCH_FAKE_SLOWDOWN": "1.5"} if slow else {}
    project.run(*CASE, "--baseline=main", "--gate=5%", env=env).assert_code(int(slow))
    found = events(project)
    assert found[-1] == (NEVER if slow else "None")
    assert all(one == NEVER for one in found[:-1])
