"""The run that has two processes take turns: its orders, what it makes of the answers."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, ContextManager, Dict, List, Optional, Tuple

import pytest

from ipubench.fixtures.case.cases import case_key
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.plugins.gate.adjacent import AdjacentRounds
from ipubench.plugins.processes import alternating as processes
from ipubench.plugins.processes.alternating import (
    HERE,
    THERE,
    AlternatingProcesses,
    TwoProcesses,
    UnfitError,
    steps_of,
)
from ipubench.plugins.processes.fresh import FreshError
from ipubench.plugins.processes.only_from import USAGE_ERROR

#: What each side of a test answers, and in which order they were asked.
Asked = List[Tuple[str, str, Any]]


class Side:
    """A process that answers at once."""

    def __init__(self, name: str, asked: Asked, answers: Dict[str, Any], code: int = 0) -> None:
        self._name, self._asked, self._answers, self._code = name, asked, answers, code

    def order(self, order: str, argument: Any, seconds: float) -> List[Any]:
        self._asked.append((self._name, order, argument))
        answer = self._answers.get(order)
        if isinstance(answer, InstanceError):
            raise answer
        return [answer]

    def launch(self) -> None:
        self._asked.append((self._name, "launch", None))

    def meet(self) -> None:
        self._asked.append((self._name, "meet", None))

    def stop(self) -> None:
        self._asked.append((self._name, "stop", None))

    def close(self) -> Optional[int]:
        return self._code


class Pair(TwoProcesses):
    """Two sides of a fake device, of which the one here takes twice as long."""

    def __init__(self, unfit: str = "") -> None:
        super().__init__("fake", lambda text: None)
        self.asked: Asked = []
        self.answers: Dict[str, Dict[str, Any]] = {
            HERE: {"prepare": {"batches": 3, "unfit": unfit}, "round": 0.2},
            THERE: {"prepare": {"batches": 7, "unfit": ""}, "round": 0.1},
        }

    def _process(self, name: str) -> Any:
        return Side(name, self.asked, self.answers[name])

    def _most_seconds(self) -> float:
        return 1.0

    def _blaming(self, name: str) -> ContextManager[None]:
        return contextlib.nullcontext()

    def orders(self) -> List[Tuple[str, str]]:
        """Return the orders so far, and forget them."""
        found = [(name, order) for name, order, _ in self.asked]
        self.asked.clear()
        return found


def test_both_start_side_by_side_and_end_however_it_went() -> None:
    pair = Pair()
    with pytest.raises(KeyboardInterrupt), pair:
        pair.launch(here_first=False)
        assert pair.orders() == [(n, order) for order in ("launch", "meet") for n in (THERE, HERE)]
        raise KeyboardInterrupt
    assert sorted(pair.orders()) == [(HERE, "stop"), (THERE, "stop")]


def test_the_larger_number_of_batches_is_a_round_on_both_sides() -> None:
    pair = Pair()
    pair.launch(here_first=True)
    pair.asked.clear()
    pair.prepare(here_first=True)
    assert pair.asked[-2:] == [(HERE, "warm_up", 7), (THERE, "warm_up", 7)]
    steps = ("ready", "prepare", "warm_up")
    assert pair.orders() == [(name, step) for step in steps for name in (HERE, THERE)]


def test_a_step_that_cannot_take_turns_on_one_side_is_refused() -> None:
    pair = Pair(unfit="its server takes the times")
    pair.launch(here_first=True)
    with pytest.raises(UnfitError, match="its server takes the times"):
        pair.prepare(here_first=True)


def test_each_order_of_the_sides_comes_as_often_and_rounds_are_those_of_their_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = [(True, False), (False, True), (False, True), (True, False)]
    monkeypatch.setattr(processes, "random", SimpleNamespace(sample=lambda *_: drawn.pop(0)))
    pair = Pair()
    pair.launch(here_first=True)
    pair.asked.clear()
    rounds = pair.measure(budget=5.0, precision=0.01, steps=8)
    assert (rounds.here.seconds, rounds.there.seconds) == ([0.2] * 8, [0.1] * 8)
    assert rounds.stopped_by == "steps"
    assert rounds.here_first == [True, False, False, True, False, True, True, False]
    assert len(rounds.comparable()) == len(rounds.here.lost) == 8
    assert [name == HERE for name, _ in pair.orders()[::2]] == rounds.here_first


def alternating(codes: Dict[str, int]) -> Tuple[AlternatingProcesses, Asked]:
    """Return the processes of a case that have measured, and what they are asked."""
    config: Any = SimpleNamespace(option=SimpleNamespace(budget=5.0, wait_for_quiet=None), stash={})
    elsewhere: Any = None
    pair = AlternatingProcesses("fake", lambda text: None, config, "bench.py::a", elsewhere)
    asked: Asked = []
    for name, items in ((HERE, 8.0), (THERE, 4.0)):
        record = {"extra_info": {"ipubench": {"items_per_round": items}}}
        pair._sides[name] = Side(name, asked, {"record": record}, codes.get(name, 0))  # type: ignore[assignment]
    return pair, asked


def test_both_record_what_ended_the_rounds_in_the_order_of_the_pair() -> None:
    pair, asked = alternating({})
    rounds = AdjacentRounds(stopped_by="precision")
    here, there = pair.benchmarks(rounds, here_first=False)
    assert asked[0] == (THERE, "record", "precision") and asked[2][:2] == (HERE, "record")
    assert (rounds.items_here, rounds.items_there) == (8.0, 4.0)
    assert here.extra_info.ipubench.items_per_round == 8.0 and there != here


@pytest.mark.parametrize("name", [HERE, THERE])
def test_a_side_with_modules_of_another_checkout_is_refused(name: str) -> None:
    pair, _ = alternating({name: USAGE_ERROR})
    with pytest.raises(FreshError, match="modules of another checkout were imported") as caught:
        pair.benchmarks(AdjacentRounds(stopped_by="steps"), here_first=True)
    assert caught.value.elsewhere == (name == THERE)


@pytest.mark.parametrize(
    ("why", "message", "said"),
    [
        ("the process there (process 7): no layer\nmore", "", "no layer"),
        (
            "the process there ended before it had begun",
            "it ended; its last lines:\n  refused: x is of another checkout !\n  end",
            "refused: x is of another checkout",
        ),
        ("the process there was killed", "it was killed", "the process there was killed"),
    ],
)
def test_why_a_side_failed_is_what_it_said_itself(why: str, message: str, said: str) -> None:
    pair, asked = alternating({})
    failed = Side(THERE, asked, {"record": InstanceError(message or why, why)})
    pair._sides[THERE] = failed  # type: ignore[assignment]
    with pytest.raises(FreshError) as caught:
        pair.benchmarks(AdjacentRounds(stopped_by="steps"), here_first=True)
    assert (caught.value.why, caught.value.elsewhere) == (said, True)
    assert str(caught.value) == f"bench.py::a could not be measured in turns: {message or why}"


@pytest.mark.parametrize(
    ("overrides", "asked", "steps"),
    [((), 7, None), (("steps",), 1, 4), (("steps",), 7, 7)],
)
def test_a_few_rounds_are_as_many_as_can_say_anything(
    overrides: Tuple[str, ...], asked: int, steps: Optional[int]
) -> None:
    case = SimpleNamespace(overrides=overrides, config=SimpleNamespace(steps=asked))
    item: Any = SimpleNamespace(stash={case_key: case})
    assert steps_of(item) == steps
    assert steps_of(SimpleNamespace(stash={})) is None  # type: ignore[arg-type]
