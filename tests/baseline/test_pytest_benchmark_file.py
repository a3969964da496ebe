"""Files of pytest-benchmark as baselines, in the history and as records."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest
from msgspec.structs import replace

import ipubench
from ipubench.plugins.baseline.entries import differences as compared
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.store import load_all, newest_in, save
from ipubench.plugins.gate.stored import StoredRule, judge
from ipubench.plugins.record.differences import differences
from ipubench.plugins.record.host_process import software_changes
from ipubench.plugins.record.record import is_imported, processes_of, with_processes
from ipubench.plugins.record.structs import Benchmark, as_plain
from tests.support.baselines import STORED, Shell, document, load
from tests.support.own_project import OwnProject
from tests.support.stored import a_benchmark, changed

FILE = STORED / "pytest-benchmark.json"
SPLIT, SORT = "test_words.py::test_split", "test_words.py::test_sort[1000]"
CPU = "Intel(R) Xeon(R) Processor"


def plain() -> Any:
    return json.loads(FILE.read_text())


def stats_of(name: str) -> Dict[str, Any]:
    (found,) = [one["stats"] for one in plain()["benchmarks"] if one["fullname"] == name]
    return dict(found)


def written(folder: Path, document: Any) -> Path:
    path = folder / "0001_x.json"
    path.write_text(json.dumps(document))
    return path


def now(times: float, before: Benchmark, processes: int = 5) -> Benchmark:
    """Return a result of ours that takes so many times longer than a stored one."""
    seconds = times / before.record.throughput.median
    one = a_benchmark([seconds] * 9, items=1)
    unit = {"record.throughput.unit": "calls/s", "record.device.name": CPU}
    one = changed(replace(one, fullname=before.fullname), unit)
    return with_processes(one, [one] * (processes - 1))


def test_a_case_has_one_process_and_the_statistics_of_the_file() -> None:
    found, stats = load(FILE)[SPLIT], stats_of(SPLIT)
    record = found.record
    assert is_imported(record) and len(processes_of(found)) == 1
    assert found.group == "count words" and record.name == "test_split"
    rates = record.throughput
    assert rates.unit == "calls/s" and rates.median == pytest.approx(1 / stats["median"])
    assert [rates.mean, rates.min, rates.max] == pytest.approx(
        [1 / stats["mean"], 1 / stats["max"], 1 / stats["min"]]
    )
    half = 1.57 * stats["iqr"] / math.sqrt(stats["rounds"])
    assert [1 / rates.high, 1 / rates.low] == pytest.approx(
        [stats["median"] - half, stats["median"] + half]
    )
    assert record.rounds.count == stats["rounds"] == 4000
    assert record.git == "0123456789abcdef0123456789abcdef01234567-dirty"
    assert record.time == "2026-11-28T01:03:46Z" and record.versions["python"] == "3.11.7"
    assert record.device.fingerprint == f"pytest-benchmark/{CPU}/2 CPUs"
    assert load(FILE)[SORT].record.name == "test_sort-1000"


def test_rounds_are_used_if_the_file_has_them(tmp_path: Path) -> None:
    saved = plain()
    stats = saved["benchmarks"][0]["stats"]
    stats.update(data=[0.1, 0.2, 0.3], iterations=10, rounds=3)
    (found, *_) = load_all(written(tmp_path, saved))
    assert list(processes_of(found)[0].seconds) == pytest.approx([1.0, 2.0, 3.0])
    assert found.record.throughput.median == pytest.approx(5)


def test_a_record_of_ours_in_such_a_file_stays(tmp_path: Path) -> None:
    ours = a_benchmark([0.1] * 9)
    saved = {**plain(), "benchmarks": [as_plain(ours)]}
    assert load_all(written(tmp_path, saved)) == [Benchmark.of(as_plain(ours))]


@pytest.mark.parametrize("times, kind", [(1.0, "pass"), (2.0, "regressed"), (0.5, "improved")])
def test_a_gate_judges_by_the_one_process(times: float, kind: str) -> None:
    before = load(FILE)[SPLIT]
    verdict = judge(now(times, before), before, StoredRule({"throughput": 0.1}, 3))
    # Of ours, the fresh ones decide.
    assert (verdict.kind, verdict.processes, verdict.processes_before) == (kind, 4, 1)
    assert verdict.change == pytest.approx(1 / times - 1)


def test_only_what_the_file_has_is_compared() -> None:
    before = load(FILE)[SPLIT].record
    here = now(1.0, load(FILE)[SPLIT]).record
    assert differences(here, before) == differences(before, here) == []
    others = {
        "device.name": "another CPU",
        "throughput.unit": "pages/s",
        "throughput.median": 2e6,  # calls of 0.5 µs
    }
    for place, value in others.items():
        assert len(differences(changed(here, {place: value}), before)) == 1, place
    itself = changed(here, {"throughput.median": 2e6, "effective.measured_by": "pytest-benchmark"})
    assert differences(itself, before) == []  # the same loop
    versions = {**before.versions, "numpy": "1.0", "pytest-benchmark": "9.9"}
    found = software_changes([(before, changed(here, {"versions": versions, "git": before.git}))])
    assert found == f"pytest-benchmark {before.versions['pytest-benchmark']} -> 9.9"


def test_two_files_are_compared_as_any_two_results(tmp_path: Path) -> None:
    slower = plain()
    for one in slower["benchmarks"]:
        one["stats"]["median"] *= 2
    after = load_all(written(tmp_path, slower))
    kinds = [one.verdict.kind for one in compared(load_all(FILE), after, 0.1)]
    assert kinds == ["regressed"] * 3


@pytest.mark.parametrize(
    "change",
    [
        {"benchmarks.0.stats.median": None},
        {"benchmarks.0.stats.iterations": 0},
        {"benchmarks.0.stats": 1},
        {"benchmarks.0.fullname": 1},
        {"datetime": "yesterday"},
        {"machine_info": None},
        {"benchmarks": {}},
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: Dict[str, Any]) -> None:
    path = written(tmp_path, changed(plain(), change))
    with pytest.raises(BaselineError, match=str(path)):
        load_all(path)


def test_the_newest_file_of_a_folder(tmp_path: Path) -> None:
    for name in ("0009_b.json", "0010_a.json", "main.json"):
        shutil.copy(FILE, tmp_path / name)
    assert newest_in(tmp_path).name == "0010_a.json"
    assert newest_in(tmp_path / "main.json").name == "main.json"
    (tmp_path / "empty").mkdir()
    with pytest.raises(BaselineError):
        newest_in(tmp_path / "empty")


def test_such_a_file_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "0001_x.json"
    shutil.copy(FILE, path)
    with pytest.raises(BaselineError):
        save(path, document(a_benchmark([0.1] * 9)))
    assert path.read_text() == FILE.read_text()


def test_load_returns_its_cases() -> None:
    first = {one["case"]: one for one in ipubench.load(FILE)}[SPLIT]
    assert first["throughput"] == pytest.approx(1 / stats_of(SPLIT)["median"])
    assert (first["rounds"], first["host_memory_peak_bytes"]) == (4000, None)


def test_files_are_imported_into_the_history(shell: Shell) -> None:
    saved = shell.folder / ".benchmarks" / "Linux"
    saved.mkdir(parents=True)
    shutil.copy(FILE, saved / "0001_x.json")
    (saved / "0002_y.json").write_text(FILE.read_text().replace("T01:03:46", "T02:00:00"))
    for _ in range(2):  # a second import adds nothing
        shell("import", ".benchmarks").assert_code(0)
    outcome = shell("history", "test_split").assert_code(0)
    assert "pytest-benchmark/" in outcome.text
    assert [line.split()[-1] for line in outcome.lines if "2026-11-28" in line] == ["1", "1"]
    (shell.folder / "x.json").write_text('{"benchmarks": []}')
    shell("import", "x.json").assert_code(4)
    (shell.folder / "empty").mkdir()
    shell("import", "empty").assert_code(4)


TESTS = """
def test_sum(benchmark):
    benchmark(sum, range(1000))

def test_other(benchmark):
    benchmark(sum, range(2000))
"""


@pytest.mark.slow
def test_a_run_is_gated_by_what_pytest_benchmark_has_saved(own: OwnProject) -> None:
    own.write(TESTS)
    quick = ("--benchmark-max-time=0.01", "--benchmark-min-rounds=5")
    # As in tests/ without a pytest.ini: another root folder makes other node ids.
    own.run("-o", "addopts=", "--rootdir=tests", "--benchmark-save=x", *quick).assert_code(0)
    (path,) = (own.folder / ".benchmarks").rglob("*.json")
    saved = json.loads(path.read_text())
    for one in saved["benchmarks"]:  # so much slower that it cannot look like a regression
        stats = one["stats"]
        stats.update({name: 1000 * stats[name] for name in ("min", "max", "mean", "median", "iqr")})
    assert saved["benchmarks"][0]["fullname"] == "test_own.py::test_sum"
    path.write_text(json.dumps(saved))
    words = ("--gate=10%", "--budget=0.05")
    outcome = own.run(f"--baseline={path.parent}", *words)
    assert outcome.code in (0, 6)  # 6: on a busy machine no case is decided
    outcome.line("a file of pytest-benchmark")
    assert ".benchmarks/" in outcome.line("against ")
    assert "new" not in outcome.line("against ") and "incomparable" not in outcome.text
    path.write_text("{}")
    own.refused(f"--baseline={path}", *words)
