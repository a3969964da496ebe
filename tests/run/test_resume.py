"""`--resume`: what still holds of an interrupted run, and what is measured anew."""

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

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.baseline.__main__ import main
from ipubench.plugins.record.files import JsonLinesFile, read_lines
from ipubench.plugins.run.journal import command_line, journals
from ipubench.plugins.run.results import SessionResults
from tests.support.harness import ROOT, Project, run_pytest

# Many runs of the suite; the older Python leaves them out (make test38).
pytestmark = pytest.mark.slow

CASE = "bench_fake.py::bench_fake[one]"
BETA = "bench_fake.py::bench_fake[beta-synthetic"

KILLER = """
import os
import signal
import unittest

import pytest


class BenchKiller(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def given(self, meter):
        self.meter = meter

    def test_kill(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def rewrite(journal: Path, change: Callable[[Dict[str, Any]], None]) -> None:
    """Change each line of a journal."""
    lines = [json.loads(text) for text in journal.read_text().splitlines()]
    for line in lines:
        change(line)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


def in_records(key: str, value: Any) -> Callable[[Dict[str, Any]], None]:
    """Return a change of each case's record."""

    def change(line: Dict[str, Any]) -> None:
        if line["type"] == "case":
            line["benchmark"]["extra_info"]["ipubench"][key] = value

    return change


def test_another_device_is_measured_anew(ended: Project) -> None:
    other = {"IPUBENCH_FAKE_NAME": "other"}
    outcome = ended.run("-k", "beta", "--resume", env=other).assert_code(0)
    outcome.line("0 cases are done; 2 measured anew, since this is another device")
    assert {r["device"]["fingerprint"] for r in ended.records().values()} == {"fake/other"}


def test_a_finished_run_resumes_to_its_table(ended: Project) -> None:
    """An empty variable makes no other command line."""
    outcome = ended.run("-k", "beta", "--resume", env={"DATASETS_DIR": ""}).assert_code(0)
    outcome.line(": 2 cases are done")
    outcome.line("  beta-generated ")
    outcome.line("2 cases were measured before this run was resumed")
    assert "no case is selected" not in outcome.text


def test_asked_for_by_the_variable_it_is_no_other_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def words(variable: str, *given: str) -> List[str]:
        monkeypatch.setenv("PYTEST_ADDOPTS", variable)
        config: Any = SimpleNamespace(invocation_params=SimpleNamespace(args=given))
        return command_line(config)

    monkeypatch.delenv("DATASETS_DIR", raising=False)
    assert words("--resume", "-k", "a") == words("", "-k", "a", "--resume") == ["-k", "a"]
    assert words("--resume -k 'a or b'") == words("-k 'a or b'")
    assert words("-v --resume ", "-k", "a") == ["PYTEST_ADDOPTS=-v", "-k", "a"]
    assert words('-k "a or b" --resume -v') == words('-k "a or b" -v')


def test_other_conditions_are_measured_anew(ended: Project) -> None:
    rewrite(ended.journals()[0], in_records("conditions", {"allocator": "tuned"}))
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line("2 measured anew, since allocator changed (tuned -> system)")


def test_another_version_of_a_framework_is_measured_anew(ended: Project) -> None:
    rewrite(ended.journals()[0], in_records("versions", {"python": "3.7.0"}))
    outcome = ended.run("-k", "beta-synthetic or beta", "--resume").assert_code(0)
    outcome.line("nothing to resume")  # another command line
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    assert "2 cases are done" not in outcome.text
    assert "2 measured anew, since version of " in outcome.text


def test_a_baseline_that_was_rewritten_is_compared_with_anew(project: Project) -> None:
    project.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    project.run("-k", "beta", "--baseline=main").assert_code(0)
    project.run("-k", "beta", "--baseline=main", "--resume").assert_code(0).line("2 cases are done")
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "2"}
    project.run("-k", "beta", "--baseline-save=main", "--processes=1", env=slow).assert_code(0)
    outcome = project.run("-k", "beta", "--baseline=main", "--resume").assert_code(0)
    outcome.line("0 cases are done; 2 measured anew, since the baseline changed")
    assert outcome.line("  beta-synthetic").split()[-1] == "+100.0%"


def test_another_policy_judges_anew(project: Project) -> None:
    project.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    policy = project.folder / "gate.yml"
    policy.write_text("default: {throughput: 5%}")
    project.run("-k", "beta", "--baseline=main").assert_code(0)
    policy.write_text("default: {throughput: 6%}")
    outcome = project.run("-k", "beta", "--baseline=main", "--resume").assert_code(0)
    outcome.line("2 measured anew, since the policy changed")


def test_another_revision_is_said_and_goes_on(ended: Project) -> None:

    def change(line: Dict[str, Any]) -> None:
        if line["type"] == "run":
            line["circumstances"]["git"] = "0123abc"

    rewrite(ended.journals()[0], change)
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line("2 cases are done; the project's revision changed (0123abc -> None)")


def test_what_was_dropped_once_does_not_come_back(project: Project) -> None:
    """A case that no longer fits, and is not measured again before the next interruption."""
    project.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    words = ["-k", "beta", "--baseline=main"]
    project.run(*words).assert_code(0)
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "2"}
    project.run("-k", "beta", "--baseline-save=main", "--processes=1", env=slow).assert_code(0)
    outcome = project.run(*words, "--resume", "--device-timeout=7").assert_code(0)
    outcome.line("nothing to resume")  # another command line, another journal
    source = (project.folder / "bench_fake.py").read_text()
    interrupted = source.replace(
        "    if config.trouble",
        '    if "beta" in str(meter.case): raise KeyboardInterrupt\n    if config.trouble',
        1,
    )
    (project.folder / "bench_fake.py").write_text(interrupted)
    project.journals()[-1].unlink()
    project.run(*words, "--resume").assert_code(2).line("0 cases are done; 2 measured anew")
    (project.folder / "bench_fake.py").write_text(source)
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("0 cases are done")
    assert outcome.line("  beta-synthetic").split()[-1] == "+100.0%"


def test_the_order_of_cases_is_that_of_an_uninterrupted_run(project: Project) -> None:
    project.run("-k", "beta or bs8").assert_code(0)

    def change(line: Dict[str, Any]) -> None:
        if line["type"] == "outcome" and "alpha-bs8-synthetic" in line["case"]:
            line["outcome"] = "failed"

    rewrite(project.journals()[0], change)
    words = ["-k", "beta or bs8", "--resume"]
    outcome = project.run(*words).assert_code(0)
    outcome.line("3 cases are done")
    rows = [line.split()[0] for line in outcome.lines if re.match("  (alpha|beta)-", line)]
    assert rows == [
        "alpha-bs8-synthetic",
        "alpha-bs8-generated",
        "beta-synthetic",
        "beta-generated",
    ]


@pytest.mark.parametrize("workers", ["", "-n1"])
def test_a_resumed_run_is_about_all_its_cases(project: Project, workers: str) -> None:
    """What is corrected for the number of cases must not depend on an interruption."""
    if workers:
        pytest.importorskip(
            "xdist", reason="pytest-xdist is not installed: pip install pytest-xdist"
        )
    path = project.folder / "bench_fake.py"
    old = '    if config.trouble == "error":'
    note = (
        "    from ipubench.plugins.run.results import selected\n"
        "    open('about', 'w').write(' '.join(selected(meter.item.config)))\n"
    )
    path.write_text(path.read_text().replace(old, note + old))
    words = ["-k", "beta or bs8", *([workers] if workers else [])]
    project.run(*words).assert_code(0)
    before = (project.folder / "about").read_text()
    assert len(before.split()) == 4

    def change(line: Dict[str, Any]) -> None:
        if line["type"] == "outcome" and "alpha-bs8-synthetic" in line["case"]:
            line["outcome"] = "failed"

    rewrite(project.journals()[0], change)
    (project.folder / "about").unlink()
    project.run(*words, "--resume").assert_code(0).line("3 cases are done")
    assert (project.folder / "about").read_text() == before


@pytest.mark.parametrize("older", [0, 1])
def test_a_run_that_is_still_going_keeps_its_journal(ended: Project, older: int) -> None:
    """An older run, although it has ended, is not the one that is to go on."""
    for _ in range(older):
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
    outcome.line(f"nothing to resume, as the run of results/{path.name} still goes on: a new run")
    assert [len(ended.journals()), len(ended.records())] == [older + 2, 2]
    holder.kill()  # as good as any other end
    holder.communicate()
    ended.journals()[-1].unlink()
    ended.run("-k", "beta", "--resume").assert_code(0).line("2 cases are done")


def test_a_journal_that_another_user_alone_can_write_is_left_to_him(ended: Project) -> None:
    ended.add_to_conftest(
        "from ipubench.plugins.record.files import JsonLinesFile\n\n"
        "def refused(journal):\n    raise PermissionError(13, 'Permission denied')\n\n"
        "JsonLinesFile.claim = refused\n"
    )
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line("nothing to resume in results with this command line: a new run")


def case(value: float) -> Dict[str, Any]:
    return {"fullname": CASE, "stats": {"data": [value]}}


def results(*lines: Dict[str, Any]) -> SessionResults:
    return SessionResults.of(lines)


def test_fresh_processes_of_an_unfinished_case_are_dropped() -> None:
    found = results(
        {"type": "case", "benchmark": case(1.0)},
        {"type": "fresh", "benchmark": case(1.1)},
        {"type": "pair", "case": CASE, "here": case(1.0), "there": case(2.0)},
        {"type": "case", "benchmark": case(2.0)},
        {"type": "fresh", "benchmark": case(2.1)},
    )
    assert found.benchmarks == {CASE: case(2.0)}
    assert found.fresh == {CASE: [case(2.1)]}
    assert found.pairs == {}


def test_only_what_a_resumed_run_kept_counts() -> None:
    lines: List[Dict[str, Any]] = [
        {"type": "case", "benchmark": case(1.0)},
        {"type": "verdict", "case": CASE, "verdict": {}},
        {"type": "outcome", "case": CASE, "outcome": "passed"},
    ]
    kept = results(*lines, {"type": "resume", "kept": [CASE]})
    assert (kept.benchmarks, kept.outcomes) == ({CASE: case(1.0)}, {CASE: "passed"})
    dropped = results(*lines, {"type": "resume", "kept": []})
    assert not (dropped.benchmarks or dropped.outcomes or dropped.verdicts)


@pytest.mark.parametrize(
    "line", [{"type": "resume"}, {"type": "case"}, {"type": "pair", "case": 1}]
)
def test_a_line_without_its_parts_says_nothing(line: Dict[str, Any]) -> None:
    assert results({"type": "case", "benchmark": case(1.0)}, line).benchmarks == {CASE: case(1.0)}


def test_numbers_that_are_not_finite_become_null(project: Project) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    broken = source.replace(
        "    feed = ArrayFeed(config.data, ())\n    step",
        "    FakeStep.counters = lambda self: {'rate': float('nan')}\n"
        "    feed = ArrayFeed(config.data, ())\n    step",
    )
    assert broken != source
    (project.folder / "bench_fake.py").write_text(broken)
    project.run("-k", "beta-synthetic").assert_code(0)
    assert "NaN" not in project.journals()[0].read_text()
    (record,) = project.records().values()
    assert record["counters"] == {"rate": None}


def test_a_line_that_does_not_fit_on_the_disk_leaves_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.claim()
    journal.append({"type": "run"})

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        journal.append({"type": "case"})
    monkeypatch.undo()
    journal.append({"type": "outcome"})
    assert read_lines(journal.path) == [{"type": "run"}, {"type": "outcome"}]


def test_runs_of_one_second_are_in_the_order_of_their_last_lines(tmp_path: Path) -> None:
    """The number of a later process may be the smaller one, as a number or as a word."""
    names = ["run-20261121T204356-7.jsonl"]
    names += [f"run-20261121T204357-{number}.jsonl" for number in (9999, 10000, 300)]
    for age, name in enumerate(names):
        path = tmp_path / name
        path.touch()
        os.utime(path, ns=(0, 10 - age if age == 0 else age))
    assert [path.name for path in journals(tmp_path)] == names


def in_cases(change: Callable[[Dict[str, Any]], None]) -> Callable[[Dict[str, Any]], None]:
    """Return a change of the benchmark and the record of each case."""
    return lambda line: change(line) if line["type"] == "case" else None


def without(line: Dict[str, Any], key: str) -> None:
    del line["benchmark"]["extra_info"]["ipubench"][key]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


DAMAGES: Dict[str, Callable[[Dict[str, Any]], None]] = {
    "no config_hash": in_cases(lambda line: without(line, "config_hash")),
    "no device": in_cases(lambda line: without(line, "device")),
    "no fingerprint": in_records("device", {"kind": "fake"}),
    "conditions": in_records("conditions", [1]),
    "versions": in_records("versions", 3),
    "throughput": in_records("throughput", []),
    "nested": in_records("latency", nested(500)),
    "record": in_cases(lambda line: line["benchmark"].update(extra_info={"ipubench": 3})),
    "extra_info": in_cases(lambda line: line["benchmark"].update(extra_info=[])),
    "stats": in_cases(lambda line: line["benchmark"].update(stats={"data": "x"})),
    "name": in_cases(lambda line: line["benchmark"].update(fullname=["x"])),
    "digits": in_records("build_seconds", 10**400),
    "contention": in_records("contention", {"enough": False}),
    "no contention": in_records("contention", []),
}


# Of these no reader can say whose result they were.
UNREADABLE = ("nested", "name", "digits")


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_result_is_measured_anew(project: Project, lost: bool) -> None:
    """Each kind of damage has a case, and the other cases keep theirs."""
    damages = [name for name in DAMAGES if (name in UNREADABLE) == lost]
    words = ("-k", "alpha", "--sweep", "--set=flavour=plain,sweet")
    project.run(*words).assert_code(0)
    (journal,) = project.journals()
    left = iter(damages)

    def damage(line: Dict[str, Any]) -> None:
        if line["type"] == "case":
            name = next(left, "")
            if name:
                DAMAGES[name](line)

    rewrite(journal, damage)
    outcome = project.run(*words, "--resume").assert_code(0)
    assert "INTERNALERROR" not in outcome.text and "Traceback" not in outcome.text
    kept, anew = 12 - len(damages), len(damages)
    why = "the journal has no result of them" if lost else "their results in the journal are"
    done = counted(kept, "case is done", "cases are done")
    outcome.line(f"{done}; {anew} measured anew, since {why}")
    project.run(*words, "--resume").assert_code(0).line("12 cases are done")


def test_a_result_that_pytest_benchmark_cannot_show_is_measured_anew(ended: Project) -> None:
    (journal,) = ended.journals()
    rewrite(journal, in_cases(lambda line: line["benchmark"].pop("group")))
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line("0 cases are done; 2 measured anew, since their results in the journal are")


def test_a_result_without_its_versions_is_measured_anew(ended: Project) -> None:
    (journal,) = ended.journals()
    rewrite(journal, in_cases(lambda line: without(line, "versions")))
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line("0 cases are done; 2 measured anew, since version of ")


@pytest.mark.parametrize(
    "first", [{"type": "end"}, {"type": ["run"]}, {"type": "run", "format": 2, "command": {}}, {}]
)
def test_a_journal_with_another_first_line_is_none(ended: Project, first: Any) -> None:
    (journal,) = ended.journals()
    lines = journal.read_text().splitlines()[1:]
    journal.write_text("\n".join([json.dumps(first), *lines, ""]))
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line("nothing to resume")


@pytest.mark.parametrize(
    "line",
    [
        {"type": "verdict", "case": [], "verdict": {"kind": "pass"}},
        {"type": "outcome", "case": "x", "outcome": None},
        {"type": "case", "benchmark": []},
        {"type": "pair", "case": "x", "here": [], "there": {}},
        {"type": "resume", "kept": 3},
        {"type": "selected", "cases": [[]]},
        {"type": "profile", "case": "x", "profile": 1},
    ],
)
def test_a_line_with_other_parts_says_nothing(line: Dict[str, Any]) -> None:
    results = SessionResults()
    results.take({"type": "outcome", "case": "y", "outcome": "passed"})
    before = repr(results)
    results.take(line)
    assert repr(results) == before


@pytest.mark.parametrize("verdict", [[], {"kind": 3}, {"kind": "pass", "change": "x"}, True])
def test_a_case_with_a_damaged_verdict_is_measured_anew(ended: Project, verdict: Any) -> None:
    (journal,) = ended.journals()
    case = next(line["case"] for line in ended.journal() if line["type"] == "outcome")
    JsonLinesFile(journal).append({"type": "verdict", "case": case, "verdict": verdict})
    outcome = ended.run("-k", "beta", "--resume").assert_code(0)
    outcome.line("1 case is done; 1 measured anew, since their results in the journal are")


def test_a_pipe_among_the_journals_stops_nothing(ended: Project) -> None:
    os.mkfifo(ended.folder / "results" / "run-29990101T000000-1.jsonl")
    ended.run("-k", "beta", "--resume").assert_code(0).line("2 cases are done")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_promoted_with_one_message_or_without_the_case(
    ended: Project,
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (journal,) = ended.journals()
    rewrite(journal, DAMAGES[damage])
    monkeypatch.chdir(ended.folder)
    assert main(["promote", str(journal), "main"]) == 4
    text = "".join(capsys.readouterr())
    assert "is damaged: " in text or "measured no case" in text, text


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_case_that_ended_the_run_does_not_end_the_next_one(
    project: Project, workers: List[str]
) -> None:
    """Not even where it would each time: it fails alone, and the rest is measured."""
    words = ("-k", "beta-synthetic", "--set=trouble=kill,none", *workers)
    first = project.run(*words)
    if workers:  # whose controller survives: as if the kernel had chosen it too
        journal = project.journals()[-1]
        kept = [line for line in read_lines(journal) if line["type"] != "end"]
        kept = [line for line in kept if line.get("outcome") != "failed"]
        journal.write_text("".join(json.dumps(line) + "\n" for line in kept))
    else:
        assert first.code == -9
    outcome = project.run(*words, "--resume").assert_code(1)
    why = f"because the resumed run was killed while {BETA}-troublekill] ran"
    outcome.line(why)
    assert "exit code -9" in outcome.text
    assert list(project.records()) == ["beta-synthetic-troublenone"]
    project.run(*words, "--resume").assert_code(1).line(why)


@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_pytest_benchmarks_file_has_the_cases_that_were_done_before(
    project: Project, workers: List[str]
) -> None:
    if workers:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    written = project.folder / "out.json"

    def names() -> List[str]:
        return [one["fullname"] for one in json.loads(written.read_text())["benchmarks"]]

    path = project.folder / "bench_fake.py"
    source = path.read_text()
    path.write_text(source.replace('config.trouble == "raise"', 'config.data == "generated"'))
    words = ("-k", "beta", "--benchmark-json=out.json", "--resume", *workers)
    project.run(*words).assert_code(1)
    assert names() == [f"{BETA}]"]
    path.write_text(source)
    project.run(*words).assert_code(0).line("1 case is done")
    assert len(set(names())) == 2
    written.unlink()
    project.run(*words).assert_code(0).line("2 cases are done")
    assert len(set(names())) == 2


def test_a_method_of_unittest_that_killed_a_run_kills_no_second_one(project: Project) -> None:
    (project.folder / "bench_killer.py").write_text(KILLER)
    words = (project.folder, project.environment, "bench_killer.py", "--device=fake")
    run_pytest(*words).assert_code(-9)
    outcome = run_pytest(*words, "--resume").assert_code(1)
    outcome.line("1 case is measured in a process of its own, because the resumed run was killed")
    outcome.line("the case's own process ended with exit code -9")
