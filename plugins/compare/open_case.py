"""A case that waits for its verdict: what is known of it, and what it needs."""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.compare.baseline import processes_wanted, rule_of
from ipubench.plugins.compare.policy import compared_extra_info, thresholds_of
from ipubench.plugins.gate.countable import LEAST_FRESH
from ipubench.plugins.gate.decision import Decision, Need
from ipubench.plugins.gate.pairs import PairRule, conclude_pairs, decide_pairs
from ipubench.plugins.gate.saving import saving_need
from ipubench.plugins.gate.sides import Sides
from ipubench.plugins.gate.stored import conclude_stored, decide_stored
from ipubench.plugins.processes.pair import why_not_alternating
from ipubench.plugins.processes.remote_case import NO_SUCH_CASE, FreshError, why_not_there
from ipubench.plugins.record.record import THROUGHPUT, was_disturbed, with_processes
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.verdict import INCOMPARABLE, NEW, Verdict
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run


class OpenCase:
    """A case and its measurements, which are in the results of the run."""

    def __init__(
        self,
        run: Run,
        item: pytest.Item,
        name: str,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """``name``: a test may have several cases. ``release`` frees what another process needs."""
        self.run, self.item, self.name, self.release = run, item, name, release
        case = case_of(item)
        self.shown = case.id if case is not None and name == item.nodeid else name
        self.verdict: Optional[Verdict] = None
        #: Why a process of this side could not measure it.
        self.error: Optional[FreshError] = None
        #: Whether its test must run first, because pairs measured nothing under its name.
        self.left = False
        #: Whether it has pairs of its own, because a case in its pair imported another checkout.
        self.apart = False
        against = run.against
        #: Why its rounds cannot alternate with those of the other side, or ''.
        self.unfit = (
            ""
            if against is None
            else why_not_alternating(item, run.selection.device, against.environment)
        )
        thresholds = thresholds_of(run.policy, item)
        keys = compared_extra_info(run.policy)
        cap, cases = options_of(run.config).gate_cap, max(1, len(run.order))
        self.pair_rule = PairRule(thresholds, cases, cap, keys)

    @property
    def is_open(self) -> bool:
        """Whether it waits for a verdict."""
        return self.verdict is None and self.error is None and not self.left

    @property
    def can_share(self) -> bool:
        """Whether other cases may run in its processes: only its throughput is compared."""
        return not self.unfit and not self.apart and set(self.pair_rule.thresholds) <= {THROUGHPUT}

    @property
    def fresh(self) -> Sequence[Benchmark]:
        """Its measurements in fresh processes of this side."""
        return self.run.results.fresh.get(self.name, ())

    @property
    def most_processes(self) -> int:
        """The number of fresh processes that it may need."""
        wanted = processes_wanted(self.run.config) - 1
        return wanted or max(options_of(self.run.config).gate_cap, LEAST_FRESH)

    @property
    def pairs(self) -> List[Sides]:
        """Its pairs so far."""
        return [
            Sides(line.here, line.there, bool(line.here_first), line.rounds, line.alone)
            for line in self.run.results.pairs.get(self.name, ())
        ]

    def decide(self) -> Optional[Decision]:
        """Keep and return the verdict, or return what it needs; None if nothing is compared."""
        found = self._more_processes() or self._decision()
        if isinstance(found, Verdict):
            self.verdict = found
        return found

    def conclude(self, reasons: Sequence[str]) -> None:
        """Keep the verdict if nothing more can be measured, for these ``reasons``."""
        run = self.run
        if run.against is not None:
            self.verdict = conclude_pairs(self.pairs, self.pair_rule, reasons)
        elif run.baseline is not None:
            now = self._now
            before = run.baseline.find(now)
            rule = rule_of(run, self.item)
            self.verdict = (
                Verdict(NEW) if before is None else conclude_stored(now, before, rule, reasons)
            )
        else:
            self.left = True

    def fails(self, error: FreshError) -> None:
        """Note that a process could not measure it; one elsewhere leaves nothing to compare."""
        if error.elsewhere and error.why == NO_SUCH_CASE:
            self.verdict = Verdict(NEW)
        elif error.elsewhere:
            assert self.run.against is not None
            why = why_not_there(error.why, self.run.against.environment)
            self.verdict = Verdict(INCOMPARABLE, reasons=(why,))
        else:
            self.error = error

    @property
    def _now(self) -> Benchmark:
        return with_processes(self.run.results.benchmarks[self.name], self.fresh)

    def _more_processes(self) -> Optional[Need]:
        """Return the need for more processes here, to save a baseline or for ``--processes``."""
        option, wanted = options_of(self.run.config), processes_wanted(self.run.config) - 1
        if option.baseline_save is not None:
            return saving_need([not was_disturbed(one.record) for one in self.fresh], wanted)
        return Need(processes=1) if len(self.fresh) < wanted else None

    def _decision(self) -> Optional[Decision]:
        run = self.run
        if run.against is not None:
            return decide_pairs(self.pairs, self.pair_rule)
        if run.baseline is None:
            return None
        now = self._now
        before = run.baseline.find(now)
        return (
            Verdict(NEW) if before is None else decide_stored(now, before, rule_of(run, self.item))
        )
