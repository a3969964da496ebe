"""`--against=PYTHON`: cases measured in turns here and in another environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.compare.against_plugin import Sides, answers, incomparable, verdict
from ipubench.plugins.processes.other_python import Environment
from tests.support.harness import Project

# Many runs of the suite; the older Python leaves them out (make test38).
pytestmark = pytest.mark.slow

SYNTHETIC = ["-k", "beta-synthetic", "--gate-cap=3"]


def interpreter(project: Project, variables: str = "", words: str = "") -> str:
    """Make another interpreter: this one, under a name of its own; return the option."""
    path = project.folder / "other python"
    path.write_text(f'#!/bin/sh\n{variables} exec {sys.executable} {words} "$@"\n')
    path.chmod(0o755)
    return f"--against={path}"


def benchmark(seconds: float, latency: float = 1.0, **record: Any) -> Dict[str, Any]:
    """Return a benchmark with what a comparison reads."""
    full: Dict[str, Any] = {
        "config_hash": "abc",
        "device": {"fingerprint": "cpu"},
        "effective_options": {},
        "conditions": {},
        "effective": {"precision": "float32"},
        "data": {"mode": "synthetic"},
        "throughput": {"unit": "items/s", "median": 8 / seconds},
        "items_per_round": 8.0,
        "canary": {"seconds": [0.001]},
        "compile": "fresh",
        "compile_seconds": 2.0,
        "latency": {"p99_ms": latency},
        "memory": {"host_peak_rss_bytes": 1000},
        "time": "",
        **record,
    }
    return {"extra_info": {"ipubench": full}, "stats": {"data": [seconds] * 20, "iterations": 1}}


def judged(sides: List[Sides], thresholds: Dict[str, float]) -> Any:
    return verdict(sides, answers(sides, thresholds, level=0.01))


def test_a_slower_case_has_regressed() -> None:
    noisy = [(benchmark(0.10 + n / 1000), benchmark(0.09 + n / 1000)) for n in range(4)]
    found = judged(noisy, {"throughput": 0.05})
    assert (found.kind, found.metric, found.processes) == ("regressed", "throughput", 4)
    assert found.now == pytest.approx(8 / 0.1015, rel=1e-3)
    assert found.before == pytest.approx(8 / 0.0915, rel=1e-3)
    assert found.change == pytest.approx(-0.0985, abs=0.001)
    assert found.low < found.change < found.high < -0.05
    assert judged([(b, a) for a, b in noisy], {"throughput": 0.05}).kind == "improved"
    assert judged(noisy, {"throughput": 0.2}).kind == "pass"
    assert judged(noisy, {"throughput": 0.11}).kind == "pass"


def test_what_the_pairs_leave_open_is_inconclusive() -> None:
    """The estimate is beyond the threshold, and there may be no change at all."""
    seconds = ((0.10, 0.09), (0.09, 0.095), (0.10, 0.095), (0.105, 0.09))
    noisy = [(benchmark(here), benchmark(there)) for here, there in seconds]
    found = judged(noisy, {"throughput": 0.02})
    assert (found.kind, found.low < 0 < found.high) == ("inconclusive", True)


def test_without_a_threshold_the_change_is_shown() -> None:
    found = judged([(benchmark(0.2), benchmark(0.1))] * 4, {})
    assert (found.kind, found.change) == ("not judged", pytest.approx(-0.5))


def test_another_metric_can_decide() -> None:
    sides = [(benchmark(0.1, latency=2.0), benchmark(0.1, latency=1.0))] * 4
    assert judged(sides, {"throughput": 0.05}).kind == "pass"
    found = judged(sides, {"throughput": 0.05, "latency_p99": 0.1})
    assert (found.kind, found.metric) == ("regressed", "latency_p99")
    (latency,) = found.also
    assert (latency["before"], latency["now"]) == (pytest.approx(1), pytest.approx(2))
    assert latency["change"] == pytest.approx(1)


def test_a_metric_that_a_side_does_not_have_is_not_judged() -> None:
    sides = [(benchmark(0.1), benchmark(0.1, compile="cached"))] * 4
    found = judged(sides, {"throughput": 0.05, "compile_time": 0.1})
    assert (found.kind, found.also) == ("pass", ())


def test_the_canary_of_another_framework_changes_nothing() -> None:
    slow_canary = benchmark(0.1, canary={"seconds": [0.5]})
    assert judged([(slow_canary, benchmark(0.1))] * 4, {"throughput": 0.02}).change == 0


def test_another_engine_is_named_and_compared() -> None:
    other = benchmark(0.1, effective={"precision": "bfloat16"})
    found = judged([(benchmark(0.1), other)] * 4, {"throughput": 0.02})
    assert (found.kind, found.reasons) == ("pass", ("precision bfloat16 -> float32",))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"config_hash": "x"}, "another configuration there"),
        ({"device": {"fingerprint": "gpu"}}, "another device there (gpu)"),
        ({"throughput": {"unit": "steps/s", "median": 1.0}}, "another unit there (steps/s)"),
    ],
)
def test_what_cannot_be_compared(record: Dict[str, Any], reason: str) -> None:
    assert incomparable(benchmark(0.1), benchmark(0.1, **record)) == [reason]
    assert incomparable(benchmark(0.1), benchmark(0.1)) == []


def test_the_other_environment_keeps_nothing_of_ours() -> None:
    ours = {"PATH": "/bin", "PYTHONPATH": "/sdk/python", "VIRTUAL_ENV": "/here"}
    other = Environment("/there/python", ["/project", "/plugins"], {})
    assert other.variables(ours) == {"PATH": "/bin", "PYTHONPATH": "/project:/plugins"}


def test_changes_of_versions_are_told() -> None:
    other = Environment("", [], {"python": "3.8.18", "torch": "2.0.1", "numpy": "1.24"})
    now = {"torch": "2.13.0", "python": "3.11.7", "onnxruntime": "1.31.1", "numpy": "1.24"}
    assert (
        other.changes(now)
        == "python 3.8.18 -> 3.11.7, torch 2.0.1 -> 2.13.0, only here: onnxruntime"
    )
    assert other.changes(other.versions) == "the same versions"


def test_a_case_that_is_slower_here_fails_with_one_paragraph(project: Project) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    noting = source.replace(
        'if config.trouble == "error":',
        'with open("order", "a") as file:\n'
        '        file.write(os.environ.get("SIDE", "here") + " ")\n'
        '    if config.trouble == "error":',
    )
    (project.folder / "bench_fake.py").write_text(noting)
    option = interpreter(project, "SIDE=there IPUBENCH_FAKE_SLOWDOWN=0.8")
    outcome = project.run(*SYNTHETIC, option, "--gate=5%").assert_code(1)
    outcome.line("beta-synthetic has become slower: 5000 items/s before, 4000 items/s now.")
    outcome.line("versions there and here: the same versions")
    outcome.line("regressed: bench_fake.py::bench_fake[beta-synthetic]")
    assert "Traceback" not in outcome.text
    # The case's own test, then AB, BA, AB.
    assert (project.folder / "order").read_text().split() == [
        "here", "here", "there", "there", "here", "here", "there",
    ]  # fmt: skip
    kinds = [line["type"] for line in project.journal()]
    assert kinds == ["run", "case", "pair", "pair", "pair", "verdict", "outcome"]


def test_a_case_that_does_not_run_there_is_incomparable(project: Project) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    failing = source.replace(
        'if config.trouble == "error":',
        'if "SIDE" in os.environ and "synthetic" in str(meter.case):\n'
        '        raise CaseError("there is no such operator in this version")\n'
        '    if config.trouble == "error":',
    )
    (project.folder / "bench_fake.py").write_text(failing)
    option = interpreter(project, "SIDE=there")
    outcome = project.run("-k", "beta", "--gate-cap=3", option, "--gate=5%").assert_code(0)
    line = outcome.line("incomparable: bench_fake.py::bench_fake[beta-synthetic]")
    assert "it does not run there: there is no such operator in this version" in line
    outcome.line("1 incomparable, 1 pass")
    assert project.run(*SYNTHETIC, option, "--gate=5%").code == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--against=./nowhere/python"], "--against=./nowhere/python: is not there; name the"),
        (["--against=bench_fake.py"], "--against=bench_fake.py: cannot be executed"),
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
    option = interpreter(project, words="-S")
    outcome = project.run(option).assert_code(4)
    assert "No module named 'pytest'; install what the suite needs there: " in outcome.text
    assert f"{Path(option[10:])} -m pip install" in outcome.text


def test_another_version_there_is_measured_anew(project: Project) -> None:
    option = interpreter(project, "IPUBENCH_FAKE_SLOWDOWN=0.8")
    outcome = project.run(*SYNTHETIC, option).assert_code(0)
    # Without a gate the difference is shown.
    assert outcome.line("  beta-synthetic").split()[-1] == "-20.0%"
    outcome.line("1 not judged")
    project.run(*SYNTHETIC, option, "--resume").assert_code(0).line("1 cases are done")
    installed = project.folder / "installed" / "torch-9.9.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: torch\nVersion: 9.9\n")
    interpreter(project, f"PYTHONPATH='{installed.parent}:'$PYTHONPATH")
    outcome = project.run(*SYNTHETIC, option, "--resume").assert_code(0)
    outcome.line("0 cases are done; 1 measured anew, since the other environment changed")
    assert "torch" in outcome.line("versions there and here")
