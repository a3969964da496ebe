"""`--count=instructions` as a user runs it, in a project of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.support.own_project import OwnProject
from tests.support.repository import replace

pytestmark = pytest.mark.slow
needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="there is no valgrind: apt-get install valgrind"
)
TESTS = """\
import os
import random
import signal
import threading

PARTS = 100
TIMES = 1


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


def test_sum(benchmark):
    benchmark(lambda: sum(range(3000 * TIMES)))


def test_chance(meter):
    source = random.Random()
    meter(lambda: sum(range(source.randrange(1, 50_000))))


def test_threads(meter):
    def work():
        threads = [threading.Thread(target=lambda: sum(range(50_000))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    meter(work)


def test_crash(meter):
    if "IPUBENCH_COUNT_CHILDREN" in os.environ:
        os.kill(os.getpid(), signal.SIGSEGV)
    meter(lambda: sum(range(1000)))
"""
ALONE = "--gate=instructions:0.5%"


@pytest.fixture
def counted(tmp_path: Path) -> OwnProject:
    """A project whose tests measure something of known work."""
    own = OwnProject(tmp_path, tmp_path / "cache")
    own.write(TESTS)
    return own


def _edit(own: OwnProject, old: str, new: str) -> None:
    replace(own.folder / "tests" / "test_own.py", old, new)


def _verdicts(own: OwnProject) -> Dict[str, Any]:
    lines = [line for line in own.lines() if line["type"] == "verdict"]
    return {line["case"].split("::")[1]: line["verdict"] for line in lines}


#: Three children count a case, not six.
THREE_CHILDREN = """
from ipubench.plugins.compare import counting

counting.ALL_CHILDREN = 3
"""


@needs_valgrind
def test_one_percent_more_work_is_found_and_equal_code_passes(counted: OwnProject) -> None:
    (counted.folder / "tests" / "conftest.py").write_text(THREE_CHILDREN)
    words = ("tests", "-k", "test_python or test_sum")
    saving = (*words, "--count=instructions", "--baseline-save=main", "--processes=1")
    counted.run(*saving, "--keep-disturbed", "--budget=0.2s").assert_code(0)
    _edit(counted, "PARTS = 100", "PARTS = 101")
    counted.run(*words, "--baseline=main", ALONE, "--profile-on-regression").assert_code(1)
    verdicts = _verdicts(counted)
    found = verdicts["test_python"]
    assert (found["kind"], found["metric"]) == ("regressed", "instructions")
    assert 0.005 < found["also"][0]["change"] < 0.012
    assert verdicts["test_sum"]["kind"] == "pass"
    assert {one["stats"]["rounds"] for one in counted.records().values()} == {1}  # not timed
    (profile,) = [line["profile"] for line in counted.lines() if line["type"] == "profile"]
    assert profile["functions"]


@pytest.mark.nightly
@needs_valgrind
@pytest.mark.parametrize(
    ("name", "least", "most"), [("test_pedantic", 0.005, 1), ("test_sum", 0.95, 1.05)]
)
def test_other_kinds_of_calls_are_counted(
    counted: OwnProject, name: str, least: float, most: float
) -> None:
    saving = ("tests", "-k", name, "--count=instructions", "--baseline-save=main")
    counted.run(*saving, "--processes=1", "--keep-disturbed", "--budget=0.2s").assert_code(0)
    _edit(counted, "import os", "# A comment.\nimport os")
    counted.run("tests", "-k", name, "--baseline=main", ALONE).assert_code(0)
    assert {verdict["kind"] for verdict in _verdicts(counted).values()} == {"pass"}
    _edit(counted, "PARTS = 100", "PARTS = 101")
    _edit(counted, "TIMES = 1", "TIMES = 2")
    counted.run("tests", "-k", name, "--baseline=main", ALONE).assert_code(1)
    ((_, found),) = _verdicts(counted).items()
    assert (found["kind"], found["metric"]) == ("regressed", "instructions")
    assert least < found["also"][0]["change"] < most


@pytest.mark.nightly
@needs_valgrind
def test_what_cannot_be_counted_is_open_and_has_a_reason(counted: OwnProject) -> None:
    words = ("tests", "-k", "chance or threads or crash")
    saving = (*words, "--count=instructions", "--baseline-save=main")
    counted.run(*saving, "--processes=1", "--keep-disturbed", "--budget=0.2s").assert_code(0)
    outcome = counted.run(*words, "--baseline=main", ALONE, "--gate-inconclusive=fail")
    outcome.assert_code(1)
    verdicts = _verdicts(counted)
    assert {verdict["kind"] for verdict in verdicts.values()} == {"inconclusive"}
    reasons = {name: " ".join(verdict["reasons"]) for name, verdict in verdicts.items()}
    assert "chance" in reasons["test_chance"]
    assert "threads" in reasons["test_threads"]
    assert "SIGSEGV" in reasons["test_crash"]
    assert all(reason in outcome.text for reason in reasons.values())


REFUSED = [
    ["-n", "2", "--count=instructions"],
    ["--count=instructions", "--profile=traces"],
    ["--gate=instructions:1%"],
    ["--gate=instruction:1%", "--baseline=main"],
    ["--baseline=main", ALONE, "--baseline-save=other"],
]


def test_what_cannot_be_counted_is_refused(counted: OwnProject) -> None:
    for words in REFUSED:
        counted.refused("tests", *words)


def test_without_a_counter_the_run_says_what_to_install(counted: OwnProject) -> None:
    folder = counted.folder.parent / "bin"
    folder.mkdir()
    counted.environment["PATH"] = str(folder)
    outcome = counted.run("tests", "--count=instructions", "--device=cpu")
    if "counting the instructions" in outcome.text:
        pytest.skip("this machine has a performance unit")
    outcome.assert_code(4)
    assert "apt-get install valgrind" in outcome.text
