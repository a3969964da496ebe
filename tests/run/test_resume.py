"""`--resume`: which results of an interrupted run still count, and which cases run again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

import pytest

from ipubench.plugins.record.files import JsonLinesFile, json_lines
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.results.lines import (
    CaseLine,
    FreshLine,
    JournalLine,
    OutcomeLine,
    PairLine,
    ResumeLine,
    VerdictLine,
)
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run import resume
from ipubench.plugins.run.journal import command_line, journals
from tests.support.command_line import given_options
from tests.support.harness import ROOT, Project
from tests.support.stored import a_benchmark, changed

# Runs the suite many times, so Python 3.8 skips it (make test38).
pytestmark = pytest.mark.slow

CASE = "bench_fake.py::bench_fake[one]"
BETA = "bench_fake.py::bench_fake[beta-synthetic"
Change = Callable[[Dict[str, Any]], None]


def rewrite(journal: Path, change: Change) -> None:
    """Change each line of a journal."""
    lines = [json.loads(text) for text in journal.read_text().splitlines()]
    for line in lines:
        change(line)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


def in_cases(change: Change) -> Change:
    """Return a change for the benchmark of each case."""
    return lambda line: change(line["benchmark"]) if line["type"] == "case" else None


def in_records(key: str, value: Any) -> Change:
    """Return a change for each case's record."""
    return in_cases(lambda one: one["extra_info"]["ipubench"].update({key: value}))


def test_a_finished_run_resumes_to_its_table_and_another_device_measures_again(
    ended: Project,
) -> None:
    outcome = ended.run("-k", "beta", "--resume", env={"DATASETS_DIR": ""}).assert_code(0)
    outcome.line(": 2 cases are done")
    outcome.line("  beta-generated ")
    outcome.line("2 cases were measured before")
    other = {"IPUBENCH_FAKE_NAME": "other"}
    outcome = ended.run("-k", "beta", "--resume", env=other).assert_code(0)
    outcome.line(f"2 measured again, because {resume.OTHER_DEVICE}")
    assert {r["device"]["fingerprint"] for r in ended.records().values()} == {"fake/other"}
    ended.run("-k", "beta-synthetic or beta", "--resume").assert_code(0).line("nothing to resume")


def test_resuming_by_the_variable_keeps_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def words(variable: str, *given: str) -> List[str]:
        monkeypatch.setenv("PYTEST_ADDOPTS", variable)
        params = SimpleNamespace(args=given)
        config: Any = SimpleNamespace(invocation_params=params, option=given_options())
        return command_line(config)

    monkeypatch.delenv("DATASETS_DIR", raising=False)
    assert words("--resume", "-k", "a") == words("", "-k", "a", "--resume") == ["-k", "a"]
    assert words("--ipubench-resume -k a", "--ipubench-resume") == words("-k a")
    assert words("-v --resume ", "-k", "a") == ["PYTEST_ADDOPTS=-v", "-k", "a"]
    assert words('-k "a or b" --resume -v') == words('-k "a or b" -v')


def test_with_another_baseline_or_policy_cases_are_compared_again(project: Project) -> None:
    save = ("-k", "beta", "--baseline-save=main", "--processes=1")
    project.run(*save).assert_code(0)
    words = ("-k", "beta", "--baseline=main")
    project.run(*words).assert_code(0)
    project.run(*save, env={"IPUBENCH_FAKE_SLOWDOWN": "2"}).assert_code(0)
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("2 measured again, because the baseline")
    assert outcome.line("  beta-synthetic").split()[-1] == "+100.0%"
    (project.folder / "gate.yml").write_text("default: {throughput: 6%}")
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("2 measured again, because the policy")


def test_a_resumed_run_covers_all_its_cases_in_their_order(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    old = '    if config.trouble == "error":'
    note = (
        "    from ipubench.plugins.state import run_of\n"
        "    open('about', 'w').write(' '.join(run_of(meter.item.config).order))\n"
    )
    path.write_text(path.read_text().replace(old, note + old))
    words = ["-k", "beta or bs8"]
    project.run(*words).assert_code(0)
    before = (project.folder / "about").read_text()
    assert len(before.split()) == 4

    def change(line: Dict[str, Any]) -> None:
        if line["type"] == "outcome" and "alpha-bs8-synthetic" in line["case"]:
            line["outcome"] = "failed"
        if line["type"] == "run":
            line["circumstances"]["git"] = "0123abc"

    rewrite(project.journals()[0], change)
    (project.folder / "about").unlink()
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("3 cases are done; the project's revision changed (0123abc -> None)")
    assert (project.folder / "about").read_text() == before
    rows = [line.split()[0] for line in outcome.lines if re.match("  (alpha|beta)-", line)]
    assert rows == [
        "alpha-bs8-synthetic",
        "alpha-bs8-generated",
        "beta-synthetic",
        "beta-generated",
    ]


def test_a_running_run_keeps_its_journal(ended: Project) -> None:
    """An older finished run is not resumed instead."""
    ended.run("-k", "beta").assert_code(0)
    path = ended.journals()[-1]
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from ipubench.plugins.record.files import JsonLinesFile\n"
        "journal = JsonLinesFile(Path(sys.argv[1]))\n"
        "print(journal.claim(), flush=True)\nsys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        cwd=str(ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"True\n"
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line(
        f"nothing to resume, because the run of results/{path.name} has not ended yet: a new run"
    )
    holder.kill()  # any other end would do
    holder.communicate()
    ended.journals()[-1].unlink()
    ended.run("-k", "beta", "--resume").assert_code(0).line("2 cases are done")


def case(value: float) -> Benchmark:
    return changed(a_benchmark([value]), {"fullname": CASE})


def test_fresh_processes_of_an_unfinished_case_are_dropped() -> None:
    lines: List[JournalLine] = [
        CaseLine(case(1.0)),
        FreshLine(case(1.1)),
        PairLine(CASE, case(1.0), case(2.0)),
        CaseLine(case(2.0)),
        FreshLine(case(2.1)),
    ]
    found = RunResults.of(lines)
    assert found.benchmarks == {CASE: case(2.0)}
    assert found.fresh == {CASE: [case(2.1)]}
    assert found.pairs == {}


def test_only_results_that_a_resumed_run_kept_count() -> None:
    lines: List[JournalLine] = [
        CaseLine(case(1.0)),
        VerdictLine(CASE, Verdict("pass")),
        OutcomeLine(CASE, "passed"),
    ]
    kept = RunResults.of([*lines, ResumeLine([CASE])])
    assert (kept.benchmarks, kept.outcomes) == ({CASE: case(1.0)}, {CASE: "passed"})
    dropped = RunResults.of([*lines, ResumeLine([])])
    assert not (dropped.benchmarks or dropped.outcomes or dropped.verdicts)


def test_a_line_that_does_not_fit_on_the_disk_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.claim()
    journal.append({"type": "run"})

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr("ipubench.plugins.record.files.SYNC_SECONDS", 0.0)
    with pytest.raises(OSError, match="No space left"):
        journal.append({"type": "case"})
    monkeypatch.undo()
    journal.append({"type": "outcome"})
    assert json_lines(journal.path) == [{"type": "run"}, {"type": "outcome"}]


def test_runs_of_one_second_are_ordered_by_their_last_lines(tmp_path: Path) -> None:
    names = ["run-20261121T204356-7.jsonl"]
    names += [f"run-20261121T204357-{number}.jsonl" for number in (9999, 10000, 300)]
    for age, name in enumerate(names):
        path = tmp_path / name
        path.touch()
        os.utime(path, ns=(0, 10 - age if age == 0 else age))
    assert [path.name for path in journals(tmp_path)] == names


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


DAMAGES: Dict[str, Change] = {
    "no config_hash": in_cases(lambda one: one["extra_info"]["ipubench"].pop("config_hash")),
    "no fingerprint": in_records("device", {"kind": "fake"}),
    "throughput": in_records("throughput", []),
    "contention": in_records("contention", {"enough": False}),
    "extra_info": in_cases(lambda one: one.update(extra_info=[])),
    "stats": in_cases(lambda one: one.update(stats={"data": "x"})),
    "group": in_cases(lambda one: one.pop("group")),
    # It is unclear whose results these are.
    "name": in_cases(lambda one: one.update(fullname=["x"])),
    "nested": in_records("latency", nested(500)),
}


def test_a_damaged_result_is_measured_again_and_the_others_are_kept(project: Project) -> None:
    words = ("-k", "alpha", "--sweep", "--set=flavour=plain,sweet")
    project.run(*words).assert_code(0)
    (journal,) = project.journals()
    left = iter(DAMAGES.values())

    def damage(line: Dict[str, Any]) -> None:
        if line["type"] == "case":
            next(left, lambda line: None)(line)

    rewrite(journal, damage)
    outcome = project.run(*words, "--resume").assert_code(0)
    assert "INTERNALERROR" not in outcome.text and "Traceback" not in outcome.text
    assert resume.NO_RESULT in outcome.text and resume.DAMAGED_RESULT in outcome.text
    assert f"{12 - len(DAMAGES)} cases are done" in outcome.text
    kept = next(line["case"] for line in project.journal() if line["type"] == "outcome")
    JsonLinesFile(journal).append({"type": "verdict", "case": kept, "verdict": {"kind": 3}})
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("11 cases are done; 1 measured again")


def test_a_case_that_ended_the_run_does_not_end_the_next_one(project: Project) -> None:
    """Even if it would every time: it alone fails, and the rest is measured."""
    words = ("-k", "beta-synthetic", "--set=trouble=kill,none")
    project.run(*words).assert_code(-9)
    outcome = project.run(*words, "--resume").assert_code(1)
    why = f"because the resumed run was killed while {BETA}-troublekill] ran"
    outcome.line(why)
    assert "exit code -9" in outcome.text
    assert list(project.records()) == ["beta-synthetic-troublenone"]
    project.run(*words, "--resume").assert_code(1).line(why)


def test_pytest_benchmarks_file_has_the_earlier_cases(project: Project) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    written = project.folder / "out.json"
    path = project.folder / "bench_fake.py"
    source = path.read_text()
    path.write_text(source.replace('config.trouble == "raise"', 'config.data == "generated"'))
    words = ("-k", "beta", "--benchmark-json=out.json", "--resume", "-n1")
    project.run(*words).assert_code(1)
    path.write_text(source)
    project.run(*words).assert_code(0).line("1 case is done")
    names = [one["fullname"] for one in json.loads(written.read_text())["benchmarks"]]
    assert len(set(names)) == len(names) == 2
