"""`pytest -n N`: the workers' measurements form one run, the same as without workers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Set

import pytest

from tests.support.harness import Project, holding, run_pytest

pytest.importorskip("xdist", reason="pytest-xdist is not installed: pip install pytest-xdist")

BETA = "bench_fake.py::bench_fake[beta-synthetic]"


def edit(project: Project, old: str, new: str) -> None:
    path = project.folder / "bench_fake.py"
    source = path.read_text()
    assert old in source
    path.write_text(source.replace(old, new))


def figures(
    benchmarks: List[Dict[str, Any]], number: Callable[[Any], Any] = lambda value: value
) -> Dict[str, Any]:
    """Return the values that two runs have in common, by node id.

    In one of them ``number`` is pytest.approx: the fake clock rounds at other places.
    """
    found = {}
    for benchmark in benchmarks:
        record = benchmark["extra_info"]["ipubench"]
        found[benchmark["fullname"]] = {
            "seconds": number(benchmark["stats"]["data"]),
            "rate": number(record["throughput"]["median"]),
            **{key: benchmark[key] for key in ("name", "params", "param", "group")},
            **{key: record[key] for key in ("config_hash", "conditions", "rounds", "data")},
        }
        found[benchmark["fullname"]]["rounds"].pop("dropped_seconds")
    return found


@pytest.mark.entry_point
def test_workers_give_the_table_the_journal_and_the_files_of_a_serial_run(
    project: Project,
) -> None:
    words = ("-k", "beta or bs8", "--set=noise=0.1", "--processes=1", "--benchmark-json=out.json")
    serial = project.run(*words, "--baseline-save=serial").assert_code(0)
    alone = json.loads((project.folder / "out.json").read_text())["benchmarks"]
    kinds = sorted(line["type"] for line in project.journal())
    (project.folder / "out.json").unlink()

    parallel = project.run(*words, "--baseline-save=parallel", "-n", "2").assert_code(0)
    assert parallel.table == serial.table
    assert sorted(line["type"] for line in project.journal()) == kinds
    together = json.loads((project.folder / "out.json").read_text())["benchmarks"]
    assert figures(together) == figures(alone, pytest.approx)
    before, now = (project.baseline(name)["benchmarks"] for name in ("serial", "parallel"))
    assert len(before) == 4
    assert figures(now) == figures(before, pytest.approx)
    assert {one["extra_info"]["ipubench"]["workers"] for one in before} == {1}
    assert {one["extra_info"]["ipubench"]["workers"] for one in now} == {2}


def test_pytest_benchmark_saves_and_compares(project: Project) -> None:
    words = ("-k", "beta", "-n", "2")
    project.run(*words, "--benchmark-save=one", "--benchmark-only").assert_code(0)
    (saved,) = project.folder.glob(".benchmarks/*/0001_one.json")
    assert len(json.loads(saved.read_text())["benchmarks"]) == 2
    compare = ("--benchmark-compare", "--benchmark-compare-fail=mean:5%")
    project.run(*words, *compare).assert_code(0)
    slow = project.run(*words, *compare, env={"IPUBENCH_FAKE_SLOWDOWN": "3"})
    assert slow.code != 0
    assert "Performance has regressed" in slow.text


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline of all cases."""
    measured = Project(tmp_path_factory.mktemp("measured"))
    measured.run("--baseline-save=main", "--processes=1").assert_code(0)
    return measured.folder / "baselines"


def test_workers_judge_and_the_controller_reports(stored: Project) -> None:
    words = ("--baseline=main", "--gate=10%", "-n", "2")
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "1.2"}
    outcome = stored.run("-k", "beta", *words, env=slow).assert_code(1)
    outcome.line(f"  regressed: {BETA}")
    outcome.line("5 cases of the baseline")
    message = outcome.line("beta-synthetic has become slower: ")
    assert str(stored.journals()[-1].relative_to(stored.folder)) in message
    kinds = [line["type"] for line in stored.journal()]
    assert kinds.count("fresh") >= 2 and kinds.count("verdict") == 2
    names = {line["case"] for line in stored.journal() if line["type"] == "verdict"}
    assert names == {BETA, BETA.replace("synthetic", "generated")}

    edit(stored, '"beta"', '"renamed"')
    outcome = stored.run(*words).assert_code(1)
    outcome.line(f"  missing: {BETA}")
    outcome.line("5 pass")


def test_a_killed_worker_loses_one_case_which_resume_measures(project: Project) -> None:
    """It dies during a case, while it holds the host's lock; the other worker still continues."""
    lost = BETA.replace("synthetic", "generated")
    source = (project.folder / "bench_fake.py").read_text()
    edit(project, 'if config.trouble == "kill"', 'if "beta-generated" in str(meter.case)')
    outcome = project.run("-n", "2").assert_code(1)
    assert " bench_fake[beta-generated] CRASHED (" in outcome.text
    outcome.line(f"crashed while running '{lost}'")
    assert len(project.records()) == 6
    outcomes = {line["case"]: line["outcome"] for line in project.journal() if "outcome" in line}
    assert len(outcomes) == 7
    assert [case for case, outcome in outcomes.items() if outcome != "passed"] == [lost]
    assert "INTERNALERROR" not in outcome.text

    (project.folder / "bench_fake.py").write_text(source)
    outcome = project.run("-n", "2", "--resume").assert_code(0)
    outcome.line(": 6 cases are done")
    outcome.line("[1/1] bench_fake[beta-generated] 4,000 items/s")
    assert len(outcome.table) == 7
    assert len(project.journals()) == 1


def test_a_worker_refuses_what_only_the_selection_shows(project: Project) -> None:
    outcome = project.run("-n", "2", "--set=flavor=sweet").assert_code(4)
    outcome.line("did you mean flavour?")
    assert "Traceback" not in outcome.text
    assert "INTERNALERROR" not in outcome.text


def test_a_usage_error_ends_the_controller(project: Project) -> None:
    for words, message in (
        ("-n 2 --baseline=gone", "there is no baseline"),
        ("-n 2 --results-dir=bench_fake.py/results", "--results-dir="),
        ("-n 2 --device-id=1", "--device-id=1 with -n 2: "),
        ("-n 2 --against=python3", "--against with several workers: "),
        ("-n 2 --dist=each", "--dist=each: "),
        ("-n 2 --dist=loadgroup", "--dist=loadgroup: "),
        ("--dist=load", "add -n N"),
        ("-n 2 --benchmark-cprofile=tottime", "--benchmark-cprofile with several workers: "),
        ("-p no:xdist -n 2", "-n"),
    ):
        project.refused(*words.split()).line(message)


def test_a_device_that_cannot_be_attached_ends_the_run_once(project: Project) -> None:
    project.environment.pop("POPLAR_SDK_ENABLED", None)
    outcome = project.run("-n", "1", "--device=ipu", "-k", "gamma").assert_code(4)
    outcome.line("Exit: --device=ipu")
    assert "Traceback" not in outcome.text
    assert "INTERNALERROR" not in outcome.text


def test_the_controller_waits_for_a_device_and_names_its_holder(project: Project) -> None:
    words = ("-k", "beta", "--device-timeout=0.5")
    two = {"IPUBENCH_FAKE_COUNT": "2"}
    with holding("fake-1", project.environment) as holder:
        project.refused(*words, "-n", "2", env=two).line(f"by process {holder}")
        project.run(*words, "-n", "1", env=two).assert_code(0)


def devices_used(project: Project) -> Set[int]:
    return {record["device"]["details"]["device_id"] for record in project.records().values()}


def test_auto_is_one_worker_per_device_with_one_header(project: Project) -> None:
    outcome = project.run("-n", "auto", env={"IPUBENCH_FAKE_COUNT": "2"}).assert_code(0)
    outcome.line("2 workers [7 items]")
    assert devices_used(project) == {0, 1}
    outcome.line("results: results/run-")
    outcome.line("2 cases need 4 IPUs: --device=ipu")
    outcome.line("collected 11 items / 4 deselected / 7 selected")
    for number in range(1, 8):
        outcome.line(f"[{number}/7] bench_")
    assert len(project.journals()) == 1


def test_a_replacement_worker_takes_over_the_device_of_the_lost_one(project: Project) -> None:
    edit(project, 'if config.trouble == "kill"', 'if "beta-generated" in str(meter.case)')
    project.run("-n", "2", env={"IPUBENCH_FAKE_COUNT": "2"}).assert_code(1)
    assert len(project.records()) == 6
    assert devices_used(project) <= {0, 1}


def test_listings_need_no_workers(project: Project) -> None:
    alone = project.listed("-k", "beta", "--dry-run").assert_code(0)
    outcome = project.listed("-k", "beta", "--dry-run", "-n", "2").assert_code(0)
    assert [line for line in outcome.lines if "beta" in line] == [
        line for line in alone.lines if "beta" in line
    ]
    assert " workers" not in outcome.text  # the word may be in the project's path


def test_a_plugin_that_fails_in_a_worker_ends_the_run(project: Project) -> None:
    project.add_to_conftest(
        "class Broken:\n"
        "    def pytest_runtest_logfinish(self):\n"
        "        raise KeyError('broken')\n"
        "def pytest_configure(config):\n"
        "    if hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Broken())\n"
    )
    project.run("-k", "beta", "-n", "1").assert_code(3).line("KeyError: 'broken'")


def test_messages_of_workers_come_at_the_end(project: Project) -> None:
    words = ("-k", "beta", "--set=compile_only=yes", "-n", "2")
    outcome = project.run(*words).assert_code(0)
    outcome.line("beta-synthetic: built in 1.0 s, compiled in 2.0 s, not run")
    outcome.line("beta-generated: built in 1.0 s, compiled in 2.0 s, not run")


def test_an_error_in_a_case_is_its_message(project: Project) -> None:
    words = ("-k", "beta", "--set=trouble=error", "-n", "2", "--maxfail=2")
    outcome = project.run(*words).assert_code(1)
    assert "interrupted with" not in outcome.text
    assert "broken on purpose" in outcome.text
    assert "Traceback" not in outcome.text
    assert outcome.text.count("] FAILED (") == 2


def test_a_file_that_cannot_be_imported_is_reported_once(project: Project) -> None:
    (project.folder / "bench_broken.py").write_text("import nothing_of_this_name\n")
    words = ("bench_broken.py", "--baseline-save=main", "-n", "2")
    outcome = project.run(*words).assert_code(2)
    outcome.line("ERROR collecting bench_broken.py")
    outcome.line("no baseline was written")
    assert "--resume" not in outcome.text


def test_an_empty_selection_measures_nothing(project: Project) -> None:
    project.run("-k", "no_such_case", "-n", "2").assert_code(5)


def test_a_quiet_run_prints_no_lines_and_junit_does_not_get_the_journal(
    project: Project, tmp_path: Path
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = ("-k", "beta", "-n", "2", "-q", "--junitxml=out.xml")
    outcome = project.run(*words, env={"TMPDIR": str(folder)}).assert_code(0)
    assert "[1/2]" not in outcome.text
    outcome.line("  beta-synthetic ")
    text = (project.folder / "out.xml").read_text()
    assert text.count("<testcase") == 2
    assert "benchmark" not in text
    left = [path for path in folder.iterdir() if not path.name.startswith("pytest-of-")]
    assert left == []


def test_everything_else_works_without_xdist(project: Project) -> None:
    project.run("-k", "beta", "-p", "no:xdist").assert_code(0)


def test_a_process_started_by_a_worker_is_not_a_worker(project: Project) -> None:
    """A fresh process would otherwise act as one, and pytest-benchmark would not measure."""
    edit(
        project,
        "    kept = config.model_cache_path",
        "    assert not [name for name in os.environ if name.startswith('PYTEST_XDIST')]\n"
        "    kept = config.model_cache_path",
    )
    # Its logs stay with the results.
    project.add_to_conftest(
        "from ipubench.fixtures.pytest_fixtures import shared_of\n"
        "@pytest.fixture(autouse=True)\n"
        "def elsewhere(request, monkeypatch, tmp_path):\n"
        "    monkeypatch.chdir(tmp_path)\n"
        "    assert __import__('os').path.isdir(shared_of(request.config).results_dir)\n"
    )
    project.run("-k", "beta", "-n", "2").assert_code(0)


def test_ordinary_tests_may_run_in_workers(project: Project) -> None:
    tests = project.folder / "tests"
    tests.mkdir()
    (tests / "test_one.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('to', ['a@b', 'a@c'])\n"
        "def test_one(to):\n    assert to == 'a@b'\n"
    )
    outcome = run_pytest(project.folder, project.environment, "tests", "-n", "2").assert_code(1)
    outcome.line("FAILED tests/test_one.py::test_one[a@c] - ")
    assert not os.path.exists(str(project.folder / "results"))


FIXTURES = """
import pytest

@pytest.fixture(scope="module")
def table():
    with open("made", "a") as file:
        file.write("made ")
    yield [1, 2]
    with open("made", "a") as file:
        file.write("gone ")

@pytest.mark.parametrize("n", [1, 2, 3])
def test_sum(benchmark, table, n):
    benchmark(sum, table)
"""


def test_a_module_fixture_lives_as_long_as_a_worker_has_its_tests(project: Project) -> None:
    files = ("test_one.py", "test_two.py")
    for name in files:
        (project.folder / name).write_text(FIXTURES)
    words = (*files, "-k", "test_sum", "--budget=0.01", "--device=cpu", "-n", "1")
    project.run(*words).assert_code(0).line("6 passed")
    assert (project.folder / "made").read_text() == "made gone made gone "
