"""`--count=instructions` as a user runs it, in a project of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.own_project import OwnProject

pytestmark = pytest.mark.slow
needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="there is no valgrind: apt-get install valgrind"
)
TESTS = """\
import random

PARTS = 100


def test_python(benchmark):
    numbers = {number: number for number in range(1000)}

    def work():
        total = 0
        for number in range(10 * PARTS):
            total += numbers[number % 1000]
        return total

    assert benchmark(work) > 0


def test_pedantic(benchmark):
    made = []

    def setup():
        made.append(sorted(range(100_000), key=lambda number: -number))
        return ([number % 7 for number in range(10 * PARTS)],), {}

    assert benchmark.pedantic(sorted, setup=setup, rounds=5)
    assert made


def test_chance(meter):
    source = random.Random()
    meter(lambda: sum(range(source.randrange(1, 1_000_000))))
"""
ALONE = "--gate=instructions:0.5%"


@pytest.fixture
def counted(tmp_path: Path) -> OwnProject:
    """A project whose tests measure something of known work."""
    own = OwnProject(tmp_path, tmp_path / "cache")
    own.write(TESTS)
    return own


def _more_work(own: OwnProject) -> None:
    path = own.folder / "tests" / "test_own.py"
    path.write_text(path.read_text().replace("PARTS = 100", "PARTS = 101"))


def _verdicts(own: OwnProject) -> Dict[str, Any]:
    lines = [line for line in own.lines() if line["type"] == "verdict"]
    return {line["case"].split("::")[1]: line["verdict"] for line in lines}


@needs_valgrind
@pytest.mark.entry_point
def test_one_percent_more_work_is_found_without_timing_anything(counted: OwnProject) -> None:
    saving = ("tests", "--count=instructions", "--baseline-save=main", "--processes=1")
    counted.run(*saving, "--keep-disturbed", "--budget=0.2s").assert_code(0)
    same = counted.run("tests", "--baseline=main", ALONE)
    same.assert_code(0)
    kinds = {name: verdict["kind"] for name, verdict in _verdicts(counted).items()}
    assert (kinds["test_python"], kinds["test_pedantic"]) == ("pass", "pass")
    records = {
        line["benchmark"]["name"]: line["benchmark"]["extra_info"]["ipubench"]
        for line in counted.lines()
        if line["type"] == "case"
    }
    assert records["test_python"]["rounds"]["count"] == 1
    _more_work(counted)
    more = counted.run("tests", "--baseline=main", ALONE, "--profile-on-regression")
    more.assert_code(1)
    found = _verdicts(counted)["test_python"]
    assert found["kind"] == "regressed"
    assert found["metric"] == "instructions"
    assert 0.005 < found["also"][0]["change"] < 0.05  # one process: an allocation may differ
    profiles = [line["profile"] for line in counted.lines() if line["type"] == "profile"]
    assert any(profile["functions"] for profile in profiles)


@needs_valgrind
def test_a_case_that_differs_each_time_is_uncountable_and_timed(counted: OwnProject) -> None:
    saving = ("tests", "-k", "chance", "--count=instructions", "--baseline-save=main")
    counted.run(*saving, "--processes=2", "--keep-disturbed", "--budget=0.2s").assert_code(0)
    outcome = counted.run("tests", "-k", "chance", "--baseline=main", ALONE, "--budget=0.2s")
    assert outcome.code in (0, 1)
    (verdict,) = _verdicts(counted).values()
    assert verdict["metric"] == "throughput"
    assert any(reason.startswith("uncountable") for reason in verdict["reasons"])


REFUSED = [
    ["-n", "2", "--count=instructions"],
    ["--count=instructions", "--profile=traces"],
    ["--gate=instructions:1%"],
    ["--gate=instruction:1%", "--baseline=main"],
    ["--baseline=main", ALONE, "--baseline-save=other"],
]


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_cannot_be_counted_is_refused(counted: OwnProject, words: List[str]) -> None:
    counted.run("tests", *words).assert_code(4)


def test_without_a_counter_the_run_says_what_to_install(counted: OwnProject) -> None:
    folder = counted.folder.parent / "bin"
    folder.mkdir()
    counted.environment["PATH"] = str(folder)
    outcome = counted.run("tests", "--count=instructions", "--device=cpu")
    if "counting the instructions" in outcome.text:
        pytest.skip("this machine has a performance unit")
    outcome.assert_code(4)
    assert "apt-get install valgrind" in outcome.text
