"""What the gate study gives to asv and reads from it; asv itself is not run here."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.gate_study import bench_pool, with_asv
from scripts.gate_study.collect import CASES, ROOT
from scripts.gate_study.standalone import RUNTIMES, case_of_name
from scripts.gate_study.with_asv import AsvError, make_repository, row, run, verdict_of
from scripts.steps import runtime_name, step_of

CASE = "bench_x[x-synthetic]"


def shown(folder: Path, name: str) -> str:
    command = ["git", "show", name]
    return subprocess.run(
        command, cwd=str(folder), check=True, stdout=subprocess.PIPE
    ).stdout.decode()


def test_branches_differ_by_the_extra_work_alone(tmp_path: Path) -> None:
    make_repository(tmp_path, CASE, {"batches": 450, "calls": 1000})
    work = {name: shown(tmp_path, f"{name}:slowed.py") for name in ("base", *with_asv.BRANCHES)}
    assert [text.split("CALLS = ")[1] for text in work.values()] == ["0\n", "0\n", "50\n", "100\n"]
    assert len(set(work.values())) == 4  # so that equal code is another commit, too
    for branch in with_asv.BRANCHES:
        assert shown(tmp_path, f"{branch}:benchmarks/bench_case.py") == with_asv.BENCHMARK
    facts = json.loads(shown(tmp_path, "base:benchmarks/case.json"))
    assert facts == {"case": CASE, "batches": 450, "calls": 1000}


def test_asvs_environment_finds_this_checkout(tmp_path: Path) -> None:
    make_repository(tmp_path, CASE, {"batches": 1, "calls": 1})
    line = next(line for line in (tmp_path / "checkout.pth").read_text().splitlines())
    program = f"{line}\nimport sys\nprint(sys.path[-1])"
    command = [sys.executable, "-I", "-c", program]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=str(tmp_path)).stdout
    assert Path(found.decode().strip()) == ROOT


def test_what_asv_says_is_read_from_its_last_words(tmp_path: Path) -> None:
    changed = "SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY.\n"
    assert verdict_of(f"{changed}PERFORMANCE DECREASED.\n") == "slower"
    assert verdict_of(f"{changed}PERFORMANCE INCREASED.\n") == "faster"
    assert verdict_of("BENCHMARKS NOT SIGNIFICANTLY CHANGED.\n") == "unchanged"
    assert verdict_of("Traceback") == ""
    slower = "import sys; print('PERFORMANCE DECREASED.'); sys.exit(1)"
    assert verdict_of(run([sys.executable, "-c", slower], tmp_path)) == "slower"
    with pytest.raises(AsvError, match="ended with 3:\nno index"):
        run([sys.executable, "-c", "print('no index'); import sys; sys.exit(3)"], tmp_path)


def test_a_case_has_its_shares_with_their_intervals() -> None:
    found = {
        "equal": collections.Counter(unchanged=8, slower=1, faster=1),
        "slower-5": collections.Counter(slower=5, unchanged=5),
        "slower-10": collections.Counter(slower=10),
    }
    name, *cells, seconds = row(CASE, found, 40.4)
    assert (name, seconds) == ("x", "40 s")
    assert [cell.split()[0] for cell in cells] == ["10.0%", "50.0%", "100.0%"]


class Runtime:
    """Any runtime: what it is asked for is a step."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **options: name


@pytest.mark.parametrize("name", CASES)
def test_every_case_of_the_study_has_its_step_without_pytest(name: str) -> None:
    function, case = case_of_name(name)
    assert name == f"{function.__name__}[{case.id}]"
    assert function.__name__ in bench_pool.__all__
    assert runtime_name(function) in RUNTIMES
    step, items = step_of(function, case.config, Runtime())
    assert step in ("loop", "inference", "validation") and items >= 1
