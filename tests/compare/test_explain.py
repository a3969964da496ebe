"""`--profile-on-regression` on the fake device, whose trace has the time of its work."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict
from unittest.mock import Mock

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.options import CaseConfig
from ipubench.plugins.compare import explain
from ipubench.plugins.processes.remote_case import Outcome, RemoteCase
from tests.support.command_line import given_options
from tests.support.harness import Project, SuiteServer

# Runs the suite many times, so Python 3.8 skips it (make test38).
pytestmark = pytest.mark.slow

CASE = "bench_fake.py::bench_fake[beta-synthetic]"
GATE = ["-k", "beta-synthetic", "--baseline=main", "--gate=5%", "--profile-on-regression"]
SLOW = {"IPUBENCH_FAKE_SLOWDOWN": "2"}
SAVE = ["-k", "beta-synthetic", "--baseline-save=main", "--processes=2", "--budget=0.3"]


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline."""
    measured = Project(tmp_path_factory.mktemp("measured"))
    measured.run(*SAVE).assert_code(0)
    return measured.folder / "baselines"


def profile(project: Project) -> Dict[str, Any]:
    (line,) = [line for line in project.journal() if line["type"] == "profile"]
    assert line["case"] == CASE
    found: Dict[str, Any] = line["profile"]
    return found


def test_cases_with_one_identifier_keep_their_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(CaseConfig(name="net"), "net")
    config: Any = SimpleNamespace(
        option=given_options(),
        invocation_params=SimpleNamespace(dir=tmp_path),
    )

    folders = {"a.py::a[net]": "a", "b.py::b[net]": "b"}
    selection = SimpleNamespace(folders=folders)
    run: Any = SimpleNamespace(
        path=tmp_path / "run-1.jsonl",
        results_dir=tmp_path,
        progress=Mock(),
        selection=selection,
        against=None,
    )

    def profiled(remote: RemoteCase, *_: Any) -> Outcome:
        (word,) = remote.arguments
        folder = Path(word.partition("=")[2]) / case.id
        folder.mkdir(parents=True)
        (folder / "trace.json").write_text("{}")
        return Outcome(0, [], [])

    monkeypatch.setattr(RemoteCase, "run", profiled)
    monkeypatch.setattr(RemoteCase, "most_seconds", 60.0)
    for nodeid in folders:
        item: Any = SimpleNamespace(config=config, nodeid=nodeid)
        found = explain.Profiler(item, case, run).explain()
    traces = [*Path(found.folder).glob("here/*/net/trace.json")]
    assert len(traces) == 2
    # An unreadable trace is named: TensorFlow's is for people.
    note = found.notes[0]
    assert any(str(trace.parent) in note for trace in traces)


def test_with_a_stored_baseline_the_operations_of_this_run_are_shown(stored: Project) -> None:
    outcome = stored.run(*GATE, "--report=out", env=SLOW).assert_code(1)
    line = outcome.line("beta-synthetic: the time goes to: work 80.0%, copy 20.0%")
    assert "before: " in line and "--against=" in line
    found = profile(stored)
    assert "there" not in found or not found["there"]
    assert [one["name"] for one in found["here"]] == ["work", "copy"]
    # The trace stays for people, and every file of a report has the operations.
    (trace,) = Path(found["folder"]).glob("here/beta-synthetic/trace.json")
    assert "traceEvents" in json.loads(trace.read_text())
    pytest.importorskip("jinja2", reason="pip install jinja2")
    text = (stored.folder / "out" / "summary.md").read_text()
    assert "Before: a stored baseline" in text
    assert "| work | 80.0% | 4.000 |" in text
    page = (stored.folder / "out" / "report.html").read_text()
    assert '<td class="name">work</td>' in page


def test_both_processes_are_profiled_if_both_can_run(project: Project) -> None:
    path = project.folder / "other python"
    SuiteServer.python(project.folder / "python")
    start = f"exec '{project.folder / 'python'}'"
    path.write_text(f'#!/bin/sh\nIPUBENCH_FAKE_SLOWDOWN=0.5 {start} "$@"\n')
    path.chmod(0o755)
    words = ["-k", "beta-synthetic", "--gate-cap=3", "--gate=5%", f"--against={path}"]
    outcome = project.run(*words, "--profile-on-regression", "--report=out").assert_code(1)
    outcome.line("beta-synthetic: share of the time: work 50.0% -> 66.7%")
    found = profile(project)
    assert found["notes"] == [] and found["there"][0]["seconds"] == pytest.approx(0.001)
    (one,) = found["grown"]
    assert (one["name"], one["seconds_before"], one["seconds_now"]) == ("work", 0.001, 0.002)
    traces = sorted(Path(found["folder"]).glob("*/beta-synthetic/trace.json"))
    assert [trace.parts[-3] for trace in traces] == ["here", "there"]
    pytest.importorskip("jinja2", reason="pip install jinja2")
    text = (project.folder / "out" / "summary.md").read_text()
    assert "| work | 50.0% | 66.7% | 1.000 | 2.000 |" in text
    # The joined report has it too.
    from ipubench.plugins.report.__main__ import main

    assert main([str(project.folder / "out"), f"--out={project.folder / 'again'}"]) == 1
    assert "| work | 50.0% | 66.7% |" in (project.folder / "again" / "summary.md").read_text()
