"""Handles limits on a test's time: pytest-timeout and pytest's ``faulthandler_timeout``.

Such a limit is meant for the test itself. The run's own work during a test (fresh processes, pairs,
waiting) takes longer, so the run lifts the limit meanwhile, by pytest-timeout's hooks. Processes
that a run starts have no limit: the run ends those that take too long. If a test has too little
time for its budget, the case gets a smaller budget.
"""

from __future__ import annotations

import contextlib
import faulthandler
import time
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Tuple

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.record.text import duration_text

#: Rounds get this share of a test's remaining time, after subtracting the other work of a case:
#: other programs may triple their time (plugins/measure/disturbance.py), and a warm-up comes first.
SHARE, BESIDE_SECONDS = 0.25, 1.0
#: The least budget of a case.
LEAST_BUDGET = 0.1
#: pytest-rerunfailures: its plugin's name and its marker.
RERUNS, MARKER = "rerunfailures", "flaky"
#: The fixture that waits until another run releases the device.
DEVICE = "ipubench_device"

#: The timeouts of a test.
TIMEOUT, FAULTHANDLER = "timeout", "faulthandler"


class Bounds:
    """The time limits of the current test."""

    def __init__(self, config: pytest.Config, role: Role) -> None:
        self.config = config
        #: Whether a run has started this process for one of its cases.
        self.started = role in (Role.CHILD, Role.INSTANCE)
        #: The running timer of pytest-timeout: its test and its settings.
        self.timer: Optional[Tuple[pytest.Item, Any]] = None
        #: For pytest-timeout and for faulthandler: the test's timeout and when it began.
        self.timeouts: Dict[str, Tuple[float, float]] = {}

    def set_timer(self, item: pytest.Item, settings: Any) -> Optional[bool]:
        """Remember the timer of pytest-timeout; prevent it in a process that a run has started."""
        if self.started:
            return True
        self.timer = (item, settings)
        self.timeouts[TIMEOUT] = (settings.timeout, time.monotonic())
        return None

    def cancel_timer(self) -> None:
        """Forget the timer."""
        self.timer = None
        self.timeouts.pop(TIMEOUT, None)

    def begin(self, item: pytest.Item) -> None:
        """Start a test; in a process that a run has started, without a limit and without reruns."""
        if self.started:
            self._cancel_faulthandler()
            run_once(item)
        elif self.config.pluginmanager.hasplugin(FAULTHANDLER):
            timeout = float(self.config.getini("faulthandler_timeout") or 0.0)
            if timeout > 0:
                self.timeouts[FAULTHANDLER] = (timeout, time.monotonic())

    def _cancel_faulthandler(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self.timeouts.pop(FAULTHANDLER, None)

    def budget(self, closing: List[str]) -> float:
        """Return the budget of a case, reduced if its test's timeout is too short.

        Adds a line about a reduction to ``closing``.
        """
        budget = float(options_of(self.config).budget)
        now = time.monotonic()
        for timeout, started in self.timeouts.values():
            fitting = fitting_budget(timeout - (now - started))
            if fitting < budget:
                budget = fitting
                line = (
                    f"cases with a timeout of {duration_text(timeout)} had less time for their "
                    "rounds than --budget, because other programs may triple the rounds' time"
                )
                if line not in closing:
                    closing.append(line)
        return budget

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Suspend the time limits: the work inside is not the test's own."""
        self._cancel_faulthandler()
        if self.timer is None:
            yield
            return
        item, settings = self.timer
        self.config.hook.pytest_timeout_cancel_timer(item=item)
        try:
            yield
        finally:
            self.config.hook.pytest_timeout_set_timer(item=item, settings=settings)

    def lifted_for(self, fixture: str) -> ContextManager[None]:
        """Suspend the time limits while the first test waits for the device."""
        return self.lifted() if fixture == DEVICE else contextlib.nullcontext()


def fitting_budget(left: float) -> float:
    """Return the largest budget that fits into the ``left`` seconds of a test."""
    return max(LEAST_BUDGET, SHARE * (left - BESIDE_SECONDS))


def run_once(item: pytest.Item) -> None:
    """Keep pytest-rerunfailures from repeating a test, which would measure everything again."""
    if item.config.pluginmanager.hasplugin(RERUNS):
        item.add_marker(getattr(pytest.mark, MARKER)(reruns=0, condition=False), append=False)
