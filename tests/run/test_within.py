"""`--within`: what a run leaves out, what it says of that, and what it learns while it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.case.cases import case_key
from ipubench.fixtures.devices.fake import FakeClock
from ipubench.plugins.compare import fresh_processes
from ipubench.plugins.record.files import MOST_JOURNAL
from ipubench.plugins.run import within
from ipubench.plugins.run.results import run_key
from ipubench.plugins.run.within import UNKNOWN, TimeLimit, expected_of, known_cases
from ipubench.plugins.selection.selected import Selection, selection_key
from ipubench.plugins.selection.time_plan import LEAST_BUDGET, Expected
from tests.support.harness import Project, run_command
from tests.support.reports import benchmark

SIX = [f"bench.py::bench_{function}[{case}]" for function in "ab" for case in "123"]


def limit(seconds: float, clock: FakeClock, overhead: float = 10.0) -> TimeLimit:
    """Return a limit with six cases of a known length that were all chosen where they fit."""
    made = TimeLimit(seconds, 5.0, clock)
    made.known = dict.fromkeys(SIX, Expected(overhead))
    made.choose(SIX)
    return made


def test_with_enough_time_nothing_changes() -> None:
    made = limit(6 * 18 + 1, FakeClock())
    assert (made.waiting, made.share()) == (SIX, 5.0)


def test_there_are_fewer_rounds_before_there_are_fewer_cases() -> None:
    assert limit(6 * 14, FakeClock()).share() == pytest.approx(2.5, rel=0.01)
    few = limit(3 * 11.7, FakeClock())
    assert few.waiting == [SIX[0], SIX[1], SIX[3]]
    assert few.share() == pytest.approx(LEAST_BUDGET, rel=0.1)


def test_a_case_that_took_less_leaves_its_time_to_the_others() -> None:
    clock = FakeClock()
    made = limit(6 * 14, clock)
    first = made.begin(SIX[0])
    clock.advance(2.0)
    second = made.begin(SIX[1])
    assert first is not None and second is not None and second > first


def test_a_case_that_took_longer_takes_rounds_and_then_cases_from_the_others() -> None:
    clock = FakeClock()
    made = limit(6 * 14, clock)
    made.begin(SIX[0])
    clock.advance(20.0)
    assert made.begin(SIX[1]) == pytest.approx(1.75, rel=0.02)
    clock.advance(55.0)
    assert [made.begin(nodeid) for nodeid in SIX[2:]] == [None] * 4
    assert made.skipped == SIX[2:]


def test_the_first_case_runs_however_short_the_time_is() -> None:
    made = limit(1.0, FakeClock())
    assert [made.begin(nodeid) for nodeid in SIX[:2]] == [LEAST_BUDGET, None]
    assert made.skipped == SIX[1:2]


def test_a_budget_that_is_small_already_gets_no_larger() -> None:
    made = TimeLimit(1.0, 0.3, FakeClock())
    made.choose(SIX)
    assert made.share() == 0.3


def test_what_no_journal_knows_is_taken_from_its_function_or_assumed() -> None:
    made = TimeLimit(100.0, 5.0, FakeClock())
    for nodeid, seconds in zip(SIX, (3.0, 2.0)):
        made.learn(nodeid, Expected(seconds))
    assert [made.expected(nodeid).overhead for nodeid in SIX[:3]] == [3.0, 2.0, 3.0]
    assert made.expected(SIX[3]) == UNKNOWN


def test_a_record_says_what_its_case_takes() -> None:
    one = benchmark("alpha", rate=100.0)
    assert expected_of(one) is None  # an older record
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


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (6 * 18, []),
        (6 * 18 - 0.2, []),  # 4.98 s of 5
        (6 * 14, ["--within=84s: a case gets about 2.5s of rounds instead of 5s"]),
    ],
)
def test_the_header_says_what_of_its_budget_a_case_gets(seconds: float, said: List[str]) -> None:
    config = config_of(limit(seconds, FakeClock()), seconds)
    assert within.pytest_report_collectionfinish(config) == said


def test_of_no_case_the_header_says_nothing() -> None:
    config = config_of(TimeLimit(-1.0, 5.0, FakeClock()), 1.0)
    assert within.pytest_report_collectionfinish(config) == []


def config_of(made: TimeLimit, seconds: float = 84.0) -> Any:
    """Return what a run with a limit has of its configuration."""
    run = SimpleNamespace(results=SimpleNamespace(benchmarks={}))
    option = SimpleNamespace(within=seconds, budget=5.0)
    return SimpleNamespace(option=option, stash={within.limit_key: made, run_key: run})


def item_of(config: Any, nodeid: str, case: Any = "a case") -> Any:
    """Return a test of a run; without a case it measures nothing."""
    return SimpleNamespace(nodeid=nodeid, config=config, stash={case_key: case})


def test_a_case_has_its_share_until_the_time_is_over() -> None:
    clock = FakeClock()
    made = limit(84.0, clock)
    config = config_of(made)
    within.pytest_runtest_setup(item_of(config, SIX[0]))
    assert config.option.budget == pytest.approx(2.5, rel=0.01)
    clock.advance(90.0)
    said = "--within=84s: 0 s are left, and the case takes about 12 s"
    with pytest.raises(pytest.skip.Exception, match=f"^{said}$"):
        within.pytest_runtest_setup(item_of(config, SIX[1]))
    assert made.skipped == SIX[1:2]


def test_a_test_that_is_no_case_runs_when_the_time_is_over() -> None:
    made = TimeLimit(-1.0, 5.0, FakeClock())
    config = config_of(made)
    made.begin(SIX[0])
    try:
        within.pytest_runtest_setup(item_of(config, "test.py::test_plain", case=None))
    except pytest.skip.Exception:
        pytest.fail("it was skipped")
    assert config.option.budget == 5.0


def test_what_a_case_took_is_learned_at_its_end() -> None:
    made = limit(84.0, FakeClock())
    config = config_of(made)
    list(within.pytest_runtest_protocol(item_of(config, SIX[0])))
    assert made.known[SIX[0]].overhead == 10.0  # it was not measured
    one = benchmark("1", "bench.py::bench_a")
    one["extra_info"]["ipubench"]["spent"] = {"compile": 3.0}
    config.stash[run_key].results.benchmarks[SIX[0]] = one
    list(within.pytest_runtest_protocol(item_of(config, SIX[0])))
    assert made.known[SIX[0]].overhead == 3.0


def test_what_was_skipped_is_none_of_the_runs_cases() -> None:
    made = limit(84.0, FakeClock())
    config = config_of(made)
    added: List[Dict[str, Any]] = []
    run = SimpleNamespace(order=list(SIX), closing=[], add=added.append)
    config.stash[run_key] = run
    session: Any = SimpleNamespace(config=config)
    within.pytest_sessionfinish(session)
    assert (run.order, added, run.closing) == (SIX, [], [])
    made.skipped = SIX[1:]
    within.pytest_sessionfinish(session)
    assert (run.order, added) == (SIX[:1], [{"type": "selected", "cases": SIX[:1]}])
    assert run.closing == ["5 cases were skipped: the time of --within=84s was over"]


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
