"""The study of alternating pairs: its arithmetic, on made-up pools."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from msgspec import to_builtins

from ipubench.plugins.gate.pairs import MOST_DISTURBED
from ipubench.plugins.gate.rounds import AdjacentRounds, Side
from ipubench.plugins.processes.pair import HERE, THERE
from ipubench.plugins.record.verdict import INCONCLUSIVE, REGRESSED
from scripts.gate_study import pairs
from scripts.gate_study.collect_pairs import PoolPair
from scripts.gate_study.pairs import CPU, TIME, Setting, measured, once, tallies_of, together
from scripts.gate_study.pool import SLOWDOWNS

pytestmark = pytest.mark.nightly

SETTING = Setting(threshold=0.02, cap=8, cases=1)
CASE = "bench_x[x-synthetic]"


def rounds(
    slower: float, own: float, rng: random.Random, busy: bool = False, count: int = 8
) -> AdjacentRounds:
    """Return rounds of a pair; on a ``busy`` machine others disturb only those there."""
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
        level: to_builtins(rounds(float(level), own, rng, load != "quiet")) for level in SLOWDOWNS
    }
    line = {"type": "pair", "case": CASE, "items_per_round": 8, "unit": "items", "load": load}
    return {
        **line,
        "here_first": number % 2 == 0,
        "levels": levels,
    }


@pytest.fixture(scope="module")
def lines() -> List[Dict[str, Any]]:
    rng = random.Random(1)
    return [pair(number, rng) for number in range(16)]


@pytest.mark.parametrize("figure", [TIME, CPU])
def test_each_metric_finds_slow_code_and_passes_equal_code(
    lines: List[Dict[str, Any]], figure: str
) -> None:
    tallies = tallies_of({CASE: lines}, figure, SETTING, 50)[CASE]
    assert tallies["0.1"].regressed == tallies["0.1"].trials == 50
    assert tallies["0.0"].regressed == tallies["0.0"].inconclusive == 0
    assert tallies["0.0"].processes == 4 * 50  # the first look


def test_next_to_neighbours_only_cpu_time_is_informative() -> None:
    rng = random.Random(2)
    busy = [pair(number, rng, "one") for number in range(12)]
    found = {figure: tallies_of({CASE: busy}, figure, SETTING, 20)[CASE] for figure in (TIME, CPU)}
    assert found[TIME]["0.0"].inconclusive == found[TIME]["0.1"].inconclusive == 20
    assert (found[CPU]["0.0"].regressed, found[CPU]["0.1"].regressed) == (0, 20)
    disturbed = [measured(line, "0.1", TIME) for line in busy]
    assert once(disturbed, SETTING, 0) == (INCONCLUSIVE, MOST_DISTURBED)


def test_a_trial_takes_pairs_of_both_orders_alternately(lines: List[Dict[str, Any]]) -> None:
    """Even if the pool has all pairs of one order first."""
    ordered = sorted(lines, key=lambda line: str(line["here_first"]))
    assert once([measured(line, "0.1", TIME) for line in ordered], SETTING, 0) == (REGRESSED, 4)


def test_all_rounds_of_a_pair_make_one_of_a_comparison() -> None:
    line = pair(0, random.Random(1))
    joined = together(line)
    changes = [measured(joined, level, TIME).change for level in SLOWDOWNS]
    assert changes[0] is not None and abs(changes[0]) < 0.03  # no extra work is left
    expected = [changes[0] + math.log1p(float(level)) for level in SLOWDOWNS]
    assert changes == pytest.approx(expected, abs=1e-9)
    count = sum(len(one["here_first"]) for one in line["levels"].values())
    assert len(joined["levels"]["0.1"]["here_first"]) == count


def test_the_study_prints_its_tables(
    lines: List[Dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = ["pairs", f"--pool={path}", "--trials=5", "--cap=8", "--cases=1"]
    monkeypatch.setattr(sys, "argv", given)
    pairs.main()
    shown = capsys.readouterr().out
    assert "| x | " in shown and "| CPU time | quiet | " in shown


class Scripted(PoolPair):
    """Processes that take a second and the ordered extra work."""

    def order(self, name: str, order: str, argument: Any = None) -> Any:
        work: Dict[str, float] = self.__dict__.setdefault("work", {})
        if order == "level":
            work[name] = argument
        return [1.0 + work.get(name, 0.0), 1.0, 0.0, 0.0]


def test_extra_work_happens_only_here() -> None:
    sides = Scripted("fake", lambda text: None, {}, 60.0)
    for share in (0.05, 0.0):
        found = sides.measure_level(share, budget=60.0)
        assert found.stopped_by == "precision"
        assert found.effect().change == pytest.approx(math.log1p(share))
    assert sides.__dict__["work"] == {HERE: 0.0, THERE: 0.0}
