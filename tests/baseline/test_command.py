"""The command line of baselines, run as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.baseline.commands import run_path, suite_root
from ipubench.plugins.baseline.entries import key_of
from ipubench.plugins.baseline.store import load_all, write
from ipubench.plugins.record.structs import Benchmark, as_plain
from tests.support.baselines import A, B, Shell, document, entry, load
from tests.support.harness import Started
from tests.support.stored import changed


@pytest.mark.entry_point
def test_list_shows_each_baseline_and_names_a_damaged_one(shell: Shell) -> None:
    shell("list").assert_code(0).line("--baseline-save=NAME")
    shell.store("main", entry("a"), entry("b"), entry("a", machine="cpu/y"))
    shell.store("other", entry())
    outcome = shell.alone("list").assert_code(0)
    assert outcome.line("main").split()[:3] == ["main", "2", "2"]
    assert outcome.line("other").split()[3:5] == ["2026-01-02", "03:04"]
    assert [row["machines"] for row in shell.json("list")] == [["cpu/x", "cpu/y"], ["cpu/x"]]
    shell.path("broken").write_text("{")
    outcome = shell("list").assert_code(4)
    outcome.line("broken.json")
    outcome.line("main  ")


def test_show_lists_the_cases_by_machine_within_80_columns(shell: Shell) -> None:
    long = "resnet50-instances4-bs16-generated-with-a-very-long-name-that-goes-on-and-on-and-on"
    shell.store("main", entry(long, processes=5), entry("b", machine="cpu/y"))
    outcome = shell("show", "main").assert_code(0)
    assert all(len(line) <= 80 for line in outcome.lines)
    outcome.line("cpu/x (1 entry)")
    assert outcome.line("..").split()[1:5] == ["799.4", "items/s", "0.0%", "5"]


def test_show_a_case_has_its_configuration_and_each_process(shell: Shell) -> None:
    shell.store("main", entry("a", processes=3), entry("b"))
    outcome = shell("show", "main", "bench_x[a]").assert_code(0)
    assert all(len(line) <= 80 for line in outcome.lines)
    outcome.line("machine        cpu/x")
    assert "batch_size 8" in outcome.text and B not in outcome.text
    assert [line.split()[-1] for line in outcome.lines[-3:]] == ["no", "yes", "yes"]
    (only,) = shell.json("show", "main", "bench_x[a]")
    assert only == as_plain(load(shell.path("main"))[A])


def output_of(shell: Shell, **where: Any) -> subprocess.Popen[bytes]:
    """Start a command whose output overfills a pipe."""
    shell.store("main", *(entry(str(number)) for number in range(200)))
    command = [sys.executable, "-m", "ipubench.plugins.baseline", "show", "main", "--json"]
    return subprocess.Popen(
        command,
        cwd=str(shell.folder),
        env=shell.project.environment,
        stderr=subprocess.PIPE,
        **where,
    )


def test_a_failing_output_is_one_message(shell: Shell) -> None:
    with open("/dev/full", "w") as full:
        running = output_of(shell, stdout=full)
        _, said = running.communicate()
    assert running.returncode == 4 and len(said.splitlines()) == 1


def test_a_closed_pipe_ends_the_command_quietly(shell: Shell) -> None:
    with output_of(shell, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")


LONG = "x" * 300


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--help"),
        (["nothing"], "--help"),
        (["show"], "--help"),
        (["diff", "a", "b", "--gate=x"], "--help"),
        (["promote", "run", ""], "--help"),  # an empty shell variable
        (["history", "--last=0"], "--last"),
        (["show", "main", "zzz"], "'zzz'"),
        (["show", "nope"], "there are: main"),
        (["show", "~nobody2/main"], "nobody2"),
        (["promote", "~nobody2/run.jsonl", "main"], "nobody2"),
        (["promote", f"./{LONG}", "main"], LONG),
        (["promote", "none.jsonl", "main"], "none.jsonl"),
        (["promote", "baselines/main.json", f"./{LONG}"], LONG),
        (["promote", "x.jsonl", "main", "--accept", "*synthetic*"], "PATTERN=REASON"),
        (["promote", "x.jsonl", "main", "--accept", "=reason"], "PATTERN=REASON"),
        (["promote", "x.jsonl", "main", "--accept", "pattern= "], "PATTERN=REASON"),
        (["history", f"--folder={LONG}"], LONG),
        (["site", "out", "--commits=javascript:{}"], "--commits"),
        (["site", "out", "--commits=https://example.org/"], "--commits"),
        (["site", "out", "--folder=empty"], "--history"),
    ],
)
def test_an_invalid_command_line_is_one_message(shell: Shell, words: List[str], said: str) -> None:
    shell.store("main", entry())
    outcome = shell(*words).assert_code(4)
    assert len(outcome.lines) == 1 and said in outcome.text


def test_the_project_is_the_nearest_folder_with_baselines_else_with_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "package" / "tests"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert suite_root() == below
    (tmp_path / "package" / "setup.cfg").touch()
    assert suite_root() == tmp_path / "package"
    (tmp_path / "baselines").mkdir()
    assert suite_root() == tmp_path


def test_a_journal_by_name_is_one_of_this_folder_else_of_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "tests"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for folder in (tmp_path, below):
        (folder / "results").mkdir(parents=True)
    (tmp_path / "results" / "run-1.5.jsonl").touch()
    (tmp_path / "results" / "run-1.jsonl").touch()
    monkeypatch.chdir(below)
    assert run_path("run-1") == tmp_path / "results" / "run-1.jsonl"
    assert run_path("run-1.5.jsonl") == tmp_path / "results" / "run-1.5.jsonl"
    (below / "results" / "run-1.jsonl").touch()
    assert run_path("run-1") == below / "results" / "run-1.jsonl"


def test_commands_that_change_one_file_at_once_lose_nothing(shell: Shell) -> None:
    names = [f"part{number}" for number in range(3)]
    for name in names:
        shell.store(name, entry(name))
    program = ("-m", "ipubench.plugins.baseline", "promote")
    running = [
        Started(shell.folder, shell.project.environment, *program, str(shell.path(name)), "all")
        for name in names
    ]
    for process in running:
        process.wait().assert_code(0)
    assert len(load(shell.path("all"))) == 3


# prune


@pytest.mark.entry_point
def test_prune_removes_the_cases_that_no_longer_exist(shell: Shell) -> None:
    """gamma needs IPUs, alpha-bs4 is one of a sweep's middle sizes, and options rename a case."""
    names = ["gamma-pod4-inference-synthetic", "alpha-bs4-synthetic", "beta-synthetic-noise0.02"]
    names += ["renamed-synthetic", "c-noise0.02"]
    *kept, renamed, _ = (
        changed(entry(name), {"fullname": f"bench_fake.py::bench_fake[{name}]"}) for name in names
    )
    made = {"record.overrides": ["noise"]}
    kept[2] = changed(kept[2], made)
    gone = changed(entry(), {**made, "fullname": "bench_fake.py::bench_gone[c-noise0.02]"})
    shell.store("main", *kept, renamed, gone)
    outcome = shell.alone("prune", "main", "--dry-run").assert_code(0)
    for benchmark in (renamed, gone):
        outcome.line(f"  {benchmark.fullname}")
    assert len(load(shell.path("main"))) == 5
    shell.alone("prune", "main").assert_code(0).line("2 cases were pruned")
    assert set(load(shell.path("main"))) == {benchmark.fullname for benchmark in kept}


def test_prune_changes_nothing_if_collection_fails(shell: Shell) -> None:
    shell.store("main", entry())
    (shell.folder / "bench_fake.py").write_text("import nothing_of_this_name")
    outcome = shell.alone("prune", "main").assert_code(4)
    assert "nothing_of_this_name" in outcome.text
    assert set(load(shell.path("main"))) == {A}


# diff


def kinds(found: List[Dict[str, Any]]) -> Dict[str, str]:
    return {difference["case"]: difference["kind"] for difference in found}


@pytest.mark.entry_point
def test_diff_agrees_with_the_gate(shell: Shell) -> None:
    shell.store("before", entry("a", processes=6), entry("gone", processes=6))
    now = entry("a", processes=6, slower=1.5, git="fedcba")
    shell.store("now", now, entry("added"))
    outcome = shell.alone("diff", "before", "now", "--gate=5%").assert_code(1)
    assert all(len(line) <= 80 for line in outcome.lines)
    outcome.line("since before: commit 0123456789ab -> fedcba")
    assert outcome.line("regressed").split()[:4] == ["a", "799.4", "532.9", "-33.3%"]
    outcome.line("before against now (gate 5.0%): 1 missing, 1 new, 1 regressed")
    shell("diff", "before", "now").assert_code(0).line("(no gate): 1 missing, 1 new, 1 not judged")
    assert shell("diff", "now", "now", "--gate=5%").code == 0


def test_a_case_made_by_options_is_missing_only_with_its_bench_function(shell: Shell) -> None:
    options = {"record.overrides": ["noise"]}
    made = changed(entry("a-noise0.02"), options)
    gone = changed(entry(), {**options, "fullname": "bench_gone.py::bench_gone[c-noise0.02]"})
    shell.store("before", entry("a"), made, gone)
    shell.store("now", entry("a"))
    found = kinds(shell.json("diff", "before", "now"))
    assert found == {A: "not judged", gone.fullname: "missing"}


def test_diff_takes_the_entry_of_the_same_machine_and_configuration(shell: Shell) -> None:
    other = entry(machine="cpu/y")
    shell.store("before", other, entry(), entry(config_hash="g", slower=3))
    shell.store("other", other)
    shell.store("now", entry())
    (found,) = shell.json("diff", "before", "now", "--gate=5%")
    assert found["kind"] in ("pass", "inconclusive")
    assert found["change"] == pytest.approx(0)
    outcome = shell("diff", "other", "now", "--gate=5%").assert_code(6)
    outcome.line(f"incomparable: {A}: another machine (cpu/y, now cpu/x)")


def other(function: str, case: Benchmark) -> Benchmark:
    """Return the case with this name from another bench function."""
    name = case.record.name
    return changed(case, {"fullname": f"{function}.py::{function}[{name}]"})


def test_entries_with_the_same_name_are_distinguished(shell: Shell) -> None:
    """By function, machine and configuration."""
    cases = [entry("a"), entry("a", machine="cpu/y"), entry("b"), other("bench_z", entry("b"))]
    configurations = [entry("c", config_hash=f"{which}{8 * '0'}") for which in "de"]
    write(shell.path("main"), document(*cases, *configurations))
    rows = shell("diff", "main", "main").assert_code(0).lines
    names = [row.rsplit(maxsplit=8)[0] for row in rows if " not judged" in row][:6]
    shorter = ["c d0000000", "c e0000000"]
    assert names == ["a on cpu/x", "a on cpu/y", "bench_x[b]", *shorter, "bench_z[b]"]
    keys = ("case", "config_hash", "machine")
    found = [tuple(one[key] for key in keys) for one in shell.json("diff", "main", "main")]
    assert sorted(found) == sorted(map(key_of, load_all(shell.path("main"))))
    shown = shell("show", "main").assert_code(0)
    for name in ("bench_x[b]", "bench_z[b]", *shorter):
        shown.line(f"  {name} ")


HOSTILE = "a\n::error::a\x1b[2J\a\x9b1m\u202e##vso[x]"


@pytest.mark.parametrize(
    "words",
    [
        *(["show", "main"], ["show", "main", "bench_x"], ["diff", "main", "now", "--gate=5%"]),
        *(["history"], ["history", "error"], ["diff", "damaged", "now"], ["show", "main", "\a"]),
        *(["import", "baselines/now.json"], ["prune", "main", "--dry-run"]),
    ],
    ids=" ".join,
)
def test_no_name_can_write_to_the_terminal_or_command_a_ci_service(
    shell: Shell, words: List[str]
) -> None:
    places = {"record.throughput.unit": HOSTILE, "name": HOSTILE}
    places = {**places, "group": HOSTILE, "record.name": f"::error::{HOSTILE}"}
    shell.store("main", changed(entry(HOSTILE, machine=HOSTILE), places))
    (slower,) = [entry(HOSTILE, machine=HOSTILE, slower=2.0)]
    shell.store("now", changed(slower, places))
    history = shell.folder / "baselines" / "history"
    write(history / "a" / "20260101T000000-a.json", document(changed(slower, places)))
    damaged = shell.path("now").read_text().replace('"stats": {', '"stats": {"median": [], ')
    shell.path("damaged").write_text(damaged)
    outcome = shell(*words)
    assert outcome.text and all(map(str.isprintable, outcome.lines))
    for line in outcome.lines:
        assert not line.strip().startswith("::") and "##vso[" not in line
