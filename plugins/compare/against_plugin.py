"""Implements `--against=PYTHON` and `--against=git:REV`: compares with another environment.

Each case is measured in pairs of fresh processes, one here and one there, whose rounds alternate if
possible, until the verdict is clear or ``--gate-cap`` pairs are measured (see
plugins/gate/paired.py). The other side is "before", this one is "now".
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Callable, Dict, List, Sequence

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.arguments import only_lists, unknown_arguments
from ipubench.plugins.compare.fresh_processes import (
    UNKNOWN_TIME,
    seconds_of_fresh,
)
from ipubench.plugins.compare.policy import compared_extra_info, has_gate, thresholds_of
from ipubench.plugins.elsewhere.against import Against
from ipubench.plugins.elsewhere.alternating import (
    UnfitError,
    steps_of,
    taking_turns,
    why_not_alternating,
)
from ipubench.plugins.elsewhere.place import find, find_revision, python_of
from ipubench.plugins.elsewhere.remote_case import (
    NO_SUCH_CASE,
    FreshError,
    RemoteCase,
    why_not_there,
)
from ipubench.plugins.elsewhere.revision import PREFIX, is_this_checkout
from ipubench.plugins.gate import paired
from ipubench.plugins.gate.paired import Sides
from ipubench.plugins.gate.rule import TIME_OVER
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import percent, rate_text
from ipubench.plugins.record.verdict import EXIT_UNDECIDED, INCOMPARABLE, NEW, Verdict
from ipubench.plugins.run.lines import PairLine
from ipubench.plugins.run.progress import rough_duration
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run


def _other_side(run: Run, given: str) -> Against:
    """Return the other side. Raises UsageError if it cannot measure."""
    config, option, root = run.config, options_of(run.config), run.config.rootpath
    if given.startswith(PREFIX):
        setup, python = option.against_setup, option.against_python
        environment = find_revision(given, root, setup, python, config.add_cleanup)
        unknown = unknown_arguments(config, environment.options)
        if unknown:
            raise pytest.UsageError(
                f"--against={given}: the suite of that revision does not know "
                f"{unknown[0]}; leave it out"
            )
    else:
        environment = find(given, root)
    facts = dict(environment.versions)
    if environment.revision is not None:
        facts["commit"] = environment.revision.commit
    run.depends["the other environment"] = json.dumps(facts)
    return Against(root, environment)


def judge_against(run: Run, against: Against, item: pytest.Item, benchmark: Benchmark) -> Verdict:
    """Measure a case in pairs and return the verdict.

    The session's own measurement does not count, because it has measured other cases before. A
    case that cannot run there is incomparable, and one that is not there is new; one that no longer
    runs here raises FreshError.
    """
    try:
        return Comparison(run, against, item, benchmark).verdict()
    except FreshError as error:
        if not error.elsewhere:
            raise
        if error.why == NO_SUCH_CASE:
            return Verdict(NEW)
        return Verdict(INCOMPARABLE, reasons=(why_not_there(error.why, against.environment),))


class Comparison:
    """Measures and compares the pairs of one case."""

    def __init__(self, run: Run, against: Against, item: pytest.Item, benchmark: Benchmark) -> None:
        """``benchmark`` is the session's own measurement of the case."""
        self.name = benchmark.fullname
        self.run, self.against = run, against
        self.config = run.config
        self.item = item
        self.here = RemoteCase(run, item.nodeid)
        self.there = RemoteCase(run, item.nodeid, against.environment)
        self.thresholds = thresholds_of(run.policy, item)
        self.cap = max(options_of(self.config).gate_cap, paired.LEAST_PAIRS)
        self.measured: List[Sides] = []
        self.device = run.selection.device
        self.unfit = why_not_alternating(item, self.device, against.environment)
        self._time = run.gate_time
        # An estimate until the first pair: both sides take as long as the run's own process.
        self._expected = 2 * seconds_of_fresh(run)

    @property
    def usable(self) -> List[Sides]:
        """The pairs that can be compared."""
        return [sides for sides in self.measured if sides.usable]

    def verdict(self) -> Verdict:
        """Measure pairs until the verdict is clear; return it."""
        passed = self.run.screened.get(self.name)
        if passed is not None:
            for sides in passed.pairs:
                self._add(sides)
            return paired.verdict_on_pairs(passed.pairs, passed.found)
        tests = len(self.run.order) * max(1, len(self.thresholds))
        level = paired.level_of_a_look(self.cap, tests)
        reasons: List[str] = []
        case = case_of(self.item)
        name = case.id if case is not None else self.item.nodeid
        total = rough_duration(self._time.at_most(self.cap * self._expected))
        self.run.progress.line(
            f"  {name}: up to {self.cap} pairs, {self._expected:.0f} s each: {total} at most"
        )
        while len(self.measured) < self.cap:
            if paired.too_disturbed(len(self.usable), len(self.measured)):
                break
            if not self._time.allows(self._expected):
                reasons.append(TIME_OVER)
                break
            sides = self._pair()
            self.measured.append(sides)
            keys = compared_extra_info(self.run.policy)
            different = paired.incomparable(sides.here, sides.there, keys)
            if different:
                return Verdict(INCOMPARABLE, reasons=tuple(different))
            if sides.usable and len(self.usable) in paired.looks(self.cap):
                found = paired.compare(self.usable, self.thresholds, level)
                if all(map(paired.is_clear, found)):
                    break
        if self.unfit:
            self.against.not_alternated[self.unfit] += 1
        if not paired.can_compare([sides.here_first for sides in self.usable]):
            return paired.undecided(self.measured, reasons)
        found = paired.compare(self.usable, self.thresholds, level)
        reasons += paired.not_judged(found, self.thresholds)
        return paired.verdict_on_pairs(self.usable, found, reasons)

    def _pair(self) -> Sides:
        """Measure one pair."""
        usable, measured = (
            [sides.here_first for sides in some] for some in (self.usable, self.measured)
        )
        first = paired.here_is_next(usable, measured)
        with self._time.spending():
            sides = self._sides(first)
        self._expected = self._time.latest
        self._add(sides)
        self._report(sides)
        return sides

    def _add(self, sides: Sides) -> None:
        """Write a pair into the journal."""
        rounds = None if sides.rounds is None else sides.rounds.decided()
        line = PairLine(self.name, sides.here, sides.there, sides.here_first, rounds)
        self.run.add(line)

    def _sides(self, first: bool) -> Sides:
        """Measure a pair with alternating rounds or, if its step cannot, alternating processes."""
        if not self.unfit:
            try:
                return self._alternate(first)
            except UnfitError as error:
                self.unfit = str(error)
        return self._in_turns(first)

    def _report(self, sides: Sides) -> None:
        """Print a line on a pair."""
        here, there = sides.here.record.throughput, sides.there.record.throughput
        text = f"  {sides.here.record.name}: pair {len(self.measured) + 1}: "
        before, unit = rate_text(there.median), here.unit
        if sides.usable:
            # The change comes from adjacent rounds, so the medians may differ from it.
            (pair,) = paired.pairs_of([sides], THROUGHPUT)
            change = percent(math.expm1(-pair.difference), sign=True)
            text += f"{before} {unit} there, {change} here"
        else:
            text += f"{before} -> {rate_text(here.median)} {unit}, disturbed"
        self.run.progress.line(f"{text} ({self._expected:.0f} s)")

    def _show_phase(self, what: str) -> None:
        self.run.progress.phase(self._phase(what))

    def _show_estimate(self, text: Callable[[], str]) -> None:
        self.run.progress.estimate(lambda: self._phase(text()))

    def _phase(self, what: str) -> str:
        return f"pair {len(self.measured) + 1} of {self.cap} at most, {what}"

    def _alternate(self, first: bool) -> Sides:
        """Measure a pair whose rounds alternate."""
        option = options_of(self.config)
        with taking_turns(self.here, self.there, first, self.device, self._show_phase) as processes:
            processes.estimate = self._show_estimate
            self._show_phase("taking turns")
            rounds = processes.measure(option.budget, option.target_precision, steps_of(self.item))
            here, there = processes.benchmarks(rounds, first)
        return Sides(here, there, first, rounds)

    def _in_turns(self, first: bool) -> Sides:
        """Measure a pair of processes, one after the other."""
        found: Dict[bool, Benchmark] = {}
        for here in (first, not first):
            self._show_phase(f"measuring {'here' if here else 'there'}")
            case = self.here if here else self.there
            found[here] = case.measured(self.name)[self.name]
        return Sides(found[True], found[False], first)


def prepare_other_side(run: Run) -> None:
    """Check the options and the other side before anything runs."""
    config, option = run.config, options_of(run.config)
    for name in ("against_setup", "against_python"):
        given = option.against or ""
        if getattr(option, name) is not None and not given.startswith(PREFIX):
            raise pytest.UsageError(
                f"--{name.replace('_', '-')} is for the worktree of --against=git:REV"
            )
    if option.against is None:
        return
    for name in ("baseline", "profile", "instance"):
        if getattr(option, name) is not None:
            raise pytest.UsageError(
                f"--against cannot be combined with --{name}: leave out --{name}"
            )
    if only_lists(config):
        return
    same = compared_with_itself(config, option.against)
    if same and has_gate(config):
        pytest.exit(same, returncode=EXIT_UNDECIDED)
    if same:
        run.same = same
    else:
        run.against = _other_side(run, option.against)


def compared_with_itself(config: pytest.Config, given: str) -> str:
    """Return why the other side is the same as this one, or ''."""
    option, root = options_of(config), config.rootpath
    if not given.startswith(PREFIX):
        same = python_of(given) == os.path.abspath(sys.executable)
        what = "that is the interpreter of this run"
    else:
        another = option.against_setup is not None or option.against_python is not None
        same = not another and is_this_checkout(given, root)
        what = "that commit is checked out here, and no file of it has changed"
    return f"--against={given}: nothing is compared, because {what}" if same else ""


def comparison_lines(run: Run, items: List[pytest.Item]) -> List[str]:
    """Return what is compared with what, and how long that takes at most."""
    against = run.against
    if against is None:
        return [run.same] if run.same else []
    environment = against.environment
    given = options_of(run.config).against
    there = given if environment.revision is not None else environment.python
    cases = [item for item in items if case_of(item) is not None]
    timed = cases and not (run.counting is not None and run.counting.alone)
    time = [most_time(run.config, cases)] if timed else []
    return [f"against {there}: {against.description()}", *time]


def most_time(config: pytest.Config, cases: Sequence[pytest.Item]) -> str:
    """Return how many pairs the cases need and, if known, how long they take."""
    option = options_of(config)
    cap = max(option.gate_cap, paired.LEAST_PAIRS)
    most = f"up to {cap} pairs of processes for each of {counted(len(cases), 'case')}"
    first = paired.looks(cap)[0]
    least = f", only {first} if these are clear" if first < cap else ""
    limit = option.gate_time
    time = UNKNOWN_TIME if limit is None else f"{rough_duration(limit)} at most"
    return f"{most}{least}: {time}"


def add_closing_lines(run: Run) -> None:
    """Repeat below the verdicts what they compare and how."""
    against = run.against
    if run.same:
        run.closing.append(run.same)
    if run.journal is None or against is None:
        return
    if run.screening and not run.interrupted:
        run.closing.append(run.screening)
    for why, count in sorted(against.not_alternated.items()):
        cases = counted(count, "case")
        run.closing.append(
            f"{cases} measured in alternating processes, not in alternating rounds: {why}"
        )
    run.closing.append(f"versions there and here: {against.description()}")
