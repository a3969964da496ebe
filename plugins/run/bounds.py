"""What bounds the time of a test: pytest-timeout, and pytest's own ``faulthandler_timeout``.

Such a bound is for what the test does. What the run does beside it takes longer (fresh processes,
pairs, waiting), so the bound is lifted meanwhile, by pytest-timeout's own hooks. The processes that
a run starts have none: the run itself ends those that take too long.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from typing import Any, Iterator, Optional, Tuple

import pytest

from ipubench.fixtures.devices import INHERIT_VARIABLE
from ipubench.plugins.command_line.words import is_worker

#: pytest-rerunfailures, as a plugin and as a marker.
RERUNS, MARKER = "rerunfailures", "flaky"
#: The fixture that waits for a device which another run has.
DEVICE = "ipubench_device"

#: The timer of pytest-timeout that runs: its test and its settings.
timer_key = pytest.StashKey[Tuple[pytest.Item, Any]]()
#: Whether a run has started this process.
started_key = pytest.StashKey[bool]()


def note_parent(config: pytest.Config) -> None:
    """Note whether a run has started this process, which a worker's own variables would hide."""
    inherits = INHERIT_VARIABLE in os.environ and not is_worker(config)
    config.stash[started_key] = inherits or config.option.instance is not None


def set_timer(item: pytest.Item, settings: Any) -> Optional[bool]:
    """Note the timer; in a process that a run has started, set none."""
    if item.config.stash[started_key]:
        return True
    item.config.stash[timer_key] = (item, settings)
    return None


def cancel_timer(item: pytest.Item) -> None:
    """Note that there is no timer any more."""
    if timer_key in item.config.stash:
        del item.config.stash[timer_key]


@contextlib.contextmanager
def waiting_for_device(fixture: str, config: pytest.Config) -> Iterator[None]:
    """Let the first test wait for the device."""
    with unbounded(config) if fixture == DEVICE else contextlib.nullcontext():
        yield


def lift_bounds(item: pytest.Item) -> None:
    """In a process that a run has started, lift pytest's own bound, and run no test twice."""
    if item.config.stash[started_key]:
        faulthandler.cancel_dump_traceback_later()
        run_once(item)


@contextlib.contextmanager
def unbounded(config: pytest.Config) -> Iterator[None]:
    """Let what happens inside take its time: it is not the test's own."""
    faulthandler.cancel_dump_traceback_later()
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
