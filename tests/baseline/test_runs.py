"""Joins shards into one report with their verdicts, failures and missing cases."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.runs import joined, read_run, read_sound_run
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.report.__main__ import main as report_command
from ipubench.plugins.results.rows import Report, exit_code, headline
from ipubench.plugins.results.run_facts import RunFacts, lost, superseded, worst_run
from tests.support.baselines import Shell
from tests.support.harness import Outcome, Project, run_here
from tests.support.reports import benchmark, report_on

pytest.importorskip("jinja2", reason="pip install jinja2")

BETA = "bench_fake.py::bench_fake[beta-{}]"
ALPHA = "bench_fake.py::bench_fake[alpha-bs8-synthetic]"
SYNTHETIC, GENERATED = BETA.format("synthetic"), BETA.format("generated")
LONG = 300 * "x"
SLOWER = {"IPUBENCH_FAKE_SLOWDOWN": "1.3"}


def report_of(project: Project, *words: str) -> Outcome:
    return run_here(project.folder, project.environment, report_command, *words)


def shard(project: Project, name: str, *words: str, **env: str) -> Outcome:
    """Run some cases as a shard does, with its journal next to its report."""
    folder = f"shards/{name}"
    return project.run(*words, f"--report={folder}", f"--results-dir={folder}", env=env)


def verdicts(folder: Path) -> Dict[str, str]:
    with (folder / "results.csv").open(encoding="utf-8") as file:
        return {
            row["name"].split("[")[-1].rstrip("]"): row["verdict"] for row in csv.DictReader(file)
        }


def reasons(folder: Path) -> Dict[str, str]:
    with (folder / "results.csv").open(encoding="utf-8") as file:
        return {row["case"]: row["reasons"] for row in csv.DictReader(file)}


def break_case(project: Project, name: str, how: str) -> None:
    """Make the case with this name run other code before it measures."""
    bench = project.folder / "bench_fake.py"
    text = bench.read_text()
    marked = '    if config.trouble == "error":\n'
    assert marked in text
    bench.write_text(
        text.replace(marked, f'    if "{name}" in str(meter.case):\n        {how}\n{marked}')
    )


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline."""
    measured = Project(tmp_path_factory.mktemp("measured"))
    words = ["-k", "beta or bs8", "--baseline-save=main", "--processes=2", "--budget=0.3"]
    measured.run(*words).assert_code(0)
    return measured.folder / "baselines"


@pytest.fixture
def judged(stored: Project) -> Project:
    """Return a project with a baseline and a policy that lets alpha slow down without limit."""
    policy = 'default: {throughput: 5%}\ncases:\n  "*alpha*": {throughput: 90%}\n'
    (stored.folder / "gate.yml").write_text(policy)
    return stored


@pytest.mark.entry_point
def test_the_joined_report_has_each_shards_verdicts_and_failures(judged: Project) -> None:
    """All are 30% slower, which the policy allows for alpha only. One case fails, one is new."""
    shard(judged, "alpha", "-k", "bs8", "--baseline=main", **SLOWER).assert_code(0)
    break_case(judged, "beta-generated", 'raise CaseError("broken on purpose")')
    shard(judged, "beta", "-k", "beta", "--baseline=main", **SLOWER).assert_code(1)
    outcome = report_of(judged, "shards/alpha", "shards/beta", "--out=report")
    outcome.assert_code(1).line(" slower, 1 failed")
    report = judged.folder / "report"
    assert verdicts(report) == {
        "alpha-bs8-synthetic": "pass",
        "alpha-bs8-generated": "pass",
        "beta-synthetic": "regressed",
        GENERATED.split("[")[1].rstrip("]"): "failed",
    }
    assert "broken on purpose" in reasons(report)[GENERATED]
    summary = (report / "summary.md").read_text()
    assert summary.startswith("**🔴 4 cases: 1 regressed, 1 failed, 2 pass")
    assert "gate.yml" in summary.splitlines()[0] and "broken on purpose" in summary
    assert "broken on purpose" in (report / "report.html").read_text()
    # The joined report is a run like any other: its document gives the same report.
    again = report_of(judged, "report", "--out=again").assert_code(1)
    again.line(" slower, 1 failed")
    assert verdicts(judged.folder / "again") == verdicts(report)


def test_a_crash_of_an_unjudged_shard_is_kept(project: Project) -> None:
    break_case(project, "beta-generated", "raise RuntimeError('an unforeseen error')")
    shard(project, "one", "-k", "beta").assert_code(1)
    shard(project, "two", "-k", "bs8-synthetic").assert_code(0)
    inputs = ["shards/one/baseline.json", "shards/two/baseline.json"]
    report_of(project, *inputs, "--out=report").assert_code(1).line("1 failed of 3 cases")
    assert "an unforeseen error" in reasons(project.folder / "report")[GENERATED]
    # A baseline does not contain runs.
    promoted = Shell(project)("promote", "report", "main").assert_code(1)
    promoted.line(f"1 failed, whose entries stay as they were: {GENERATED}")
    assert project.baseline()["ipubench"] == {"format": 2}
    assert len(project.baseline()["benchmarks"]) == 2


def test_a_killed_shard_names_the_cases_that_it_never_ran(project: Project) -> None:
    """The process dies in its second case and leaves a journal, but no report."""
    break_case(project, "beta-generated", "os.kill(os.getpid(), signal.SIGKILL)")
    shard(project, "one", "-k", "beta or bs8-synthetic")
    assert not (project.folder / "shards" / "one" / "baseline.json").exists()
    outcome = report_of(project, "shards/one", "--out=report").assert_code(1)
    outcome.line("shards/one: the run did not end: ")
    assert verdicts(project.folder / "report")["beta-generated"] == "not run"
    text = (project.folder / "report" / "summary.md").read_text()
    assert text.startswith("**🔴 3 cases: 1 not run, 2 measured; ")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of two shards."""
    measured = Project(tmp_path_factory.mktemp("measured"))
    shard(measured, "one", "-k", "beta").assert_code(0)
    shard(measured, "two", "-k", "bs8-synthetic").assert_code(0)
    return measured.folder / "shards"


def test_an_unreadable_shard_is_part_of_the_report(project: Project, shards: Path) -> None:
    shutil.copytree(shards, project.folder / "shards")
    whole = project.folder / "shards" / "two" / "baseline.json"
    (project.folder / "shards" / "cut.json").write_text(whole.read_text()[:1000])
    (project.folder / "shards" / "empty").mkdir()
    broken = ["shards/cut.json", "shards/gone", "shards/empty"]
    outcome = report_of(project, "shards/one", *broken, "--out=report").assert_code(4)
    for path in broken:
        outcome.line(path)
    summary = (project.folder / "report" / "summary.md").read_text()
    assert "🔴 2 cases: 2 measured; 3 of 4 runs" in summary
    # The joined document keeps it.
    report_of(project, "report", "--out=again").assert_code(4).line(broken[0])
    # If it is the only shard, there is nothing to show.
    report_of(project, broken[0], "--out=alone").assert_code(4)
    assert not (project.folder / "alone" / "summary.md").exists()


def test_a_retried_shard_counts_with_its_last_run(project: Project) -> None:
    """The shard's folder has the journals of both attempts."""
    source = (project.folder / "bench_fake.py").read_text()
    break_case(project, "beta-generated", 'raise CaseError("not yet")')
    shard(project, "one", "-k", "beta").assert_code(1)
    (project.folder / "bench_fake.py").write_text(source)
    shard(project, "one", "-k", "beta").assert_code(0)
    report_of(project, "shards/one", "--out=report").assert_code(0).line("2 cases measured")
    # Two shards that disagree are not a retry: a failure in either one stays.
    break_case(project, "beta-generated", 'raise CaseError("not there")')
    shard(project, "other", "-k", "beta").assert_code(1)
    for order in (["shards/one", "shards/other"], ["shards/other", "shards/one"]):
        outcome = report_of(project, *order, "--out=report").assert_code(1)
        outcome.line("1 failed of 2 cases")


def test_a_later_comparison_does_not_list_failed_or_unselected_cases_as_missing(
    judged: Project,
) -> None:
    break_case(judged, "beta-generated", 'raise CaseError("broken on purpose")')
    break_case(judged, "beta-synthetic", "return")
    break_case(judged, "alpha-bs1-synthetic", 'import pytest; pytest.skip("not today")')
    shard(judged, "one", "-k", "beta or alpha-bs1-synthetic").assert_code(1)
    shard(judged, "two", "-k", "bs8-synthetic").assert_code(0)
    words = ["shards/one", "shards/two", "--baseline=baselines/main.json", "--out=report"]
    outcome = report_of(judged, *words).assert_code(1)
    # A case that passed without being measured is missing, as it is in a run that is gated.
    outcome.line("1 failed, 1 missing of 3 cases; 1 case")
    kinds = verdicts(judged.folder / "report")
    assert kinds.pop("alpha-bs8-synthetic") in ("pass", "inconclusive")  # of one process
    assert list(kinds.values()) == ["failed", "missing"]
    assert "not selected" in (judged.folder / "report" / "summary.md").read_text()
    # A run without failures passes, however little of the baseline it covers. A baseline has a name
    # even if it looks like a path.
    (judged.folder / "baselines" / "main.json").rename(judged.folder / "baselines" / "v1.2.json")
    (judged.folder / "v1.2").mkdir()
    named = ["shards/two", "--baseline=v1.2", "--out=report"]
    outcome = report_of(judged, *named)
    assert outcome.code in (0, 6)  # 6: one process did not decide
    outcome.line("3 cases of the baseline")
    # A killed run lists the cases that it did not reach.
    (journal,) = (judged.folder / "shards" / "two").glob("run-*.jsonl")
    lines = journal.read_text().splitlines(True)
    killed = [line for line in lines if json.loads(line)["type"] in ("run", "selected", "case")]
    journal.write_text("".join(killed).replace(f'"{ALPHA}"]', f'"{ALPHA}", "{SYNTHETIC}"]'))
    report_of(judged, *named).assert_code(1).line("2 not run of 2 cases")


def test_a_damaged_verdict_is_one_message(shards: Path, tmp_path: Path) -> None:
    (journal,) = (shards / "one").glob("run-*.jsonl")
    line: Any
    for line in ({"kind": 3}, {"kind": "pass", "change": "x"}, {"kind": "pass", "also": [{}]}, []):
        added = json.dumps({"type": "verdict", "case": SYNTHETIC, "verdict": line})
        (tmp_path / "run.jsonl").write_text(f"{journal.read_text()}{added}\n")
        with pytest.raises(BaselineError, match=re.escape(f" ({SYNTHETIC}); repeat")):
            read_sound_run(tmp_path / "run.jsonl")


def test_a_line_that_cannot_be_read_is_counted_and_promoted_by_nobody(
    shards: Path, tmp_path: Path
) -> None:
    (journal,) = (shards / "one").glob("run-*.jsonl")
    lines = journal.read_text().splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    number = kinds.index("case")
    for damaged in ('{"type": "case", "benchm', "\0\0", "[]", '{"type": "case"}'):
        path = tmp_path / "run.jsonl"
        path.write_text("\n".join([*lines[:number], damaged, *lines[number + 1 :], ""]))
        (run,) = read_run(path).runs
        (line,) = run.damaged
        assert line.startswith(f"line {number + 1}: ") and line in run.trouble()
        with pytest.raises(BaselineError, match=f": line {number + 1}: "):
            read_sound_run(path)
    # A killed process leaves the beginning of a line, which is no damage.
    path.write_text(journal.read_text() + '{"type": "case", "benchm')
    assert read_sound_run(path).runs[0].damaged == []


def facts(**values: Any) -> RunFacts:
    return RunFacts(**{"exit_code": 0, "started": 1.0, **values})


def test_a_later_run_replaces_repeated_measurements() -> None:
    both = ["a", "b"]
    first = facts(selected=both, outcomes={"a": "failed", "b": "failed"}, exit_code=1)
    second = facts(selected=["b"], outcomes={"b": "passed"}, started=2.0)
    (left, newer) = superseded([second, first])
    assert (left.selected, left.outcomes, newer) == (["a"], {"a": "failed"}, second)
    third = facts(selected=both, outcomes={"a": "passed", "b": "passed"}, started=3.0)
    assert superseded([first, second, third]) == [third]
    # A case that the retry did not reach counts with the earlier run.
    for outcome, kind in (("failed", "failed"), ("passed", "measured")):
        whole = facts(selected=both, outcomes={"a": "failed", "b": outcome})
        unfinished = facts(selected=both, outcomes={"a": "passed"}, started=3.0, exit_code=2)
        ends = worst_run(superseded([whole, unfinished]))
        assert {case: run.kind_of(case) for case, run in ends.items()} == {
            "a": "measured",
            "b": kind,
        }
    # If both agree, the report shows the later one's figures.
    passed = [facts(verdicts={"a": Verdict("pass")}, started=start) for start in (1.0, 2.0)]
    assert worst_run(passed)["a"] is passed[1]


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        (facts(), 0, ""),
        (facts(exit_code=6, baseline="x", gate="gate 2%"), 6, ""),
        (facts(exit_code=1, selected=["a"], outcomes={"a": "failed"}), 1, ""),
        (facts(exit_code=1, outcomes={"a": "passed"}), 1, "ended with exit code 1"),
        (facts(exit_code=3), 1, "ended with exit code 3"),
        (facts(exit_code=143, selected=["a"]), 1, "was interrupted"),
        (facts(exit_code=2, selected=["a"], outcomes={"a": "passed"}), 1, "was interrupted"),
        (facts(baseline="x", gate="gate 2%", verdicts={"a": Verdict("pass")}), 0, "1 pass"),
        (facts(exit_code=None, selected=["a"]), 1, "did not end"),
        (facts(exit_code=None), 1, "0 cases"),
        (lost("shard", "it is gone"), 4, "did not end well"),
    ],
)
def test_the_recorded_outcome_of_a_run_decides_the_exit_code(
    run: RunFacts, code: int, words: str
) -> None:
    report = Report([], [run])
    rows = report.rows()
    assert exit_code(report, rows) == code
    assert words in " ".join([headline(report, rows), *report.problems])


def test_a_case_that_was_interrupted_is_not_judged_later() -> None:
    ended, open_ = benchmark("a"), benchmark("b")
    names = [ended.fullname, open_.fullname]
    run = facts(selected=names, outcomes={names[0]: "passed"}, exit_code=2)
    report = report_on([ended, open_], [run])
    report.judge({name: Verdict("pass", change=0.1) for name in names}, "main", "gate 2%")
    assert [(row.kind, row.verdict.change) for row in report.rows()] == [
        ("pass", 0.1),
        ("not run", None),
    ]


@pytest.mark.parametrize(
    ("outcome", "verdict", "kind"),
    [
        (None, None, "not run"),
        ("passed", None, "measured"),
        ("skipped", None, "skipped"),
        ("passed", "pass", "pass"),
        ("failed", None, "failed"),
        ("failed", "pass", "failed"),
        ("failed", "regressed", "regressed"),
        ("failed", "missing", "missing"),
        (None, "missing", "missing"),
    ],
)
def test_a_case_ends_with_its_verdict_unless_its_test_failed_for_another_reason(
    outcome: Optional[str], verdict: Optional[str], kind: str
) -> None:
    run = facts(
        selected=["a"],
        outcomes={} if outcome is None else {"a": outcome},
        verdicts={} if verdict is None else {"a": Verdict(verdict)},
    )
    assert run.kind_of("a") == kind
    assert worst_run([run]) == {"a": run}


def test_a_run_that_is_read_twice_counts_once(shards: Path) -> None:
    one = read_run(shards / "one" / "baseline.json")
    whole = joined([one, one])
    assert len(whole.runs) == 1 and len(whole.benchmarks) == 2
