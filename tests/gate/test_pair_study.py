"""The study of pairs that took turns: its own arithmetic, on pools that it need not measure."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from ipubench.plugins.gate import paired
from ipubench.plugins.gate.adjacent import AdjacentRounds, Side
from ipubench.plugins.processes.alternating import HERE, THERE
from ipubench.plugins.record.verdict import INCONCLUSIVE, PASS, REGRESSED
from scripts.gate_study import pairs
from scripts.gate_study.collect import CASES, passes_within
from scripts.gate_study.collect_pairs import PoolPair, in_some_order
from scripts.gate_study.pair_trials import (
    CPU,
    JUDGES,
    TIME,
    PairStudy,
    Setting,
    figures_of,
    studies_of,
    tallies_of,
    together,
)
from scripts.gate_study.pool import SLOWDOWNS

SETTING = Setting(threshold=0.02, cap=8, cases=1)
CASE = "bench_x[x-synthetic]"


def rounds(
    slower: float, own: float, rng: random.Random, busy: bool = False, count: int = 8
) -> AdjacentRounds:
    """Return rounds of a pair; where the machine is ``busy`` others take from those there alone."""
    seconds = [math.exp(rng.gauss(0, 0.002)) for _ in range(count)]
    here = [value * (1 + slower) * math.exp(own) for value in seconds]
    none: List[Optional[float]] = [0.0] * count
    lost: List[Optional[float]] = [0.9 if busy else 0.0] * count
    used: List[Optional[float]] = [1.0 + slower] * count
    first = [k % 4 in (0, 3) for k in range(count)]
    return AdjacentRounds(
        Side(here, none, none, none, used), Side(seconds, lost, none, none, [1.0] * count), first
    )


def pair(number: int, rng: random.Random, load: str = "quiet") -> Dict[str, Any]:
    """Return a line of a pool whose processes differ by half a percent."""
    own = rng.gauss(0, 0.005)
    levels = {
        level: rounds(float(level), own, rng, load != "quiet").as_dict() for level in SLOWDOWNS
    }
    line = {"type": "pair", "case": CASE, "items_per_round": 8, "unit": "items", "load": load}
    return {
        **line,
        "here_first": number % 2 == 0,
        "ran_before": [""] * (number % 3),
        "levels": levels,
    }


@pytest.fixture(scope="module")
def lines() -> List[Dict[str, Any]]:
    rng = random.Random(1)
    return [pair(number, rng) for number in range(16)]


def test_each_judge_finds_what_is_slower_and_passes_what_is_equal(
    lines: List[Dict[str, Any]],
) -> None:
    studies = studies_of({CASE: lines}, SETTING)
    for judge in JUDGES:
        tallies = tallies_of(studies, judge, 50)[CASE]
        assert tallies["0.1"].regressed == tallies["0.1"].trials == 50
        assert tallies["0.0"].regressed == tallies["0.0"].inconclusive == 0
        assert tallies["0.0"].processes == 4 * 50  # the first look


def test_beside_neighbours_the_time_of_rounds_says_nothing_and_cpu_time_does() -> None:
    rng = random.Random(2)
    busy = {CASE: [pair(number, rng, "one") for number in range(12)]}
    rows = {name: cells for _, name, *cells in pairs.load_rows({"one": busy}, SETTING, 20)}
    assert list(rows) == [TIME, CPU, "either", "both"]
    assert rows[TIME][2:] == ["0%", "0%"]
    assert rows[CPU][2:] == ["100%", "100%"]
    assert all(
        cells[0].startswith("0.0%") and cells[1].startswith("0.0%") for cells in rows.values()
    )
    once = PairStudy([figures_of(line, "0.1") for line in busy[CASE]], SETTING)
    assert once.once(JUDGES[0], 0) == (INCONCLUSIVE, paired.MOST_DISTURBED)


def test_a_trial_takes_pairs_of_both_orders_in_turns(lines: List[Dict[str, Any]]) -> None:
    """Also where the pool has all pairs of one order before those of the other."""
    ordered = sorted(lines, key=lambda line: str(line["here_first"]))
    study = PairStudy([figures_of(line, "0.1") for line in ordered], SETTING)
    assert study.once(JUDGES[0], 0) == (REGRESSED, 4)


@pytest.mark.parametrize(
    ("time", "cpu", "either", "both"),
    [
        (REGRESSED, REGRESSED, REGRESSED, REGRESSED),
        (REGRESSED, PASS, REGRESSED, PASS),
        (REGRESSED, INCONCLUSIVE, REGRESSED, INCONCLUSIVE),
        (PASS, INCONCLUSIVE, INCONCLUSIVE, PASS),
        (PASS, PASS, PASS, PASS),
        (INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ],
)
def test_two_witnesses_judge_as_either_or_as_both(
    time: str, cpu: str, either: str, both: str
) -> None:
    found = [judge.together({TIME: time, CPU: cpu}) for judge in JUDGES[2:]]
    assert found == [either, both]


def test_all_rounds_of_a_pair_make_one_of_a_comparison() -> None:
    line = pair(0, random.Random(1))
    joined = together(line)
    changes = []
    for level in SLOWDOWNS:
        figure = figures_of(joined, level)[1][TIME]
        assert figure is not None
        changes.append(figure.effect.change)
        count = len(joined["levels"][level]["here_first"])
        assert count == sum(len(one["here_first"]) for one in line["levels"].values())
    assert abs(changes[0]) < 0.03  # nothing is left of the extra work
    expected = [math.log1p(float(level)) for level in SLOWDOWNS]
    assert [change - changes[0] for change in changes] == pytest.approx(expected, abs=1e-9)


def test_the_study_prints_its_tables(
    lines: List[Dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for more in ([], ["--order"]):
        given = ["pairs", f"--pool={path}", "--trials=5", "--cap=8", "--cases=1", *more]
        monkeypatch.setattr(sys, "argv", given)
        pairs.main()
    shown = capsys.readouterr().out
    assert "| x | " in shown and "| both | " in shown
    work = next(line for line in shown.splitlines() if "extra work cost in CPU time" in line)
    assert work.split(" | ")[1:6] == ["0.0%", "1.0%", "2.0%", "5.0%", "10.0%"]
    assert " ± " in shown.splitlines()[-2]


def test_networks_of_pytorch_come_before_what_xla_compiles() -> None:
    order = in_some_order(CASES)
    assert sorted(order) == sorted(CASES)
    torch = [number for number, case in enumerate(order) if "cnn_torch" in case]
    assert torch == list(range(len(torch)))


def test_passes_end_when_no_further_one_fits() -> None:
    assert list(passes_within(3, math.inf)) == [0, 1, 2]
    assert list(passes_within(3, 0.0)) == [0]


class Scripted(PoolPair):
    """Sides that take a second and the extra work that was ordered, and are at different cases."""

    def _order(self, name: str, order: str, argument: Any = None) -> Any:
        work: Dict[str, float] = self.__dict__.setdefault("work", {})
        if order == "level":
            work[name] = argument
        return f"case of {name}" if order == "case" else 1.0 + work.get(name, 0.0)


def test_extra_work_is_here_alone(tmp_path: Path) -> None:
    sides = Scripted("fake", lambda text: None, [], tmp_path)
    for share in (0.05, 0.0):
        found = sides.measure_level(share, budget=60.0)
        assert found.stopped_by == "precision"
        assert found.effect().change == pytest.approx(math.log1p(share))
    assert sides.__dict__["work"] == {HERE: 0.0, THERE: 0.0}


def test_both_sides_measure_one_case_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="one side is about to measure case of the process here"):
        Scripted("fake", lambda text: None, [], tmp_path).next_case()
