"""Another plugin or a conftest.py has options with the same names as ours."""

from __future__ import annotations

import pytest

from ipubench.plugins.command_line.options import sections
from tests.support.harness import Project
from tests.support.own_project import OwnProject

#: Options of pytest-playwright and pytest-resume, and others with and without a value.
OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--sweep")
    parser.addoption("--device", action="append", default=[])
    parser.getgroup("theirs").addoption("--resume", action="store_true")
    parser.addoption("--budget", type=int, default=3)
    parser.addoption("--report", action="store_true", dest="results_dir")
"""
TESTS = """
from ipubench.fixtures.command_line import options_of

def test_theirs(request):
    config = request.config
    ours = options_of(config)
    assert (ours.device, ours.budget, ours.report, ours.steps) == ("cpu", 0.05, "seen", 3)
    assert config.getoption("--device") == ["pixel"] == config.option.device
    assert (config.getoption("--budget"), config.option.budget) == (7, 7)
    assert config.getoption("--report") is True is config.option.results_dir
    assert config.getoption("--resume") is False


def test_work(benchmark):
    benchmark(sum, range(100))
"""
THEIRS = ("--device=pixel", "--budget", "7", "--report")
HEADER = "has --device, --sweep, --budget, --resume, --report; write --ipubench-device, "


@pytest.mark.parametrize("where", ["conftest", "-p before", "-p after", "names us", "environment"])
def test_each_has_its_own_value(own: OwnProject, where: str) -> None:
    ours = "--ipubench-device=cpu --ipubench-report=seen --ipubench-budget=0.05s"
    words = ["-p", "ipubench"]
    if where in ("conftest", "names us"):
        (own.folder / "tests" / "conftest.py").write_text(OPTIONS)
    else:
        (own.work.parent / "theirs.py").write_text(OPTIONS)
        words = {
            "-p before": ["-p", "theirs", *words],
            "-p after": [*words, "-p", "theirs"],
            "environment": words,
        }[where]
        if where == "environment":
            own.environment["PYTEST_PLUGINS"] = "theirs"
    if where == "names us":
        (own.folder / "conftest.py").write_text(OPTIONS + 'pytest_plugins = ["ipubench"]\n')
        (own.folder / "tests" / "conftest.py").write_text("")
        words = []
    (own.folder / "pytest.ini").write_text(f"[pytest]\naddopts = {ours}\ntestpaths = tests\n")
    own.write(TESTS)
    outcome = own.run(*words, "--steps=3", *THEIRS, "-k", "theirs").assert_code(0)
    outcome.line(HEADER)
    outcome.line("1 passed")


def test_workers_and_other_processes_have_both(own: OwnProject) -> None:
    (own.folder / "tests" / "conftest.py").write_text(OPTIONS)
    own.write(TESTS)
    (own.folder / "pytest.ini").write_text("[pytest]\naddopts = -p ipubench\n")
    ours = ("--ipubench-device=cpu", "--ipubench-budget=0.05s", "--ipubench-report=seen")
    saving = ("--steps=3", "--processes=2", "--keep-disturbed", "--baseline-save=main", "-n", "1")
    outcome = own.run(*THEIRS, *ours, *saving).assert_code(0)
    outcome.line(HEADER)
    outcome.line("baseline with 1 case")  # two processes measured it
    assert (own.folder / "seen" / "report.html").is_file()
    again = own.run(*THEIRS, *ours, *saving, "--ipubench-resume").assert_code(0)
    assert "a new run" not in again.text


def test_a_late_conftest_may_declare_the_same_names(own: OwnProject) -> None:
    late = own.folder / "tests" / "part"
    late.mkdir()
    (late / "conftest.py").write_text(OPTIONS)
    (late / "test_late.py").write_text(
        "def test_late(request):\n    assert request.config.getoption('--budget') == 3\n"
    )
    own.run("--device=cpu", "--budget", "0.05s").assert_code(0).line("1 passed")


def test_a_value_of_a_short_spelling_is_not_taken_for_a_path(own: OwnProject) -> None:
    """Otherwise pytest would look for the first conftest.py there and not below testpaths."""
    (own.folder / "tests" / "conftest.py").write_text(OPTIONS.replace("--", "--their-"))
    (own.folder / "pytest.ini").write_text("[pytest]\naddopts = -p ipubench\ntestpaths = tests\n")
    (own.folder / "cpu").mkdir()
    own.write("def test_one(request):\n    assert request.config.option.their_budget == 7\n")
    outcome = own.run("--device", "cpu", "--budget", "0.05s", "--their-budget=7").assert_code(0)
    assert "another plugin" not in outcome.text


def test_help_has_one_line_and_all_options_on_request(own: OwnProject) -> None:
    (own.folder / "tests" / "conftest.py").write_text(OPTIONS)
    shown = own.listed("--help-ipubench", "tests").assert_code(0).text
    options = [option for section in sections() for option in section.options]
    names = {option.name for option in options if not option.is_hidden}
    assert [name for name in names if f"  --{name}" not in shown and name not in HEADER] == []
    assert "  --ipubench-device " in shown and "  --device " not in shown
    usual = own.run("--help").assert_code(0).text
    assert "--help-ipubench " in usual and "--ipubench" not in usual and "--dry-run" not in usual


def test_the_suite_accepts_both_spellings(project: Project) -> None:
    words = ("-k", "beta", "--ipubench-set=batch_size=4", "--set", "layers=2")
    outcome = project.listed("--collect-only", "-q", "--ipubench-device=fake", *words).assert_code(
        0
    )
    assert "another plugin" not in outcome.text
