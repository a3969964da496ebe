"""What bounds the time of a test: pytest-timeout, and pytest's own ``faulthandler_timeout``.

Such a bound is for what the test does. What the run does beside it takes longer (fresh processes,
pairs, waiting), so the bound is lifted meanwhile, by pytest-timeout's own hooks. The processes that
a run starts have none: the run itself ends those that take too long.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import time
from dataclasses import dataclass
from typing import Any, Generator, Iterator, Optional

import pytest

from ipubench.fixtures.devices.lease import INHERIT_VARIABLE
from ipubench.plugins.command_line.words import is_worker
from ipubench.plugins.record.text import duration_text
from ipubench.plugins.run.results import run_key

#: Rounds get this share of the time that is left to a test, less what a case takes beside them:
#: other programs may stretch them three times (plugins/measure/disturbance.py), after a warm-up.
SHARE, BESIDE_SECONDS = 0.25, 1.0
#: No case gets less.
LEAST_BUDGET = 0.1
#: pytest-rerunfailures, as a plugin and as a marker.
RERUNS, MARKER = "rerunfailures", "flaky"
#: The fixture that waits for a device which another run has.
DEVICE = "ipubench_device"


@dataclass(frozen=True)
class Timer:
    """A timer of pytest-timeout."""

    item: pytest.Item
    settings: Any
    started: float


timer_key = pytest.StashKey[Timer]()
#: Whether a run has started this process.
started_key = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Note whether a run has started this process, which a worker's own variables would hide."""
    inherits = INHERIT_VARIABLE in os.environ and not is_worker(config)
    config.stash[started_key] = inherits or config.option.instance is not None


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Optional[bool]:
    """Note the timer; in a process that a run has started, set none."""
    if item.config.stash[started_key]:
        return True
    item.config.stash[timer_key] = Timer(item, settings, time.monotonic())
    return None


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Note that there is no timer any more."""
    if timer_key in item.config.stash:
        del item.config.stash[timer_key]


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(
    fixturedef: Any, request: pytest.FixtureRequest
) -> Generator[None, None, None]:
    """Let the first test wait for the device."""
    with contextlib.ExitStack() as stack:
        if fixturedef.argname == DEVICE:
            stack.enter_context(unbounded(request.config))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """In a process that a run has started, also have no test run a second time where it fails."""
    if item.config.stash[started_key]:
        run_once(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """In a process that a run has started, take back what pytest has begun by now."""
    if item.config.stash[started_key]:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Give a case rounds that fit into the time which is left to its test."""
    option = item.config.option
    given = option.budget
    timer = item.config.stash.get(timer_key, None)
    if timer is not None:
        left = timer.settings.timeout - (time.monotonic() - timer.started)
        fitting = round(SHARE * (left - BESIDE_SECONDS), 1)
        option.budget = min(given, max(LEAST_BUDGET, fitting))
        if option.budget < given:
            _say_shorter(item, timer.settings.timeout, given)
    yield
    option.budget = given


def _say_shorter(item: pytest.Item, timeout: float, given: float) -> None:
    """Say below the table, once for all cases of one kind, that rounds are fewer than asked for."""
    run = item.config.stash.get(run_key, None)
    line = (
        f"tests with a timeout of {duration_text(timeout)} were given "
        f"{duration_text(item.config.option.budget)} of rounds instead of {duration_text(given)}: "
        "other programs may stretch rounds three times"
    )
    if run is not None and line not in run.closing:
        run.closing.append(line)


@contextlib.contextmanager
def unbounded(config: pytest.Config) -> Iterator[None]:
    """Let what happens inside take its time: it is not the test's own."""
    faulthandler.cancel_dump_traceback_later()
    timer = config.stash.get(timer_key, None)
    if timer is None:
        yield
        return
    config.hook.pytest_timeout_cancel_timer(item=timer.item)
    try:
        yield
    finally:
        config.hook.pytest_timeout_set_timer(item=timer.item, settings=timer.settings)


def run_once(item: pytest.Item) -> None:
    """Have pytest-rerunfailures not run a test again, which would measure everything again."""
    if item.config.pluginmanager.hasplugin(RERUNS):
        item.add_marker(getattr(pytest.mark, MARKER)(reruns=0, condition=False), append=False)
