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
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Tuple

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.arguments import is_worker
from ipubench.plugins.record.text import duration_text

#: Rounds get this share of the time that is left to a test, less what a case takes beside them:
#: other programs may stretch them three times (plugins/measure/disturbance.py), after a warm-up.
SHARE, BESIDE_SECONDS = 0.25, 1.0
#: No case gets less.
LEAST_BUDGET = 0.1
#: pytest-rerunfailures, as a plugin and as a marker.
RERUNS, MARKER = "rerunfailures", "flaky"
#: The fixture that waits for a device which another run has.
DEVICE = "ipubench_device"

#: The timeouts of a test.
TIMEOUT, FAULTHANDLER = "timeout", "faulthandler"


class Bounds:
    """The bounds of the test that runs, and what lifts them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        #: Whether a run has started this process, which a worker's own variables would hide.
        inherits = devices.borrows() and not is_worker(config)
        self.started = inherits or options_of(config).instance is not None
        #: The timer of pytest-timeout that runs: its test and its settings.
        self.timer: Optional[Tuple[pytest.Item, Any]] = None
        #: The timeout of the test and when it began, of pytest-timeout and of faulthandler.
        self.timeouts: Dict[str, Tuple[float, float]] = {}

    def set_timer(self, item: pytest.Item, settings: Any) -> Optional[bool]:
        """Note the timer of pytest-timeout; in a process that a run has started, set none."""
        if self.started:
            return True
        self.timer = (item, settings)
        self.timeouts[TIMEOUT] = (settings.timeout, time.monotonic())
        return None

    def cancel_timer(self) -> None:
        """Note that there is no timer any more."""
        self.timer = None
        self.timeouts.pop(TIMEOUT, None)

    def begin(self, item: pytest.Item) -> None:
        """In a process that a run has started, lift pytest's own bound, and run no test twice."""
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
        """Return the budget of a case, less if its test's timeout has no room for it.

        ``closing`` gets a line that says so.
        """
        budget = float(options_of(self.config).budget)
        now = time.monotonic()
        for timeout, started in self.timeouts.values():
            fitting = fitting_budget(timeout - (now - started))
            if fitting < budget:
                budget = fitting
                line = (
                    f"cases with a timeout of {duration_text(timeout)} had less time for their "
                    "rounds than --budget: other programs may stretch rounds three times"
                )
                if line not in closing:
                    closing.append(line)
        return budget

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Let what happens inside take its time: it is not the test's own."""
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
        """Let the first test wait for the device."""
        return self.lifted() if fixture == DEVICE else contextlib.nullcontext()


def fitting_budget(left: float) -> float:
    """Return the largest budget for which a test has time that has ``left`` seconds."""
    return max(LEAST_BUDGET, SHARE * (left - BESIDE_SECONDS))


def run_once(item: pytest.Item) -> None:
    """Have pytest-rerunfailures not run a test again, which would measure everything again."""
    if item.config.pluginmanager.hasplugin(RERUNS):
        item.add_marker(getattr(pytest.mark, MARKER)(reruns=0, condition=False), append=False)
