"""`--within`: what a record tells, what a run leaves out, and what it says of that."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.plugins.compare import fresh_processes
from ipubench.plugins.record.files import MOST_JOURNAL
from ipubench.plugins.run import within
from ipubench.plugins.run.within import expected_of, known_cases
from ipubench.plugins.selection.selected import Selection, selection_key
from ipubench.plugins.selection.time_plan import Expected
from tests.support.harness import Project, run_command
from tests.support.reports import benchmark


def test_a_record_says_what_its_case_takes() -> None:
    one = benchmark("alpha", rate=100.0)
    assert expected_of(one) is None
    record = one["extra_info"]["ipubench"]
    record["spent"] = {"build": 1.0, "compile": 4.0, "rounds": 5.0, "warm_up": 2.0, "latency": 3.0}
    record["spent"].update(device=60.0, quiet=30.0)  # for other programs' sake
    found = expected_of(one)
    assert found is not None and found.overhead == 5.0
    assert found.round == pytest.approx(0.1, rel=0.1)
    assert found.seconds(5.0) == 5.0 + 1.6 * 5.0


def test_no_budget_decides_how_long_a_number_of_rounds_takes() -> None:
    one = benchmark("alpha")
    record = one["extra_info"]["ipubench"]
    record["spent"] = {"compile": 4.0, "rounds": 50.0, "device": 60.0}
    record["rounds"]["stopped_by"] = "steps"
    found = expected_of(one)
    assert found is not None and found.seconds(1.0) == found.seconds(5.0) == 54.0


@pytest.mark.parametrize("spent", [None, 3, [], {"build": "long"}, {}])
def test_a_damaged_record_says_nothing(spent: Any) -> None:
    one = benchmark("alpha")
    one["extra_info"]["ipubench"]["spent"] = spent
    assert expected_of(one) is None


@pytest.mark.parametrize(
    "damaged", [{"data": []}, {"data": ["x"]}, {"data": {}}, {"iterations": "1"}]
)
def test_damaged_rounds_say_nothing(damaged: Dict[str, Any]) -> None:
    one = benchmark("alpha")
    one["extra_info"]["ipubench"]["spent"] = {"compile": 1.0}
    assert expected_of(one) is not None
    one["stats"].update(damaged)
    assert expected_of(one) is None


@pytest.mark.parametrize("extra", [[], None, "x", {"ipubench": []}])
def test_a_benchmark_without_a_record_says_nothing(extra: Any) -> None:
    assert expected_of({**benchmark("alpha"), "extra_info": extra}) is None


@pytest.mark.parametrize(
    ("gate", "given", "gate_time", "left"),
    [
        (0.02, None, 30.0, 59.0),
        (0.02, 60.0, 30.0, 59.0),
        (0.02, 20.0, 20.0, 69.0),
        (None, None, None, 89.0),
        (None, 20.0, 20.0, 89.0),
    ],
)
def test_a_third_of_the_time_at_most_is_for_the_fresh_processes_of_a_gate(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    gate: Any,
    given: Any,
    gate_time: Any,
    left: float,
) -> None:
    monkeypatch.setattr(within, "seconds_of_start", lambda: 1.0)
    monkeypatch.setattr(within, "time", SimpleNamespace(monotonic=lambda: 0.0))
    option = SimpleNamespace(
        within=90.0, baseline="main", gate=gate, gate_policy=None, gate_time=given, budget=5.0
    )
    config: Any = SimpleNamespace(option=option, stash={}, rootpath=tmp_path)
    config.getoption = lambda name, default=None: default
    within.pytest_configure(config)
    fresh_processes.pytest_configure(config)
    assert option.gate_time == gate_time
    assert config.stash[within.limit_key].left == left


def known_in(folder: Path, device: str = "cpu") -> Dict[str, Expected]:
    """Return what a run on a kind of device knows from the journals of a folder."""
    option = SimpleNamespace(results_dir=str(folder))
    config: Any = SimpleNamespace(option=option, stash={selection_key: Selection({}, device)})
    return known_cases(config)


def keep(folder: Path, second: int, name: str, compile_seconds: float) -> None:
    """Leave a journal of that second with one case of that name, which was measured on a CPU."""
    one = benchmark(name, "bench.py::bench_a")
    one["extra_info"]["ipubench"]["spent"] = {"compile": compile_seconds}
    line = json.dumps({"type": "case", "benchmark": one})
    (folder / f"run-20261126T12000{second}-1.jsonl").write_text(f"{line}\n")


def test_five_journals_before_the_runs_own_are_looked_at(tmp_path: Path) -> None:
    for number in range(6):
        keep(tmp_path, number, str(number), 1.0)
    (tmp_path / "run-20261126T120006-1.jsonl").write_text("")
    assert sorted(known_in(tmp_path)) == [f"bench.py::bench_a[{n}]" for n in range(1, 6)]


def test_the_latest_journal_that_knows_a_case_on_this_kind_of_device_counts(tmp_path: Path) -> None:
    for second, seconds in enumerate((30.0, 2.0)):
        keep(tmp_path, second, "1", seconds)
    damaged = json.dumps({"type": "case", "benchmark": {"fullname": "bench.py::bench_a[1]"}})
    (tmp_path / "run-20261126T120003-1.jsonl").write_text(f"{damaged}\n")
    with (tmp_path / "run-20261126T120004-1.jsonl").open("wb") as file:
        file.truncate(MOST_JOURNAL + 1)  # which nobody reads
    found = known_in(tmp_path)["bench.py::bench_a[1]"]
    assert found.overhead == 2.0
    assert known_in(tmp_path, "cuda") == known_in(Path("~nobody-has-this-name")) == {}


def known(project: Project, overhead: float) -> None:
    """Leave a journal by which each case of the project takes so long beside its rounds."""
    project.run("-q").assert_code(0)
    path = project.journals()[-1]
    lines: List[Dict[str, Any]] = project.journal()
    for line in lines:
        if line["type"] == "case":
            line["benchmark"]["extra_info"]["ipubench"]["spent"] = {"compile": overhead}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_run_says_what_it_leaves_out(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    nothing = "def bench_nothing() -> None:\n    pass  # no case, so no time is planned for it"
    path.write_text(path.read_text().replace("@cases(\n", f"{nothing}\n\n\n@cases(\n", 1))
    known(project, overhead=100.0)
    outcome = project.run("--within=3.5min").assert_code(0)
    outcome.line("cases for which --within=3.5min has no time")
    outcome.line("--within=3.5min: a case gets about ")
    assert set(project.records()) == {"alpha-bs1-synthetic", "delta-synthetic"}
    outcome = project.run("--within=1h").assert_code(0)
    assert "--within" not in outcome.text.split("=== benchmarks")[0].split("collected")[1]


def test_time_is_planned_for_what_is_selected_last(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    source = path.read_text()
    path.write_text(source.replace('config.trouble == "raise"', '"beta-gen" in str(meter.case)'))
    project.run("-p", "cacheprovider").assert_code(1)
    path.write_text(source)
    known(project, overhead=100.0)
    outcome = project.run("--within=3.5min", "-p", "cacheprovider", "--lf").assert_code(0)
    assert "has no time" not in outcome.text
    assert set(project.records()) == {"beta-generated"}


def test_a_run_with_too_little_time_learns_what_its_first_case_takes(project: Project) -> None:
    outcome = project.run("--within=1s", "-k", "beta").assert_code(0)
    outcome.line("1 case for which --within=1s has no time")
    assert set(project.records()) == {"beta-synthetic"}


# After a case it is known that the next ones take longer than there is time.
LONGER = """

def pytest_runtest_teardown(item):
    from ipubench.plugins.run.within import limit_key
    from ipubench.plugins.selection.time_plan import Expected

    if limit_key in item.config.stash:
        limit = item.config.stash[limit_key]
        limit.known.update(dict.fromkeys(limit.waiting, Expected(1000.0)))
"""


@pytest.fixture
def slow(project: Project) -> Project:
    """A project in which only the first case of a run with ``--within`` has time."""
    project.add_to_conftest(LONGER)
    return project


def test_a_case_without_time_is_skipped_with_what_is_left(slow: Project) -> None:
    outcome = slow.run("--within=1min", "--budget=0.1", "-k", "beta", "-rs").assert_code(0)
    outcome.line("1 case was skipped: the time of --within=1min was over")
    assert "s are left, and the case takes about 1000 s" in outcome.text
    assert "s" not in outcome.lines  # pytest's letter, where cases have lines


def test_a_case_without_time_is_not_missing(slow: Project) -> None:
    slow.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    words = ("--within=1min", "-k", "beta", "--baseline=main")
    outcome = slow.run(*words, "--gate=50%").assert_code(0)
    outcome.line("1 case was skipped: the time of --within=1min was over")
    outcome.line("(gate 50.0%): 1 pass")
    assert "missing" not in outcome.text


def test_a_later_comparison_calls_no_case_missing_that_had_no_time(slow: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    slow.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    slow.run("--within=1min", "-k", "beta").assert_code(0)
    words = (str(slow.journals()[-1]), "--out=out", "--baseline=baselines/main.json")
    outcome = run_command(slow.folder, slow.environment, "ipubench.plugins.report", *words)
    outcome.assert_code(0).line("1 case of the baseline was not selected")


@pytest.mark.parametrize("flag", ["--against", "--baseline-save", "--processes"])
def test_what_measures_a_case_several_times_is_refused(flag: str) -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(within=60.0))
    config.getoption = lambda name, default=None: "x" if name == flag else default
    with pytest.raises(pytest.UsageError, match=f"^{flag} measures every case several times"):
        within.pytest_configure(config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--within=soon"], "'soon' is not a duration; write it as 30s, 10min or 1.5h"),
        (["--within=9min", "-n", "2"], "leave out -n"),
    ],
)
def test_what_does_not_fit_together_is_one_message(
    project: Project, words: List[str], message: str
) -> None:
    assert message in project.run(*words).assert_code(4).text.replace("\n", " ")
