"""The gate study's arithmetic, on made-up pools."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest

from ipubench.plugins.record.text import Parser
from scripts.gate_study import study
from scripts.gate_study.neighbours import LOADS, Load, neighbours
from scripts.gate_study.pool import SLOWDOWNS, pools_given, pools_of
from scripts.gate_study.study import Setting, wilson
from tests.machine.test_process import wait_until_gone

pytestmark = pytest.mark.nightly

SETTING = Setting(threshold=0.02, processes=5, cap=4, cases=1)
CASE = "bench_x[x-synthetic]"


def process(load: str, generator: random.Random) -> Dict[str, Any]:
    """Return a line of a pool; next to neighbours it takes twice as long, and records that."""
    busy = load != "quiet"
    lost = [0.5 if busy else 0.0] * 8
    own = generator.gauss(0, 0.005)
    levels = {
        level: {
            "seconds": [0.1 * (1 + float(level) + own) * (2 if busy else 1)] * 8,
            "canaries": {"arithmetic": [0.001] * 8},
            "contention": {"lost": lost, "limit": 0.02, "enough": not busy},
        }
        for level in SLOWDOWNS
    }
    line = {"type": "pool", "case": CASE, "items_per_round": 8, "unit": "items"}
    return {**line, "levels": levels, "load": load}


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path, generator = tmp_path / "pool.jsonl", random.Random(1)
    lines = [process(load, generator) for load in ("quiet", "one") for _ in range(12)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_only_wrong_verdicts_are_counted_as_wrong(pool: Path) -> None:
    studies = study.studies_of(pools_of(pool), SETTING)
    assert [load for load, found in studies.items() if found] == ["quiet", "one"]
    found: Dict[str, List[str]] = {}
    for before, now in study.conditions(["one"]):
        found[f"{before}, {now}"] = study.row(studies[before], studies[now], 50)
    assert list(found) == ["quiet, quiet", "quiet, one", "one, quiet", "one, one"]
    for name, (false_alarms, missed, equal, slower) in found.items():
        assert false_alarms.startswith("0.0%") and missed.startswith("0.0%")
        assert (equal, slower) == (("100%", "100%") if name == "quiet, quiet" else ("0%", "0%"))


@pytest.mark.parametrize(("load", "least"), [("two", 1), ("one", 13)])
def test_an_insufficient_pool_is_a_usage_error(pool: Path, load: str, least: int) -> None:
    with pytest.raises(SystemExit):
        pools_given(Parser(), pool, load, least)


def test_the_interval_of_a_share_is_wilsons() -> None:
    low, high = wilson(0.0, 20)
    assert low == 0 and high == pytest.approx(0.161, abs=0.001)
    assert wilson(0.5, 100) == pytest.approx((0.404, 0.596), abs=0.001)


def test_neighbours_run_meanwhile_as_orphans_and_end() -> None:
    """A measuring process's children count as its own and disturb no round."""
    with neighbours(LOADS["quiet"]) as none:
        assert none == []
    children = _children()
    with neighbours(Load(2, on_off=True)) as running:
        assert len(running) == 2
        assert all(Path(f"/proc/{pid}").exists() for pid in running)
        assert _children() == children
    wait_until_gone(running)


def _children() -> Set[str]:
    tasks = Path("/proc/self/task")
    return {pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()}
