"""`--against=PYTHON`: cases measured alternately here and in another environment."""

from __future__ import annotations

import sys
from typing import Any, Dict, List

import pytest

from ipubench.plugins.processes.place import Place
from tests.support.harness import Project, SuiteServer

# Runs the suite many times, so Python 3.8 skips it (make test38).
pytestmark = pytest.mark.slow

SYNTHETIC = ["-k", "beta-synthetic", "--gate-cap=3"]


def interpreter(project: Project, variables: str = "", program: str = "") -> str:
    """Create another interpreter, which is this one with another name; return the option.

    It runs the suite server or ``program``, a command.
    """
    if not program:
        program = f"'{project.folder / 'python'}'"
        SuiteServer.python(project.folder / "python")
    path = project.folder / "other python"
    path.write_text(f'#!/bin/sh\n{variables} exec {program} "$@"\n')
    path.chmod(0o755)
    return f"--against={path}"


def test_the_other_environment_keeps_none_of_our_paths() -> None:
    ours = {"PATH": "/bin", "PYTHONPATH": "/sdk/python", "VIRTUAL_ENV": "/here"}
    other = Place("/there/python", ["/project", "/plugins"])
    assert other.variables(ours) == {"PATH": "/bin", "PYTHONPATH": "/project:/plugins"}


def test_version_changes_are_reported() -> None:
    other = Place("", [], {"python": "3.8.18", "torch": "2.0.1", "keras": "2", "numpy": "1.24"})
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
    # Starts like a user's interpreter.
    option = interpreter(project, "SIDE=there IPUBENCH_FAKE_SLOWDOWN=0.8", sys.executable)
    outcome = project.run(*SYNTHETIC, option, "--gate=5%").assert_code(1)
    outcome.line("beta-synthetic has become slower: 5000 items/s before, 4000 items/s now.")
    outcome.line("3 pairs of processes measure 1 case")
    outcome.line("  beta-synthetic: pair 3: 5,000 items/s there, -20.0% here (")
    outcome.line("the same versions")
    outcome.line("regressed: bench_fake.py::bench_fake[beta-synthetic]")
    assert "Traceback" not in outcome.text
    # Both processes once per pair, then the case's own test.
    order = (project.folder / "order").read_text().split()
    assert (order[-1], order.count("here"), order.count("there")) == ("here", 4, 3)
    kinds = [line["type"] for line in project.journal()]
    start = kinds.index("case")
    assert kinds[start : start + 6] == ["case", *["pair"] * 3, "verdict", "begin"]
    pairs = [line for line in project.journal() if line["type"] == "pair"]
    assert [pair["here_first"] for pair in pairs] == [True, False, True]
    check_turns(pairs)


def check_turns(pairs: List[Dict[str, Any]]) -> None:
    """Check that both processes alternate with the same batches."""
    for pair in pairs:
        rounds, first = pair["rounds"], pair["rounds"]["here_first"]
        # Calibrated for rounds of 5 ms: 2.5 batches here, 3.1 there. The larger number is used.
        batches = pair["here"]["stats"]["iterations"]
        assert batches == 3
        for side in ("here", "there"):
            assert pair[side]["stats"]["iterations"] == batches
            assert len(rounds[side]["seconds"]) == len(first) == pair[side]["stats"]["rounds"]
        assert rounds["here"]["seconds"] == [pytest.approx(batches * 0.002)] * len(first)
        assert rounds["there"]["seconds"] == [pytest.approx(batches * 0.0016)] * len(first)
        # In every second pair of rounds this process is first.
        assert [first[k] + first[k + 1] for k in range(0, len(first), 2)] == [1] * (len(first) // 2)
        assert rounds["stopped_by"] == "precision"


def test_a_case_that_fails_there_is_incomparable(project: Project) -> None:
    """Even after its measurement, and however long its message is."""
    source = (project.folder / "bench_fake.py").read_text()
    last = "flops=config.flops or None)\n"
    failing = '    assert "SIDE" not in os.environ, "wrong result\\n" + 100_000 * "x"\n'
    (project.folder / "bench_fake.py").write_text(source.replace(last, last + failing))
    option = interpreter(project, "SIDE=there")
    outcome = project.run(*SYNTHETIC, option, "--gate=5%").assert_code(6)
    line = outcome.line("incomparable: bench_fake.py::bench_fake[beta-synthetic]")
    assert line.endswith("it does not run there: AssertionError: wrong result")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--against=./nowhere/python"], 4, "--against=./nowhere/python"),
        (["--against=bench_fake.py"], 4, "--against=bench_fake.py"),
        (["--against=/bin/true"], 4, "it cannot run the suite"),
        (["--against=/bin/true", "--baseline=main"], 4, "--baseline"),
        (["--against=/bin/true", "--profile=folder"], 4, "--profile"),
        ([f"--against={sys.executable}", "--gate=5%"], 6, "nothing is compared"),
    ],
)
def test_an_unusable_environment_is_refused_before_any_measurement(
    project: Project, words: List[str], code: int, said: str
) -> None:
    outcome = project.run(*words).assert_code(code)
    assert said in outcome.text and "Traceback" not in outcome.text
    assert not project.journals()


def test_without_a_gate_the_difference_is_shown(project: Project) -> None:
    option = interpreter(project, "IPUBENCH_FAKE_SLOWDOWN=0.8")
    outcome = project.run(*SYNTHETIC, option).assert_code(0)
    assert outcome.line("  beta-synthetic ").split()[-1] == "-20.0%"
    outcome.line("1 not judged")
