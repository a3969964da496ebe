"""The loop of all comparisons, with cases whose needs and runners whose times a test gives."""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Tuple

import pytest

from ipubench.plugins.compare import loop
from ipubench.plugins.compare.loop import settle
from ipubench.plugins.gate.decision import TIME_OVER, Decision, Need
from ipubench.plugins.record.verdict import INCONCLUSIVE, PASS, Verdict
from ipubench.plugins.run import gate_time
from ipubench.plugins.run.gate_time import GateTime

TOGETHER, ALONE = Need(pairs=1), Need(pairs=1, alone=True)


class Waiting:
    """A case that has its needs one after the other, and then a verdict."""

    def __init__(self, name: str, *needs: Need, can_share: bool = True) -> None:
        self.name, self.can_share, self._needs = name, can_share, list(needs)
        self.kind = ""

    @property
    def is_open(self) -> bool:
        return not self.kind

    def decide(self) -> Optional[Decision]:
        if self._needs:
            return self._needs[0]
        self.kind = PASS
        return Verdict(PASS)

    def conclude(self, reasons: Sequence[str]) -> None:
        assert list(reasons) == [TIME_OVER]
        self.kind = INCONCLUSIVE

    @property
    def left(self) -> int:
        """The number of measurements that it needs."""
        return len(self._needs)

    def measured(self) -> None:
        """Take a measurement."""
        del self._needs[0]


class Clock:
    """A runner that takes a second for each case."""

    def __init__(self) -> None:
        self.now = 0.0
        self.batches: List[str] = []
        self.stopped: Optional[Tuple[int, float]] = None

    def seconds(self, cases: Sequence[Waiting], need: Need) -> float:
        return float(len(cases))

    def seconds_left(self, cases: Sequence[Waiting], need: Need) -> float:
        return float(sum(case.left for case in cases))

    def obtain(self, cases: Sequence[Waiting], need: Need) -> None:
        self.batches.append("".join(case.name for case in cases))
        self.now += len(cases)
        for case in cases:
            case.measured()

    def show(self, cases: Sequence[Waiting], waiting: Mapping[Waiting, Need], left: float) -> None:
        """Show nothing."""

    def stop(self, cases: Sequence[Waiting], need: Need, left: float) -> None:
        self.stopped = (len(cases), left)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a runner whose time the loop reads."""
    runner = Clock()
    for module in (loop, gate_time):
        monkeypatch.setattr(module.time, "monotonic", lambda: runner.now)
    return runner


def settled(clock: Clock, seconds: Optional[float], *cases: Waiting) -> Tuple[List[str], str]:
    """Return the batches, and the first letters of the kinds."""
    settle(GateTime(seconds, len(cases)), cases, clock)
    return clock.batches, "".join(case.kind[0] for case in cases)


def test_cases_are_measured_together_until_each_is_decided(clock: Clock) -> None:
    cases = Waiting("a", TOGETHER), Waiting("b", TOGETHER, TOGETHER), Waiting("c")
    assert settled(clock, None, *cases) == (["ab", "b"], "ppp")


def test_a_suspect_comes_first_and_what_others_may_not_share_last(clock: Clock) -> None:
    cases = (
        Waiting("a", ALONE, ALONE),
        Waiting("b", TOGETHER, ALONE),
        Waiting("c", TOGETHER, can_share=False),
        Waiting("d", Need(processes=1), Need(processes=1)),
        Waiting("e", TOGETHER, TOGETHER),
    )
    found = ["a", "a", "be", "b", "e", "c", "d", "d"]
    assert settled(clock, None, *cases) == (found, "ppppp")


def test_counts_and_pairs_are_obtained_apart(clock: Clock) -> None:
    count = Need(counts=2)
    cases = Waiting("a", count, TOGETHER), Waiting("b", TOGETHER, count), Waiting("c", count)
    batches, kinds = settled(clock, None, *cases)
    assert kinds == "ppp" and all(len(set(batch)) == len(batch) for batch in batches)
    assert batches == ["ac", "ab", "b"]


def test_a_decided_case_leaves_its_time_to_the_open_ones(clock: Clock) -> None:
    """Of 12 seconds for three cases the open one uses eight."""
    cases = Waiting("a", TOGETHER), Waiting("b", TOGETHER), Waiting("c", *[TOGETHER] * 10)
    batches, kinds = settled(clock, 12.0, *cases)
    assert (batches, kinds) == (["abc", *["c"] * 9], "ppp")


def test_the_loop_ends_before_the_time_is_over(clock: Clock) -> None:
    cases = Waiting("a", TOGETHER), Waiting("b", *[TOGETHER] * 3)
    assert settled(clock, 3.5, *cases) == (["a", "b", "b"], "pi")
    assert clock.now == 3.0
    assert clock.stopped == (1, 0.5)


def test_as_many_cases_as_the_time_allows_are_decided(clock: Clock) -> None:
    """Three cases need eleven seconds, of which seven are left: enough for two of them."""
    cases = [Waiting(name, *[TOGETHER] * n) for name, n in (("a", 5), ("b", 3), ("c", 3))]
    assert settled(clock, 7.0, *cases) == (["bc", "bc", "bc", "a"], "ipp")


def test_a_case_is_measured_while_the_time_allows_it(clock: Clock) -> None:
    """Its verdict may need less than it seems."""
    cases = [Waiting(name, *[TOGETHER] * 9) for name in "ab"]
    assert settled(clock, 5.0, *cases) == (["ab", "ab", "a"], "ii")


def test_cases_that_come_later_keep_their_share(clock: Clock) -> None:
    time = GateTime(10.0, cases=5)
    slow = Waiting("a", *[TOGETHER] * 9)
    settle(time, [slow], clock)
    assert (clock.batches, slow.kind, time.left) == (["a", "a"], INCONCLUSIVE, 8.0)
