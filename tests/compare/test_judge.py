"""Judging follows the call of a bench function: runs of the suite in a process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import List

import pytest

from tests.support.harness import Project

GATE = ["-k", "beta-synthetic", "--baseline=main", "--gate=5%"]
SLOW = {"IPUBENCH_FAKE_SLOWDOWN": "1.5"}


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline."""
    project = Project(tmp_path_factory.mktemp("measured"))
    words = ["-k", "beta-synthetic", "--baseline-save=main", "--processes=3"]
    project.run(*words).assert_code(0)
    return project.folder / "baselines"


def at_the_end(project: Project, line: str) -> None:
    """Append a line after the call of the meter."""
    path = project.folder / "bench_fake.py"
    call = "flops=config.flops or None)\n"
    assert call in path.read_text()
    path.write_text(path.read_text().replace(call, f"{call}    {line}\n"))


def marked(project: Project, mark: str) -> None:
    """Give the bench function a marker."""
    path = project.folder / "bench_fake.py"
    start, text = "from __future__ import annotations\n", path.read_text()
    text = text.replace(start, f"{start}import pytest\nmark = pytest.mark.{mark}\n", 1)
    path.write_text(text.replace("def bench_fake(", "@mark\ndef bench_fake(", 1))


def kinds(project: Project) -> List[str]:
    return [line["type"] for line in project.journal()]


@pytest.mark.entry_point
def test_the_order_is_record_then_fresh_processes_then_verdict(stored: Project) -> None:
    outcome = stored.run(*GATE, env=SLOW).assert_code(1)
    found = kinds(stored)
    fresh = ["fresh"] * (len(found) - 7)
    assert found == ["run", "selected", "begin", "case", *fresh, "verdict", "outcome", "end"]
    outcome.line("beta-synthetic has become slower")
    assert "Traceback" not in outcome.text and "judge.py" not in outcome.text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 6),
        (["--gate-inconclusive=pass"], 6),
        (["--gate-inconclusive=fail"], 1),
    ],
)
def test_an_open_case_fails_or_stays_open_as_asked(
    stored: Project, words: List[str], code: int
) -> None:
    """No other case is decided. The times of the baseline's processes differ by more than half."""
    path = stored.folder / "baselines" / "main.json"
    document = json.loads(path.read_text())
    (entry,) = document["benchmarks"]
    for factor, process in zip((1, 0.6, 1.6), entry["extra_info"]["ipubench"]["processes"]):
        process["seconds"] = [value * factor for value in process["seconds"]]
    path.write_text(json.dumps(document))
    stored.run(*GATE, "--gate-cap=3", *words).assert_code(code).line("1 inconclusive")
    (verdict,) = [line["verdict"] for line in stored.journal() if line["type"] == "verdict"]
    assert verdict["kind"] == "inconclusive"
    # A case that the policy ignores is not judged, and so it is not open either.
    (stored.folder / "gate.yml").write_text('default: {throughput: 5%}\ncases: {"*": ignore}\n')
    outcome = stored.run(*GATE, "--gate-cap=3", *words).assert_code(6)
    outcome.line("1 not judged")
    assert "is open" not in outcome.text


@pytest.mark.parametrize("mark", ["xfail", "xfail(strict=True)", "flaky(reruns=2)"])
def test_a_regressed_case_fails_the_run_whatever_its_test_does(stored: Project, mark: str) -> None:
    marked(stored, mark)
    outcome = stored.run(*GATE, "-o", "markers=flaky: twice", env=SLOW).assert_code(1)
    outcome.line("1 regressed")


def test_a_skipped_case_of_the_baseline_is_open(stored: Project) -> None:
    marked(stored, "skip('slower')")
    outcome = stored.run(*GATE).assert_code(6)
    line = outcome.line(" bench_fake[beta-synthetic] (skipped here, or")
    assert line.startswith("1 of 1 case is open")


def test_a_case_that_fails_after_its_measurement_is_not_judged(stored: Project) -> None:
    at_the_end(stored, "raise RuntimeError('wrong result')")
    outcome = stored.run(*GATE, env=SLOW).assert_code(1)
    outcome.line("wrong result")
    assert kinds(stored) == ["run", "selected", "begin", "case", "outcome", "end"]


def test_a_fresh_process_with_a_failed_test_is_not_used(stored: Project) -> None:
    """It has a measurement, but its result may be wrong."""
    at_the_end(stored, "assert 'IPUBENCH_LEASE_HOLDER' not in os.environ, 'wrong result'")
    outcome = stored.run(*GATE, env=SLOW).assert_code(1)
    outcome.line(" fresh process (exit code 1)")
    outcome.line("E       AssertionError: wrong result")
    assert kinds(stored) == ["run", "selected", "begin", "case", "outcome", "end"]


def test_a_baseline_that_is_too_noisy_is_named_before_the_measurement(stored: Project) -> None:
    """Its three processes take equally long, or differ by a fifth."""
    noisy = "to detect a slow-down of 10%"
    outcome = stored.run(*GATE).assert_code(0)
    assert noisy not in " ".join(outcome.text.split()) and "since " not in outcome.text
    path = stored.folder / "baselines" / "main.json"
    document = json.loads(path.read_text())
    (entry,) = document["benchmarks"]
    sound = json.loads(json.dumps(entry))
    for number, process in enumerate(entry["extra_info"]["ipubench"]["processes"]):
        process["seconds"] = [value * (1 + 0.1 * number) for value in process["seconds"]]
    entry["extra_info"]["ipubench"]["versions"]["pytest"] = "6.1"
    path.write_text(json.dumps(document))
    outcome = stored.run(*GATE)
    assert outcome.line("since ").endswith(f"main.json: pytest 6.1 -> {pytest.__version__}")
    text = " ".join(outcome.text.split())
    found = re.search(rf"{noisy} .*: beta-synthetic needs ([\d.]+)%", text)
    assert found and float(found[1]) > 10
    assert text.index(noisy) < text.index("[1/1]")
    # Another machine's processes in the same file could belong to this one.
    sound["extra_info"]["ipubench"]["device"]["fingerprint"] = "another"
    path.write_text(json.dumps({**document, "benchmarks": [sound, entry]}))
    assert noisy not in " ".join(stored.run(*GATE).text.split())


def test_nothing_holds_the_step_of_a_judged_case(stored: Project) -> None:
    (stored.folder / "watch.py").write_text(
        "import gc\n"
        "def pytest_sessionfinish():\n"
        "    from tests.support.fake_runtime import FakeStep\n"
        "    gc.collect()\n"
        "    steps = [one for one in gc.get_objects() if isinstance(one, FakeStep)]\n"
        "    open('steps', 'w').write(str(len(steps)))\n"
    )
    stored.run(*GATE, "-p", "watch").assert_code(0)
    assert (stored.folder / "steps").read_text() == "0"


def test_a_marker_that_allows_more_is_named(stored: Project) -> None:
    marked(stored, 'gate(throughput="900%")')
    outcome = stored.run(*GATE, "--report=out", env=SLOW).assert_code(0)
    note = outcome.line("the marker gate ").strip()
    assert note.endswith("bench_fake[beta-synthetic] (throughput 900.0%, not 5.0%)")
    summary = (stored.folder / "out" / "summary.md").read_text().replace("\\", "")
    assert "(throughput 900.0%, not 5.0%)" in summary.splitlines()[-1]
