"""`--against=PYTHON`: cases measured in turns here and in another environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.processes.other_python import Environment
from tests.support.harness import Project, SuiteServer

# Many runs of the suite; the older Python leaves them out (make test38).
pytestmark = pytest.mark.slow

SYNTHETIC = ["-k", "beta-synthetic", "--gate-cap=3"]


def interpreter(project: Project, variables: str = "", program: str = "") -> str:
    """Make another interpreter: this one, under a name of its own; return the option.

    The suite server stands for it, or ``program``, a command.
    """
    if not program:
        program = f"'{project.folder / 'python'}'"
        SuiteServer.python(project.folder / "python")
    path = project.folder / "other python"
    path.write_text(f'#!/bin/sh\n{variables} exec {program} "$@"\n')
    path.chmod(0o755)
    return f"--against={path}"


def test_the_other_environment_keeps_nothing_of_ours() -> None:
    ours = {"PATH": "/bin", "PYTHONPATH": "/sdk/python", "VIRTUAL_ENV": "/here"}
    other = Environment("/there/python", ["/project", "/plugins"], {})
    assert other.variables(ours) == {"PATH": "/bin", "PYTHONPATH": "/project:/plugins"}


def test_changes_of_versions_are_told() -> None:
    other = Environment(
        "", [], {"python": "3.8.18", "torch": "2.0.1", "keras": "2", "numpy": "1.24"}
    )
    now = {"torch": "2.13.0", "python": "3.11.7", "onnxruntime": "1.31.1", "numpy": "1.24"}
    assert other.changes(now) == (
        "python 3.8.18 -> 3.11.7, torch 2.0.1 -> 2.13.0, keras 2 -> none, "
        "onnxruntime none -> 1.31.1"
    )
    assert other.changes(other.versions) == "the same versions"


@pytest.mark.entry_point
def test_a_case_that_is_slower_here_fails_with_one_paragraph(project: Project) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    noting = source.replace(
        'if config.trouble == "error":',
        'with open("order", "a") as file:\n'
        '        file.write(os.environ.get("SIDE", "here") + " ")\n'
        '    if config.trouble == "error":',
    )
    (project.folder / "bench_fake.py").write_text(noting)
    # As a user's interpreter starts.
    option = interpreter(project, "SIDE=there IPUBENCH_FAKE_SLOWDOWN=0.8", sys.executable)
    outcome = project.run(*SYNTHETIC, option, "--gate=5%").assert_code(1)
    outcome.line("beta-synthetic has become slower: 5000 items/s before, 4000 items/s now.")
    outcome.line("up to 3 pairs of processes for each of 1 case: ")
    outcome.line("  beta-synthetic: pair 3: 5,000 items/s there, -20.0% here (")
    outcome.line("versions there and here: the same versions")
    outcome.line("regressed: bench_fake.py::bench_fake[beta-synthetic]")
    assert "Traceback" not in outcome.text
    # The case's own test, then both sides once for each pair.
    order = (project.folder / "order").read_text().split()
    assert (order[0], order.count("here"), order.count("there")) == ("here", 4, 3)
    kinds = [line["type"] for line in project.journal()]
    start = kinds.index("case")
    assert kinds[start : start + 5] == ["case", "pair", "pair", "pair", "verdict"]
    pairs = [line for line in project.journal() if line["type"] == "pair"]
    assert [pair["here_first"] for pair in pairs] == [True, False, True]
    check_turns(pairs)


def check_turns(pairs: List[Dict[str, Any]]) -> None:
    """Both sides take turns with the same batches."""
    for pair in pairs:
        rounds, first = pair["rounds"], pair["rounds"]["here_first"]
        # Calibrated for rounds of 0.1 s: 50 batches here, 62.5 there. The larger number holds.
        batches = pair["here"]["stats"]["iterations"]
        assert batches in (62, 63)
        for side in ("here", "there"):
            assert pair[side]["stats"]["iterations"] == batches
            assert len(rounds[side]["seconds"]) == len(first) == pair[side]["stats"]["rounds"]
        assert rounds["here"]["seconds"] == [pytest.approx(batches * 0.002)] * len(first)
        assert rounds["there"]["seconds"] == [pytest.approx(batches * 0.0016)] * len(first)
        # Of each two pairs of rounds one begins here.
        assert [first[k] + first[k + 1] for k in range(0, len(first), 2)] == [1] * (len(first) // 2)
        assert rounds["stopped_by"] == "precision"
        assert len(first) == 12


def test_the_run_says_when_time_is_over(project: Project) -> None:
    option = interpreter(project, "IPUBENCH_FAKE_SLOWDOWN=0.8")
    words = ["-k", "beta", "--gate-cap=3", option, "--gate=5%"]
    outcome = project.run(*words, "--gate-time=1s").assert_code(0)
    outcome.line("each of 2 cases: a few seconds at most")
    outcome.line("2 inconclusive")
    outcome.line("its share of the gate's time (--gate-time, or a third of --within) was over")


def test_an_interpreter_is_not_compared_with_itself(project: Project) -> None:
    words = ("-k", "beta-synthetic", f"--against={sys.executable}")
    project.run(*words, "--gate=5%").assert_code(6)
    assert not project.journals()
    project.run(*words).assert_code(0)
    assert "pair" not in [line["type"] for line in project.journal()]


def test_a_case_that_does_not_run_there_is_incomparable(project: Project) -> None:
    """So is one that fails there after its measurement, whatever the length of its message."""
    source = (project.folder / "bench_fake.py").read_text()
    failing = source.replace(
        'if config.trouble == "error":',
        'if "SIDE" in os.environ and "beta-synthetic" in str(meter.case):\n'
        '        raise CaseError("there is no such operator in this version")\n'
        '    if config.trouble == "error":',
    )
    failing = failing.replace(
        "flops=config.flops or None)\n",
        "flops=config.flops or None)\n"
        '    assert "SIDE" not in os.environ, "wrong result\\n" + 100_000 * "x"\n',
    )
    (project.folder / "bench_fake.py").write_text(failing)
    option = interpreter(project, "SIDE=there")
    words = ("-k", "beta-synthetic or alpha-bs8-synthetic", "--gate-cap=3", option, "--gate=5%")
    outcome = project.run(*words).assert_code(6)
    line = outcome.line("incomparable: bench_fake.py::bench_fake[alpha-bs8-synthetic]")
    assert line.endswith("it does not run there: AssertionError: wrong result")
    line = outcome.line("incomparable: bench_fake.py::bench_fake[beta-synthetic]")
    assert "it does not run there: there is no such operator in this version" in line
    outcome.line("2 incomparable")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--against=./nowhere/python"], "--against=./nowhere/python: is not there; name the"),
        (["--against=bench_fake.py"], "--against=bench_fake.py: cannot be executed"),
        (["--against=main"], "such as /opt/old/bin/python, or a revision, such as git:main"),
        (["--against=/bin/true"], "it cannot run the suite: it says nothing; install"),
        (["--against=/bin/true", "--baseline=main"], "leave out --baseline"),
        (["--against=/bin/true", "--profile=folder"], "leave out --profile"),
    ],
)
def test_an_environment_of_no_use_costs_no_measurement(
    project: Project, words: List[str], message: str
) -> None:
    outcome = project.run(*words).assert_code(4)
    assert message in outcome.text
    assert "Traceback" not in outcome.text
    assert not project.journals()


def test_an_environment_that_has_the_suite_not_installed_does_not_warn(project: Project) -> None:
    words = ("-p", "pytest_benchmark.plugin", "--collect-only", "-q")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    assert "warning" not in project.run(*words, env=alone).assert_code(0).text


def test_an_environment_without_the_suites_needs_says_what_is_missing(project: Project) -> None:
    option = interpreter(project, program=f"{sys.executable} -S")
    outcome = project.run(option).assert_code(4)
    assert "No module named 'pytest'; install what the suite needs there: " in outcome.text
    assert f"{Path(option[10:])} -m pip install" in outcome.text


def test_another_version_there_is_measured_anew(project: Project) -> None:
    option = interpreter(project, "IPUBENCH_FAKE_SLOWDOWN=0.8")
    outcome = project.run(*SYNTHETIC, option).assert_code(0)
    # Without a gate the difference is shown.
    assert outcome.line("  beta-synthetic ").split()[-1] == "-20.0%"
    outcome.line("1 not judged")
    # What pairs would say does not matter from here on: there is no time for any.
    words = [*SYNTHETIC, option, "--gate-time=0.001s"]
    project.run(*words).assert_code(0).line("1 inconclusive")
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("1 case is done")
    assert "pairs of processes" not in outcome.text  # none is to be measured
    installed = project.folder / "installed" / "torch-9.9.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: torch\nVersion: 9.9\n")
    interpreter(project, f"PYTHONPATH='{installed.parent}:'$PYTHONPATH")
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("0 cases are done; 1 measured anew, since the other environment changed")
    assert "torch" in outcome.line("versions there and here")
