"""`--against=PYTHON`: is this environment slower than another one?

Each case is measured in turns here and with the other interpreter, always in a fresh process, in
pairs AB, BA, AB, ... until the verdict is clear or ``--gate-cap`` pairs are measured (see
plugins/gate/paired.py). The other environment is what was before, this one is now.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Callable, Dict, List

import pytest

from ipubench.plugins.command_line.words import only_lists
from ipubench.plugins.compare.policy import thresholds_of
from ipubench.plugins.gate import paired
from ipubench.plugins.gate.paired import Benchmark, Sides
from ipubench.plugins.processes.fresh import FreshError, measure_again
from ipubench.plugins.processes.other_python import Environment, find
from ipubench.plugins.record import host_process
from ipubench.plugins.record.verdict import INCOMPARABLE, Verdict
from ipubench.plugins.run.results import run_key, selected
from ipubench.plugins.run.resume import depends_on


@dataclass
class Against:
    """The other environment, and how a case is compared with it."""

    config: pytest.Config
    environment: Environment

    @classmethod
    def start(cls, config: pytest.Config) -> Against:
        """Look at the other environment; UsageError where it cannot measure."""
        environment = find(config.option.against, config.rootpath)
        depends_on(config, "the other environment", json.dumps(environment.versions))
        return cls(config, environment)

    def judge(self, item: pytest.Item, progress: Callable[[str], None]) -> Verdict:
        """Measure a case in pairs and compare them.

        What this process measured is not compared: it has measured other cases before. A case that
        cannot run there is incomparable; one that no longer runs here raises FreshError.
        """
        thresholds = thresholds_of(item)
        cap = max(self.config.option.gate_cap, paired.LEAST_PAIRS)
        tests = len(selected(self.config)) * max(1, len(thresholds))
        level = paired.level_of_a_look(cap, tests)
        measured: List[Sides] = []
        for number in range(1, cap + 1):
            try:
                measured.append(self._pair(item.nodeid, number, cap, progress))
            except FreshError as error:
                if not error.elsewhere:
                    raise
                return Verdict(INCOMPARABLE, reasons=(f"it does not run there: {error.why}",))
            reasons = paired.incomparable(*measured[-1])
            if reasons:
                return Verdict(INCOMPARABLE, reasons=tuple(reasons))
            if number in paired.looks(cap):
                found = paired.compare(measured, thresholds, level)
                if all(map(paired.is_clear, found)):
                    break
        return paired.verdict_on_pairs(measured, found)

    def _pair(self, nodeid: str, number: int, cap: int, progress: Callable[[str], None]) -> Sides:
        found: Dict[bool, Benchmark] = {}
        for here in (True, False) if number % 2 else (False, True):
            where = "here" if here else "there"
            progress(f"pair {number} of {cap} at most, measuring {where}")
            elsewhere = None if here else self.environment
            found[here] = measure_again(self.config, nodeid, elsewhere)
        line = {"type": "pair", "case": nodeid, "here": found[True], "there": found[False]}
        self.config.stash[run_key].add(line)
        return found[True], found[False]


against_key = pytest.StashKey[Against]()


def pytest_configure(config: pytest.Config) -> None:
    """Look at the other environment before anything runs."""
    option = config.option
    if option.against is None:
        return
    for name in ("baseline", "profile", "instance"):
        if getattr(option, name) is not None:
            raise pytest.UsageError(
                f"--against measures what a case is compared with: leave out --{name}"
            )
    if not only_lists(config):
        config.stash[against_key] = Against.start(config)


def pytest_report_collectionfinish(config: pytest.Config) -> List[str]:
    """Say what is compared with what."""
    against = config.stash.get(against_key, None)
    if against is None:
        return []
    environment = against.environment
    return [f"against {environment.python}: {environment.changes(host_process.versions())}"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Say once more, below the verdicts, what they compare."""
    run = session.config.stash.get(run_key, None)
    against = session.config.stash.get(against_key, None)
    if run is not None and against is not None:
        changes = against.environment.changes(host_process.versions())
        run.closing.append(f"versions there and here: {changes}")
