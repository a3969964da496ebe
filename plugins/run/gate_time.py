"""Implements `--gate-time`, which limits the time of all measurements for a comparison."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Iterator, Optional, Sequence

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.arguments import worker_count, workers_in_turns
from ipubench.plugins.selection.selected import case_of


class GateTime:
    """The rest of ``--gate-time``, which the cases that have not ended share."""

    def __init__(self, seconds: Optional[float] = None, cases: int = 0) -> None:
        """``seconds``: None for no limit. ``cases``: the number of cases that share them."""
        self.left = math.inf if seconds is None else seconds
        #: The number of cases that have not ended, including those that are compared now.
        self.cases = cases

    def share(self, number: int) -> float:
        """Return the seconds for the next ``number`` cases, with what earlier ones left over."""
        return self.left * number / max(self.cases, number)

    def end(self, number: int = 1) -> None:
        """Count down when cases end, measured or not."""
        self.cases -= number

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Subtract the time of a measurement, even if it fails."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.left -= time.monotonic() - started


def of_run(config: pytest.Config, items: Sequence[pytest.Item]) -> GateTime:
    """Return --gate-time, to be shared by the cases of this run or worker.

    Workers that take turns get equal parts. Cases that a resumed run has finished need none.
    """
    cases = sum(case_of(item) is not None for item in items)
    given = options_of(config).gate_time
    seconds = None if given is None else given / workers_in_turns(config)
    return GateTime(seconds, math.ceil(cases / worker_count(config)))
