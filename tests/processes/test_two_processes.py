"""The run that has two processes alternate: its orders and its use of the replies."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from ipubench.fixtures.case.cases import case_key
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.plugins.gate.rounds import AdjacentRounds
from ipubench.plugins.processes import pair as processes
from ipubench.plugins.processes.guarded_pytest import USAGE_ERROR
from ipubench.plugins.processes.pair import (
    HERE,
    OTHER_CHECKOUT,
    THERE,
    TwoProcesses,
    UnfitError,
    both_started,
    steps_of,
    why_failed,
)
from ipubench.plugins.processes.remote_case import RemoteCase
from ipubench.plugins.record.structs import Benchmark, as_plain
from tests.support.stored import a_benchmark

#: The replies of each process in a test, and the order of the requests.
Asked = List[Tuple[str, str, Any]]


class Side:
    """A process that replies at once."""

    def __init__(self, name: str, asked: Asked, answers: Dict[str, Any], code: int = 0) -> None:
        self._name, self._asked, self._answers, self._code = name, asked, answers, code

    def command(self, order: str, argument: Any, seconds: float) -> List[Any]:
        self._asked.append((self._name, order, argument))
        answer = self._answers.get(order)
        if isinstance(answer, InstanceError):
            raise answer
        return [answer]

    def launch(self) -> None:
        self._asked.append((self._name, "launch", None))

    def wait_until_connected(self) -> None:
        self._asked.append((self._name, "wait", None))

    def stop(self) -> None:
        self._asked.append((self._name, "stop", None))

    def close(self) -> Optional[int]:
        return self._code


class Pair(TwoProcesses):
    """Two processes on a fake device; the one here takes twice as long."""

    def __init__(self, unfit: str = "", batches_there: int = 7) -> None:
        self.asked: Asked = []
        self.answers: Dict[str, Dict[str, Any]] = {
            HERE: {"prepare": {"batches": 3, "unfit": unfit}, "round": [0.2, 0.2, 0.0, 0.0]},
            THERE: {
                "prepare": {"batches": batches_there, "unfit": ""},
                "round": [0.1, 0.05, None, 0.0],
            },
        }
        sides: Any = {name: Side(name, self.asked, given) for name, given in self.answers.items()}
        super().__init__("fake", lambda text: None, sides, 1.0)

    def orders(self) -> List[Tuple[str, str]]:
        """Return the orders so far and clear them."""
        found = [(name, order) for name, order, _ in self.asked]
        self.asked.clear()
        return found


def test_both_start_in_parallel_and_always_end() -> None:
    pair = Pair()
    with pytest.raises(KeyboardInterrupt), pair:
        pair.launch(here_first=False)
        assert pair.orders() == [(n, order) for order in ("launch", "wait") for n in (THERE, HERE)]
        raise KeyboardInterrupt
    assert sorted(pair.orders()) == [(HERE, "stop"), (THERE, "stop")]


def test_both_processes_use_the_larger_number_of_batches() -> None:
    pair = Pair()
    pair.launch(here_first=True)
    pair.asked.clear()
    pair.prepare(here_first=True)
    assert pair.asked[-2:] == [(HERE, "warm_up", [7, None]), (THERE, "warm_up", [7, None])]
    steps = ("prepare", "warm_up")
    assert pair.orders() == [(name, step) for step in steps for name in (HERE, THERE)]


@pytest.mark.parametrize(
    ("device", "alone", "one_cpu"),
    [
        ("cpu", (True, True), True),
        ("cpu", (True, False), False),  # a change from or to several threads must not be hidden
        ("ipu", (True, True), False),
    ],
)
def test_both_processes_take_turns_on_one_cpu_if_both_compute_in_one_thread(
    device: str, alone: Tuple[bool, bool], one_cpu: bool
) -> None:
    pair = Pair()
    pair.device = device
    for side, is_alone in zip((HERE, THERE), alone):
        pair.answers[side]["prepare"]["alone"] = is_alone
    pair.launch(here_first=True)
    pair.prepare(here_first=True)
    given = [argument for _, order, argument in pair.asked if order == "warm_up"]
    assert given == [[7, pair.cpu]] * 2
    assert (pair.cpu in os.sched_getaffinity(0)) == one_cpu


@pytest.mark.parametrize(("by_others", "is_fit"), [(0.0, True), (0.1, False)])
def test_rounds_on_one_cpu_are_unfit_if_other_threads_compute_later(
    by_others: float, is_fit: bool
) -> None:
    pair = Pair()
    for side in (HERE, THERE):
        pair.answers[side]["prepare"]["alone"] = True
    pair.answers[THERE]["round"] = [0.1, 0.1, None, by_others]
    pair.device = "cpu"
    pair.launch(here_first=True)
    pair.prepare(here_first=True)
    pair.measure(0.1, 0.01, 4)
    assert (pair.unfit == "") == is_fit


def test_both_processes_learn_that_calls_are_long() -> None:
    pair = Pair()
    pair.launch(here_first=True)
    pair.prepare(here_first=True, is_long=True)
    assert [argument for _, order, argument in pair.asked if order == "prepare"] == [True, True]


def test_a_step_that_cannot_alternate_in_one_process_is_refused() -> None:
    pair = Pair(unfit="its server")
    pair.launch(here_first=True)
    with pytest.raises(UnfitError, match="its server"):
        pair.prepare(here_first=True)


def test_both_orders_are_equally_frequent_and_rounds_belong_to_their_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = [(True, False), (False, True), (False, True), (True, False)]
    monkeypatch.setattr(processes, "random", SimpleNamespace(sample=lambda *_: drawn.pop(0)))
    pair = Pair()
    pair.launch(here_first=True)
    pair.asked.clear()
    rounds = pair.measure(budget=5.0, precision=0.01, steps=8)
    assert (rounds.here.seconds, rounds.there.seconds) == ([0.2] * 8, [0.1] * 8)
    assert rounds.here.cpu_seconds == [None] * 8  # not those of a fake device
    assert rounds.stopped_by == "steps"
    assert rounds.here_first == [True, False, True, False, False, True, False, True]
    assert len(rounds.comparable()) == len(rounds.here.lost) == 8
    assert [name == HERE for name, _ in pair.orders()[::2]] == rounds.here_first


@pytest.mark.parametrize(
    ("budget", "most", "count"), [(0.1, 0.25, 1), (0.1, 9.0, 2), (0.5, 9.0, 2), (0.7, 9.0, 4)]
)
def test_calls_beyond_the_budget_are_few(budget: float, most: float, count: int) -> None:
    """A round takes 0.2 s here and 0.1 s there."""
    pair = Pair()
    pair.launch(here_first=True)
    rounds = pair.measure(budget, 0.01, None, first=False, most=most)
    assert len(rounds.here_first) == count and rounds.here_first[0] is False


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return the requests to both processes of a measured case, given other replies."""
    found: Asked = []
    answers: Dict[str, Any] = {"prepare": {"batches": 1, "unfit": ""}}

    def directed(case: RemoteCase, name: str, _: Path) -> Side:
        items = 8.0 if name == HERE else 4.0
        record = as_plain(a_benchmark([1.0], items))
        given = {**answers, "record": record, **OTHERS.get(name, {})}
        return Side(name, found, given, given.get("code", 0))

    monkeypatch.setattr(RemoteCase, "directed", directed)
    monkeypatch.setattr(RemoteCase, "most_seconds", 1.0)
    monkeypatch.setattr(processes, "running_on", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(sys.modules[__name__], "OTHERS", {})
    return found


#: Another reply of a process, and its exit code.
OTHERS: Dict[str, Dict[str, Any]] = {}


def benchmarks(here_first: bool, rounds: AdjacentRounds) -> List[Benchmark]:
    """Return the benchmarks of a pair that has alternated."""
    run: Any = SimpleNamespace(cpus=frozenset())
    case = RemoteCase(run, "bench.py::a")
    with both_started(case, case, here_first, "fake", lambda text: None) as pair:
        found: List[Benchmark] = pair.benchmarks(rounds, here_first)
        pair.end()
        return found


def test_both_record_the_stop_reason_in_the_order_of_the_pair(asked: Asked) -> None:
    rounds = AdjacentRounds(stopped_by="precision")
    here, there = benchmarks(False, rounds)
    recorded = [(name, argument) for name, order, argument in asked if order == "record"]
    assert recorded == [(THERE, "precision"), (HERE, "precision")]
    assert (rounds.items_here, rounds.items_there) == (8.0, 4.0)
    assert here.record.items_per_round == 8.0 and there != here
    assert {name for name, order, _ in asked if order == "stop"} == {HERE, THERE}


@pytest.mark.parametrize("name", [HERE, THERE])
def test_a_process_with_modules_of_another_checkout_is_refused(name: str, asked: Asked) -> None:
    OTHERS[name] = {"code": USAGE_ERROR}
    with pytest.raises(InstanceError, match=OTHER_CHECKOUT) as caught:
        benchmarks(True, AdjacentRounds(stopped_by="steps"))
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("said", "lines", "why"),
    [
        ("no layer", ["refused: x"], "no layer"),
        ("", ["refused: x is of another checkout !", "end"], "refused: x is of another checkout"),
        ("", [], "it was killed"),
    ],
)
def test_the_reason_of_a_failure_comes_from_the_process(
    said: str, lines: List[str], why: str
) -> None:
    error = InstanceError("all of it", "it was killed", THERE, said, lines)
    assert why_failed(error) == why


@pytest.mark.parametrize(
    ("overrides", "asked", "steps"),
    [((), 7, None), (("steps",), 1, 4), (("steps",), 7, 7)],
)
def test_a_few_rounds_suffice_for_a_statement(
    overrides: Tuple[str, ...], asked: int, steps: Optional[int]
) -> None:
    case = SimpleNamespace(overrides=overrides, config=SimpleNamespace(steps=asked))
    item: Any = SimpleNamespace(stash={case_key: case})
    assert steps_of(item) == steps
    assert steps_of(SimpleNamespace(stash={})) is None  # type: ignore[arg-type]
