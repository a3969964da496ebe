"""Promoting runs to a baseline: which cases are taken, refused, kept and accepted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from ipubench.plugins.baseline.format import Document
from ipubench.plugins.baseline.promote import Acceptance, decide
from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all, save, write
from ipubench.plugins.record.structs import Benchmark, as_plain
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.results.lines import CaseLine, EndLine, OutcomeLine, RunLine
from ipubench.plugins.results.run_facts import RunFacts
from tests.support.baselines import A, B, Shell, document, entry, load
from tests.support.harness import Project
from tests.support.stored import changed

SYNTHETIC = "bench_fake.py::bench_fake[beta-synthetic]"
GENERATED = "bench_fake.py::bench_fake[beta-generated]"


def run(project: Project, *words: str, **env: str) -> None:
    project.run("-k", "beta", "--budget=0.3", "--processes=1", *words, env=env)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline and a journal of its cases, measured again and slower."""
    project = Project(tmp_path_factory.mktemp("measured"))
    run(project, "--baseline-save=main")
    run(project, "--baseline=main", "--gate=5%", IPUBENCH_FAKE_SLOWDOWN="1.2")
    return project.folder


@pytest.fixture
def before(shell: Shell, measured: Path) -> Dict[str, Benchmark]:
    """The baseline's entries in the shell's project."""
    shutil.copytree(measured / "baselines", shell.folder / "baselines")
    return load(shell.path("main"))


@pytest.fixture
def regressed(shell: Shell, measured: Path, before: Dict[str, Benchmark]) -> str:
    """The name of that journal, in the shell's project next to the baseline."""
    shutil.copytree(measured / "results", shell.folder / "results")
    return shell.project.journals()[-1].name


@pytest.mark.entry_point
def test_promote_makes_a_journal_the_baseline(
    shell: Shell, measured: Path, before: Dict[str, Benchmark]
) -> None:
    """The result equals what the run itself saves, and pytest-benchmark reads it."""
    shutil.copytree(measured / "results", shell.folder / "results")
    journal = shell.project.journals()[0]
    shell.alone("promote", journal.name, "promoted").assert_code(0).line("2 cases of")
    assert load(shell.path("promoted")) == before
    program = str(Path(sys.executable).with_name("pytest-benchmark"))
    answer = subprocess.run(
        [program, "compare", str(shell.path("promoted"))],
        cwd=str(shell.folder / "baselines"),
        env=shell.project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert b"bench_fake[beta-synthetic]" in answer.stdout


def test_promote_takes_a_reports_document(shell: Shell) -> None:
    shell.store("main", entry("b"), entry("a", machine="cpu/y"))
    report = shell.folder / "report" / "baseline.json"
    save(report, document(entry("a", slower=2)))
    shell("promote", "report/baseline.json", "main").assert_code(0)
    assert len(load_all(shell.path("main"))) == 3


def test_a_regressed_run_is_promoted_only_if_each_case_is_accepted_with_a_reason(
    shell: Shell, regressed: str, before: Dict[str, Benchmark]
) -> None:
    one = ["--accept", "*synthetic*=the result was wrong = too fast"]
    for accepted in ([], one):
        shell("promote", regressed, "main", *accepted).assert_code(4)
    assert load(shell.path("main")) == before
    both = [*one, "--accept", "bench_fake.py::bench_fake[beta-generated]=checked input"]
    unknown = ["--accept", "*nobody*=nothing"]
    outcome = shell("promote", regressed, "main", *both, *unknown).assert_code(0)
    outcome.line("matches *nobody*")
    stored = load(shell.path("main"))
    for nodeid, benchmark in before.items():
        ratio = stored[nodeid].record.throughput.median
        assert ratio < 0.9 * benchmark.record.throughput.median
    (kept,) = stored[SYNTHETIC].record.accepted
    assert kept.reason == "the result was wrong = too fast"
    assert kept.change is not None and -0.2 < kept.change < -0.1
    shell("show", "main", "beta-synthetic").line("-16.7%, the result was wrong = too fast")


@pytest.mark.parametrize(
    ("how", "kind"), [("assert not", "failed"), ("if data: pytest.skip()  #", "skipped")]
)
def test_a_wrong_result_is_never_a_reference(
    shell: Shell, before: Dict[str, Benchmark], how: str, kind: str
) -> None:
    bench = shell.folder / "bench_fake.py"
    last = "flops=config.flops or None)\n"
    judged = f'{last}    data = "generated" in str(meter.case)\n    {how} data, "wrong"\n'
    text = bench.read_text().replace(last, judged)
    bench.write_text(text.replace("import os\n", "import os\nimport pytest\n"))
    words = ("-k", "beta", "--budget=0.3", "--processes=1", "--baseline-save=main", "--history")
    outcome = shell.project.run(*words, env={"IPUBENCH_FAKE_SLOWDOWN": "0.5"})
    outcome.assert_code(1 if kind == "failed" else 0)
    outcome.line(f"1 {kind}, whose entries stay as they were: {GENERATED}")
    after = load(shell.path("main"))
    assert after[GENERATED] == before[GENERATED] and after[SYNTHETIC] != before[SYNTHETIC]
    # Promoting the same run again skips the same case.
    promoted = ("promote", shell.project.journals()[-1].name, "promoted", "--history=kept")
    outcome = shell(*promoted).assert_code(1 if kind == "failed" else 0)
    outcome.line(f"1 {kind}, whose entries stay as they were: {GENERATED}")
    history = shell.folder / "baselines" / "history"
    kept = [*history.glob("*/*.json"), *(shell.folder / "kept").glob("*/*.json")]
    assert [list(load(path)) for path in (*kept, shell.path("promoted"))] == [[SYNTHETIC]] * 3
    # If no case is left, nothing is written.
    outcome = shell.project.run("-k", "beta-generated", *words[2:])
    outcome.line("no baseline was written: ")
    outcome.line("nothing was kept")
    shell("promote", shell.project.journals()[-1].name, "none").assert_code(1)
    assert not shell.path("none").exists()


def test_promote_adds_a_run_to_the_history_even_if_it_refuses_it(
    shell: Shell, regressed: str
) -> None:
    for _ in range(2):  # once, however often it is promoted
        shell("promote", regressed, "main", "--history=kept").assert_code(4)
        (file,) = (shell.folder / "kept").glob("*/*.json")
    assert len(load(file)) == 2 and not load(file)[SYNTHETIC].record.accepted
    accept = ["--accept", "*=a better result"]
    shell("promote", regressed, "main", "--history=kept", *accept).assert_code(0)
    trends = shell("history", "beta-synthetic", "--folder=kept").assert_code(0)
    trends.line("accepted: a better result")


def test_a_run_that_is_in_the_history_counts_once_in_a_trend(shell: Shell) -> None:
    run(shell.project, "--history")
    shell("promote", shell.project.journals()[0].name, "main", "--history").assert_code(0)
    for trend in shell.json("history"):
        (point,) = trend["runs"]
        assert point["promoted"] == "main"


def test_promote_keeps_the_entries_of_cases_that_were_not_measured_well(
    shell: Shell, before: Dict[str, Benchmark]
) -> None:
    """An undecided case is skipped, unless the user accepts it."""
    run(shell.project, "--baseline=main", "--gate=5%", IPUBENCH_FAKE_SLOWDOWN="1.01")
    journal = shell.project.journals()[-1]
    text = journal.read_text()
    assert '"kind": "pass"' in text
    open_ = "".join(
        line.replace('"kind": "pass"', '"kind": "inconclusive"') if SYNTHETIC in line else line
        for line in text.splitlines(True)
    )
    journal.write_text(open_)
    outcome = shell("promote", journal.name, "main").assert_code(0)
    outcome.line(f"1 inconclusive, whose entries stay as they were: {SYNTHETIC}")
    after = load(shell.path("main"))
    assert after[SYNTHETIC] == before[SYNTHETIC] and after[GENERATED] != before[GENERATED]
    # Without an entry a case cannot become slower little by little.
    shell("promote", journal.name, "other").assert_code(0).line("2 cases of")
    shell("promote", journal.name, "main", "--accept", "*=as good as it gets").assert_code(0)
    accepted = load(shell.path("main"))
    assert accepted[SYNTHETIC] != before[SYNTHETIC]
    # A passed case needs no acceptance.
    assert [name for name, one in accepted.items() if one.record.accepted] == [SYNTHETIC]


def test_a_case_that_no_gate_could_judge_replaces_no_sound_entry(shell: Shell) -> None:
    report = shell.folder / "report.json"
    others = {"record.processes.0.lost": 0.5, "record.processes.0.clean": False}
    disturbed = changed(entry("a", slower=2), others)
    save(report, document(entry("b"), disturbed))
    outcome = shell("promote", "./report.json", "main").assert_code(0)
    outcome.line("1 disturbed, promoted")
    assert load(shell.path("main"))[A] == disturbed
    save(shell.path("main"), document(entry("a"), entry("b")))
    outcome = shell("promote", "./report.json", "main").assert_code(0)
    outcome.line("1 disturbed, not promoted: ")
    assert load(shell.path("main")) == {A: entry("a"), B: entry("b")}
    shell("promote", "./report.json", "main", "--accept=*=no quieter machine").assert_code(0)
    assert load(shell.path("main"))[A] == disturbed
    # A run fails if none of its cases is promoted.
    save(shell.path("another"), document(entry("a")))
    write(report, document(disturbed))
    shell("promote", "./report.json", "another").assert_code(1)
    assert load(shell.path("another")) == {A: entry("a")}
    # A clean run replaces it, although a comparison with it decides nothing.
    facts = RunFacts(outcomes={A: "passed"}, verdicts={A: Verdict("inconclusive")}, exit_code=0)
    write(report, Document.of(document(), [entry("a")], [facts]))
    shell("promote", "./report.json", "main").assert_code(0)
    assert load(shell.path("main"))[A] == entry("a")


def test_a_result_that_cannot_be_right_is_shown_and_not_promoted(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    wrong = changed(entry("a"), {"record.implausible": True, "record.processes": ()})
    outcome = OutcomeLine(A, "failed", "implausible")
    lines = [as_plain(line) for line in (RunLine(2), CaseLine(wrong), outcome, EndLine(1))]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    stored = read_run(path)
    (row,) = stored.rows()
    assert row.implausible and row.kind == "failed" and row.reasons == ["implausible"]
    found = decide(stored, [Acceptance("*", "any")], set())
    assert (found.promoted, found.proven, found.left) == ([], [], {A: "failed"})


def test_entries_of_missing_cases_stay(shell: Shell, before: Dict[str, Benchmark]) -> None:
    bench = shell.folder / "bench_fake.py"
    bench.write_text(bench.read_text().replace('"beta"', '"renamed"'))
    words = ["-k", "renamed", "--budget=0.3", "--baseline=main", "--gate=5%"]
    # All are new, which is exit code 6; the two missing cases are worse.
    shell.project.run(*words).assert_code(1)
    journal = shell.project.journals()[-1].name
    for accept in ([], ["--accept=*=whatever it is"]):
        outcome = shell("promote", journal, "main", *accept).assert_code(1)
        outcome.line("2 missing, whose entries stay")
        after = load(shell.path("main"))
        assert len(after) == 4 and {name: after[name] for name in before} == before


@pytest.mark.parametrize(
    "content",
    [
        "nothing\n",
        '{"type": "run", "format": 99}\n',
        '{"type": "run", "format": 1}\n',  # a run without measured cases
        '{"type": "run", "format": 1}\n'
        '{"type": "case", "benchmark": {"fullname": "x", "extra_info": {}}}\n',
    ],
)
def test_a_file_that_is_not_a_run_is_one_message(shell: Shell, content: Any) -> None:
    (shell.folder / "run.jsonl").write_text(content)
    outcome = shell("promote", "./run.jsonl", "main").assert_code(4)
    assert len(outcome.lines) == 1 and "run.jsonl" in outcome.text
