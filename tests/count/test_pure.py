"""Counts without a counter of the machine: their sequence, the rule, callgrind's files."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import pytest

from ipubench.plugins.count import calls, judge, perf
from ipubench.plugins.count.callgrind import functions_of, total_of
from ipubench.plugins.count.calls import EachCall, Uncountable, count_calls, why_not_alone
from ipubench.plugins.count.counter import Counter, Functions
from ipubench.plugins.count.judge import SUSPECT
from ipubench.plugins.count.show import count_text, instructions_text
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.structs import CountedCase
from ipubench.plugins.record.text import gate_limits
from ipubench.plugins.record.verdict import (
    IMPROVED,
    PASS,
    REGRESSED,
    UNJUDGED,
    JudgedMetric,
    Verdict,
)

DUMP = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
part: 2

desc: Trigger: Client Request

positions: line
events: Ir
summary: 0

ob=(1) /usr/lib/libpython3.11.so
fl=(1) Objects/listobject.c
fn=(10) list_sort_impl
25 16
+5 19
* 1
cob=(2) /usr/lib/libc.so.6
cfi=(3) string/memcpy.S
cfn=(20) memcpy
calls=3 12
+2 900
-1 4

fn=(11) list_sort_impl'2
25 100

fl=(3)
fn=(20)
167 300
fn=(30) eval
1 60

totals: 500
"""


class Machine(Counter):
    """Counts what the work says that it takes, and as much as ``overhead`` for itself."""

    def __init__(self, overhead: int = 5000) -> None:
        self.overhead = overhead
        self.done = 0
        self.totals: List[int] = []
        self.on = False

    def start(self) -> None:
        self.on = True

    def stop(self) -> None:
        self.on = False

    def count(self, run: Callable[[], Any]) -> int:
        assert self.on
        before = self.done
        run()
        self.totals.append(self.done - before + self.overhead)
        return len(self.totals) - 1

    def total(self, number: int) -> float:
        return float(self.totals[number])

    def functions(self, number: int) -> Functions:
        return {"work": self.total(number) - self.overhead, "counting": float(self.overhead)}

    def describe(self) -> Dict[str, Any]:
        return {"by": "the test"}


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


@pytest.fixture(autouse=True)
def _no_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work of the machine must not decide."""
    monkeypatch.setattr(calls, "working_alone", _nothing)
    monkeypatch.setattr(calls, "freeze_garbage", lambda: None)


@pytest.mark.parametrize("each", [100, 40_000, 9_000_000])
def test_a_call_has_what_n_more_of_them_add(each: int) -> None:
    machine = Machine()

    def run(number: int) -> None:
        machine.done += number * each

    counted = count_calls(machine, run, clock=lambda: 0.0)
    assert counted.per_call == each
    assert counted.functions == {"work": each}
    assert not machine.on


def test_a_call_that_would_take_too_long_is_not_counted_again() -> None:
    machine, now = Machine(), 0.0

    def run(number: int) -> None:
        nonlocal now
        now += 20 * number
        machine.done += number

    with pytest.raises(Uncountable):
        count_calls(machine, run, clock=lambda: now, most_seconds=60)
    assert (len(machine.totals), machine.on) == (1, False)


def test_work_that_takes_nothing_is_uncountable() -> None:
    with pytest.raises(Uncountable):
        count_calls(Machine(), lambda number: None, clock=lambda: 0.0)


@pytest.mark.parametrize(("rounds", "counted"), [(1, 1000), (2, 1001), (50, 1049)])
def test_of_calls_with_a_set_up_each_the_last_one_counts(rounds: int, counted: int) -> None:
    machine = Machine()
    each = EachCall(machine, rounds)
    results = []
    for number in range(rounds):
        machine.done += 10**9  # the set-up

        def call(number: int = number) -> int:
            machine.done += 1000 + number
            return number

        results.append(each(call))
    assert results == list(range(rounds))
    assert each.counted().per_call == counted


@pytest.mark.parametrize(
    ("own", "children", "threads", "alone"),
    [
        (1.0, 0.0, [1.0], True),
        (1.0, 0.0, [0.01, 0.99], True),
        (1.0, 0.0, [0.5, 0.5], False),
        (1.0, 0.0, [0.4], False),  # threads that have ended did the rest
        (1.0, 0.5, [1.0], False),
        (0.001, 0.002, [0.001], True),  # too little to tell
    ],
)
def test_who_did_the_work(own: float, children: float, threads: List[float], alone: bool) -> None:
    assert (why_not_alone(own, children, threads) == "") == alone


def test_a_dump_has_the_instructions_of_each_function_without_those_it_calls() -> None:
    assert total_of(DUMP) == 500
    assert functions_of(DUMP) == {"list_sort_impl": 140, "memcpy": 300, "eval": 60}


HOW: Mapping[str, Any] = {"by": "callgrind", "after": "x"}


@pytest.mark.parametrize(
    ("before", "now", "threshold", "kind"),
    [
        ((1000, 1000.2), (1000.1,), 0.005, PASS),
        ((1000,), (1004.9,), 0.005, PASS),
        ((1000,), (1005.1,), 0.005, SUSPECT),
        ((1000,), (1010, 1010), 0.005, REGRESSED),
        ((1000,), (1010, 1010), 0.02, PASS),
        ((1000,), (1006, 1004.9), 0.005, PASS),  # the second process does not confirm it
        ((1000, 1004), (1005.5, 1005.5), 0.001, PASS),  # within its own spread
        ((1000,), (900, 900), 0.005, IMPROVED),
        ((1000,), (1010,), None, UNJUDGED),
        ((1000,), (1010, 1000), 0.005, ""),  # differs between processes
        ((1000, 1010), (1010,), 0.005, ""),
        ((1000,), (), 0.005, ""),
    ],
)
def test_the_rule(
    before: Tuple[float, ...], now: Tuple[float, ...], threshold: Optional[float], kind: str
) -> None:
    found = judge.judge(Counts(before, how=HOW), Counts(now, how=HOW), threshold)
    assert found.kind == kind
    assert bool(found.reason) == (kind == "")


def test_counts_of_another_counter_are_not_compared() -> None:
    other = Counts((1000,), how={**HOW, "by": "perf"})
    assert judge.judge(Counts((1000,), how=HOW), other, 0.005).kind == ""


def test_counts_made_after_other_cases_may_differ_by_more() -> None:
    before, how = Counts((1000,), how=HOW), {**HOW, "after": "y"}
    assert judge.judge(before, Counts((1006, 1006), how=how), 0.005).kind == PASS
    assert judge.judge(before, Counts((1010, 1010), how=how), 0.005).kind == REGRESSED


def test_functions_that_grew_come_first() -> None:
    grown = judge.grown({"a": 100, "b": 500}, {"a": 300, "b": 500, "c": 400, "d": 90})
    assert [one.name for one in grown] == ["c", "a", "d"]


def test_a_record_keeps_counts() -> None:
    found = [CountedCase(1000.0, how=HOW, functions={"a": 3.0}), CountedCase(1001.0)]
    counts = Counts.of_processes(found)
    assert Counts.of_record(counts.for_record()) == counts
    assert counts.uncountable == ""
    assert Counts.of_processes([CountedCase(uncountable="random")]).uncountable == "random"
    assert Counts.of_record(None) is None


def test_a_unit_that_others_use_too_counts_a_part_of_the_time() -> None:
    try:  # no machine of a test needs a unit of instructions: page faults are counted alike
        unit = perf.PerformanceUnit(perf.SOFTWARE, perf.PAGE_FAULTS)
    except OSError as error:
        pytest.skip(f"the system allows no perf_event_open here: {error}")
    few = unit.count(lambda: bytearray(1 << 20))
    many = unit.count(lambda: bytearray(64 << 20))
    unit.stop()
    assert unit.total(many) >= unit.total(few)
    assert unit.multiplexed() == 0.0


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("2%", (0.02, None, None)),
        ("instructions:1%", (None, 0.01, None)),
        ("2%,instructions:1%", (0.02, 0.01, None)),
        ("energy:5%,2%", (0.02, None, 0.05)),
    ],
)
def test_what_the_gate_allows(text: str, limits: Tuple[Optional[float], ...]) -> None:
    assert gate_limits(text) == pytest.approx(limits)


def test_how_a_count_is_shown() -> None:
    texts = ("999", "1k", "886.8k", "5.246G")
    assert tuple(map(count_text, (999, 1000, 886_757, 5_246_129_491))) == texts
    counts = Counts((886_757.0,), how=HOW).for_record()
    verdict = Verdict(PASS, also=[JudgedMetric("instructions", PASS, change=0.0101)])
    assert instructions_text(counts, verdict) == "886.8k +1.01%"
    assert instructions_text(None, verdict) == "-"
