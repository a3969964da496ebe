"""What bounds the time of a test: pytest-timeout, and pytest's own ``faulthandler_timeout``.

Such a bound is for what the test does. What the run does beside it takes longer (fresh processes,
pairs, waiting), so the bound is lifted meanwhile, by pytest-timeout's own hooks. The processes that
a run starts have none: the run itself ends those that take too long. A case whose test has too
little time for its budget gets a smaller one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import time
from typing import Any, Dict, Iterator, Optional, Tuple

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.command_line import options_of
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

#: The timer of pytest-timeout that runs: its test and its settings.
timer_key = pytest.StashKey[Tuple[pytest.Item, Any]]()
#: The timeout of the current test and when it began, of pytest-timeout and of faulthandler.
timeouts_key = pytest.StashKey[Dict[str, Tuple[float, float]]]()
TIMEOUT, FAULTHANDLER = "timeout", "faulthandler"
#: Whether a run has started this process.
started_key = pytest.StashKey[bool]()


def note_parent(config: pytest.Config) -> None:
    """Note whether a run has started this process, which a worker's own variables would hide."""
    inherits = devices.borrows() and not is_worker(config)
    config.stash[started_key] = inherits or options_of(config).instance is not None
    config.stash[timeouts_key] = {}


def set_timer(item: pytest.Item, settings: Any) -> Optional[bool]:
    """Note the timer; in a process that a run has started, set none."""
    if item.config.stash[started_key]:
        return True
    item.config.stash[timer_key] = (item, settings)
    item.config.stash[timeouts_key][TIMEOUT] = (settings.timeout, time.monotonic())
    return None


def cancel_timer(item: pytest.Item) -> None:
    """Note that there is no timer any more."""
    if timer_key in item.config.stash:
        del item.config.stash[timer_key]
        del item.config.stash[timeouts_key][TIMEOUT]


@contextlib.contextmanager
def waiting_for_device(fixture: str, config: pytest.Config) -> Iterator[None]:
    """Let the first test wait for the device."""
    with unbounded(config) if fixture == DEVICE else contextlib.nullcontext():
        yield


def lift_bounds(item: pytest.Item) -> None:
    """In a process that a run has started, lift pytest's own bound, and run no test twice."""
    config = item.config
    if config.stash[started_key]:
        _cancel_faulthandler(config)
        run_once(item)
    elif config.pluginmanager.hasplugin(FAULTHANDLER):
        timeout = float(config.getini("faulthandler_timeout") or 0.0)
        if timeout > 0:
            config.stash[timeouts_key][FAULTHANDLER] = (timeout, time.monotonic())


def _cancel_faulthandler(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    config.stash[timeouts_key].pop(FAULTHANDLER, None)


def budget_within_timeout(config: pytest.Config) -> float:
    """Return the budget of a case, less where its test's timeout has no room for it."""
    budget = float(options_of(config).budget)
    now = time.monotonic()
    for timeout, started in config.stash[timeouts_key].values():
        fitting = fitting_budget(timeout - (now - started))
        if fitting < budget:
            budget = fitting
            line = (
                f"cases with a timeout of {duration_text(timeout)} had less time for their rounds "
                "than --budget: other programs may stretch rounds three times"
            )
            run = config.stash[run_key]
            if line not in run.closing:
                run.closing.append(line)
    return budget


def fitting_budget(left: float) -> float:
    """Return the largest budget for which a test has time that has ``left`` seconds."""
    return max(LEAST_BUDGET, SHARE * (left - BESIDE_SECONDS))


@contextlib.contextmanager
def unbounded(config: pytest.Config) -> Iterator[None]:
    """Let what happens inside take its time: it is not the test's own."""
    _cancel_faulthandler(config)
    timer = config.stash.get(timer_key, None)
    if timer is None:
        yield
        return
    item, settings = timer
    config.hook.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        config.hook.pytest_timeout_set_timer(item=item, settings=settings)


def run_once(item: pytest.Item) -> None:
    """Have pytest-rerunfailures not run a test again, which would measure everything again."""
    if item.config.pluginmanager.hasplugin(RERUNS):
        item.add_marker(getattr(pytest.mark, MARKER)(reruns=0, condition=False), append=False)
