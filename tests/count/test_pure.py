"""Counts without a counter of the machine: their sequence, the rule, callgrind's files."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import pytest

from ipubench.plugins.compare.counting import joined
from ipubench.plugins.count import calls, judge, litter, perf
from ipubench.plugins.count.callgrind import functions_of, total_of
from ipubench.plugins.count.calls import EachCall, Uncountable, count_calls, why_not_alone
from ipubench.plugins.count.children import ChildError, counts_in_child
from ipubench.plugins.count.counter import Counter, Functions
from ipubench.plugins.record.count_text import count_text, instructions_text
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.structs import CountedCase
from ipubench.plugins.record.text import gate_limits
from ipubench.plugins.record.verdict import (
    IMPROVED,
    INCONCLUSIVE,
    NO_VERDICT,
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
    """Counts what the work needs, ``overhead`` for itself, and more in some states of memory."""

    def __init__(self, overhead: int = 5000, states: Sequence[int] = (0,)) -> None:
        self.overhead = overhead
        self.states = itertools.cycle(states)
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
        if self.done > before:
            self.done += next(self.states)
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


@pytest.mark.parametrize("each", [1000, 40_000, 9_000_000])
@pytest.mark.parametrize("states", [(0,), (10**6, 10**6, 0, 10**5), (0, 0, 10**6)])
def test_the_least_count_is_that_of_the_case(each: int, states: Tuple[int, ...]) -> None:
    machine = Machine(states=states)

    def run(number: int) -> None:
        machine.done += number * each

    counted = count_calls(machine, run, clock=lambda: 0.0)
    assert counted.per_call == each
    assert counted.functions == {"work": each}
    assert not machine.on


@pytest.mark.parametrize("first", [3_000_000, 1_500_000, 900_000, 1000, 1])
def test_counts_that_differ_a_little_make_the_same_calls(first: float) -> None:
    assert calls.calls_of(first) == calls.calls_of(1.08 * first)
    assert calls.calls_of(first) * 1.08 * first >= min(calls.TARGET, calls.MOST_CALLS * first)


def test_a_call_that_would_take_too_long_is_not_counted_again() -> None:
    machine, now = Machine(), 0.0

    def run(number: int) -> None:
        nonlocal now
        now += 20 * number
        machine.done += number

    with pytest.raises(Uncountable):
        count_calls(machine, run, clock=lambda: now, most_seconds=60)
    assert (len(machine.totals), machine.on) == (1, False)


@pytest.mark.parametrize(("seconds", "states"), [(0.0, 4), (0.001, 4), (8.0, 3), (12.0, 2)])
def test_a_long_call_is_counted_fewer_times(seconds: float, states: int) -> None:
    assert calls.states_within(60.0, seconds) == states


def test_work_that_takes_nothing_is_uncountable() -> None:
    with pytest.raises(Uncountable):
        count_calls(Machine(), lambda number: None, clock=lambda: 0.0)


@pytest.mark.parametrize(("rounds", "counted"), [(1, 1000), (2, 1000), (50, 1046)])
def test_of_calls_with_a_set_up_each_the_least_of_the_last_counts(
    rounds: int, counted: int
) -> None:
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


HOW: Mapping[str, Any] = {"by": "callgrind"}
TWICE = (1000.0, 1000.2, 1080.0)  # the least count was found twice; the third was an outlier


@pytest.mark.parametrize(
    ("before", "now", "threshold", "kind"),
    [
        (TWICE, (1000.1, 1000.1), 0.005, PASS),
        (TWICE, (1004.9, 1004.9), 0.005, PASS),
        (TWICE, (1080, 1000, 1000.1), 0.005, PASS),
        (TWICE, (1005.1, 1005.3), 0.005, REGRESSED),
        (TWICE, (1010, 1010), 0.02, PASS),
        (TWICE, (2000, 2000), 0.005, REGRESSED),
        (TWICE, (2000, 2060, 2100), 0.005, REGRESSED),  # far beyond what equal code differs by
        (TWICE, (1006, 1002, 1009), 0.005, INCONCLUSIVE),
        (TWICE, (1010,), 0.005, INCONCLUSIVE),
        ((1000, 1001), (1000.5, 1001.5), 0.005, PASS),  # all within the threshold
        ((1000, 1500, 2000), (1900, 2900), 0.005, INCONCLUSIVE),  # chance
        ((1000, 1003, 1007), (1000.9, 1004), 0.005, PASS),  # no count now is too large
        ((1000, 1003, 1007), (1000.9, 1006), 0.005, INCONCLUSIVE),
        (TWICE, (900, 900), 0.005, IMPROVED),
        (TWICE, (1010,), None, UNJUDGED),
    ],
)
def test_the_rule(
    before: Tuple[float, ...], now: Tuple[float, ...], threshold: Optional[float], kind: str
) -> None:
    found = judge.judge(_counts(before), _counts(now), threshold)
    assert found.kind == kind
    assert bool(found.reason) == (kind == INCONCLUSIVE)


def _counts(values: Tuple[float, ...]) -> Counts:
    return Counts(values, "", HOW)


@pytest.mark.parametrize(
    ("now", "more"),
    [
        ((1000.1, 1000.3), False),
        ((1000.1, 1080.0), True),  # found once
        ((1002, 1002), True),  # differs by more than a tenth of the threshold
        ((1010, 1010), True),  # a regression is counted again, too
    ],
)
def test_cases_whose_counts_differ_are_counted_again(now: Tuple[float, ...], more: bool) -> None:
    assert judge.needs_more(_counts(TWICE), _counts(now), 0.005) is more


@pytest.mark.parametrize("side", [0, 1])
def test_a_case_that_cannot_be_counted_never_passes(side: int) -> None:
    sides = [_counts(TWICE), _counts(TWICE)]
    sides[side] = Counts.of_processes([CountedCase(uncountable="several threads do its work")])
    found = judge.judge(sides[0], sides[1], 0.005)
    assert (found.kind, found.metrics) == (INCONCLUSIVE, [])
    assert "several threads" in found.reason
    assert not judge.needs_more(sides[0], sides[1], 0.005)
    timed = Verdict(PASS)
    assert joined(timed, found.kind, found.metrics, [found.reason]).kind == INCONCLUSIVE


def test_counts_of_another_counter_are_not_compared() -> None:
    other = Counts((1000,), "", {**HOW, "by": "perf"})
    assert judge.judge(_counts(TWICE), other, 0.005).kind == ""


def test_functions_that_grew_come_first() -> None:
    grown = judge.grown({"a": 100, "b": 500}, {"a": 300, "b": 500, "c": 400, "d": 90})
    assert [one.name for one in grown] == ["c", "a", "d"]


def test_a_record_keeps_counts() -> None:
    found = [CountedCase(1001.0, functions={"a": 4.0}), CountedCase(1000.0, functions={"a": 3.0})]
    counts = Counts.of_processes(found)
    assert (counts.value, counts.functions, counts.uncountable) == (1000.0, {"a": 3.0}, "")
    assert Counts.of_record(counts.for_record()) == counts
    assert Counts.of_processes([CountedCase(uncountable="random")]).uncountable == "random"
    assert Counts.of_processes([]).uncountable
    assert Counts.of_record(None) is None


IN_CHILD = """
import os, signal, sys
from types import SimpleNamespace
from ipubench.plugins.count.children import ChildError, counts_in_child

config = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=lambda name: None))
try:
    print("counted", counts_in_child(config, lambda: eval(sys.argv[1])))
except ChildError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("work", "text"),
    [
        ("True", "counted True"),
        ("False", "counted False"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os._exit(7)", "exit code 7"),
        ("sys.exit(7)", "exit code 1"),
    ],
)
def test_what_goes_wrong_in_a_child_ends_only_the_child(work: str, text: str) -> None:
    words = [sys.executable, "-c", IN_CHILD, work]
    assert text in subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode()


def test_a_child_that_cannot_be_made_has_a_reason(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    def fork() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(ChildError, match="Resource temporarily unavailable"):
        counts_in_child(pytestconfig, lambda: True)


def test_litter_has_objects_of_each_size_of_the_allocator() -> None:
    for size in range(litter.STEP, litter.LARGEST + 1, litter.STEP):
        make, argument = litter.maker(size)
        made = sys.getsizeof(make(argument))
        assert size - litter.STEP < made <= size


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
    counts = Counts((886_757.0,), "", HOW).for_record()
    verdict = Verdict(PASS, also=[JudgedMetric("instructions", PASS, change=0.0101)])
    assert instructions_text(counts, verdict) == "886.8k +1.01%"
    assert instructions_text(None, verdict) == ""
    counts = Counts((886_757.0, 888_530.0), "", HOW).for_record()
    assert instructions_text(counts, NO_VERDICT) == "886.8k ±0.2%"
