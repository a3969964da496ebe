"""The command line of baselines, run as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.__main__ import main
from ipubench.plugins.baseline.commands import run_path, suite_root
from ipubench.plugins.baseline.entries import Benchmark, key_of
from ipubench.plugins.baseline.run_facts import RunFacts
from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all, write
from ipubench.plugins.record.record import record_of
from tests.support.baselines import A, B, Shell, document, entry, load
from tests.support.harness import Started, run_command


@pytest.mark.entry_point
def test_list_shows_each_baseline(shell: Shell) -> None:
    shell.store("main", entry("a"), entry("b"), entry("a", machine="cpu/y"))
    shell.store("other", entry())
    outcome = shell.alone("list").assert_code(0)
    assert outcome.line("main").split()[:3] == ["main", "2", "2"]
    assert outcome.line("other").split()[3:5] == ["2026-01-02", "03:04"]
    assert [row["machines"] for row in shell.json("list")] == [["cpu/x", "cpu/y"], ["cpu/x"]]


def test_list_names_a_damaged_file_and_shows_the_others(shell: Shell) -> None:
    shell.store("main", entry())
    shell.path("broken").write_text("{")
    outcome = shell("list").assert_code(4)
    outcome.line("broken.json is not valid JSON")
    outcome.line("main  ")


def test_an_empty_folder_says_what_to_do(shell: Shell) -> None:
    shell("list").assert_code(0).line("--baseline-save=NAME writes one")


def test_show_lists_the_cases_by_machine_within_80_columns(shell: Shell) -> None:
    long = "resnet50-instances4-bs16-generated-with-a-very-long-name-that-goes-on-and-on-and-on"
    shell.store("main", entry(long, processes=5), entry("b", machine="cpu/y"))
    outcome = shell("show", "main").assert_code(0)
    assert all(len(line) <= 80 for line in outcome.lines)
    outcome.line("cpu/x (1 entry)")
    assert outcome.line("..").split()[1:5] == ["799.4", "items/s", "0.0%", "5"]


@pytest.mark.entry_point
def test_show_a_case_has_its_configuration_and_each_process(shell: Shell) -> None:
    shell.store("main", entry("a", processes=3), entry("b"))
    outcome = shell.alone("show", "main", "bench_x[a]").assert_code(0)
    assert all(len(line) <= 80 for line in outcome.lines)
    outcome.line("machine        cpu/x")
    assert "batch_size 8" in outcome.text and B not in outcome.text
    assert [line.split()[-1] for line in outcome.lines[-3:]] == ["no", "yes", "yes"]
    (only,) = shell.json("show", "main", "bench_x[a]")
    assert only == load(shell.path("main"))[A]


def test_show_without_a_match_is_one_message(shell: Shell) -> None:
    shell.store("main", entry())
    shell("show", "main", "zzz").assert_code(4).line("no case of main has 'zzz' in its name")
    shell("show", "nope").assert_code(4).line("there are: main")


@pytest.mark.parametrize("many", [False, True])
def test_an_output_that_cannot_be_written_is_one_message(shell: Shell, many: bool) -> None:
    """Whether it fails while it is written, or as what is left of it is."""
    shell.store("main", *(entry(str(number)) for number in range(200 if many else 1)))
    command = [sys.executable, "-m", "ipubench.plugins.baseline", "show", "main", "--json"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            command,
            cwd=str(shell.folder),
            env=shell.project.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    message = "ipubench-baseline: the output cannot be written: [Errno 28] No space left on device"
    assert (ended.returncode, ended.stderr.decode().splitlines()) == (4, [message])


def test_a_reader_that_has_seen_enough_ends_it_quietly(shell: Shell) -> None:
    shell.store("main", *(entry(str(number)) for number in range(200)))
    command = [sys.executable, "-m", "ipubench.plugins.baseline", "show", "main", "--json"]
    with subprocess.Popen(
        command,
        cwd=str(shell.folder),
        env=shell.project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nothing"],
        ["show"],
        ["diff", "a", "b", "--gate=x"],
        ["promote", "run", ""],  # a variable of the shell that has no value
        ["merge", "", "main"],
    ],
)
def test_a_wrong_command_line_is_one_message_and_exit_code_4(
    shell: Shell, words: List[str]
) -> None:
    outcome = shell(*words).assert_code(4)
    assert len(outcome.lines) == 1 and "--help" in outcome.text


@pytest.mark.parametrize(
    ("name", "text", "is_root"),
    [
        ("pytest.ini", "", True),
        (".pytest.ini", "", True),
        ("pyproject.toml", "[project]\nname = 'x'\n\n[tool.pytest.ini_options] # ours\n", True),
        ("tox.ini", "[tox]\n[pytest]\naddopts =\n", True),
        ("setup.cfg", "[metadata]\n[tool:pytest]\n", True),
        ("setup.cfg", "[metadata]\n", False),
        ("tox.ini", "[tox]\n", False),
        ("pyproject.toml", "[project]\n", True),  # as there are no settings above
        ("setup.py", "", True),
        ("baselines/other.json", "{}", True),
        ("notes.txt", "", False),
    ],
)
def test_the_suites_folder_is_the_one_that_pytest_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, is_root: bool
) -> None:
    root, below = tmp_path / "root", tmp_path / "root" / "tests" / "deep"
    below.mkdir(parents=True)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)
    (below / "setup.cfg").write_text("[metadata]\n")
    monkeypatch.chdir(below)
    assert suite_root() == (root if is_root else below)


def test_settings_of_pytest_are_nearer_than_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "package" / "tests"
    below.mkdir(parents=True)
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\n")
    (tmp_path / "package" / "pyproject.toml").write_text("[project]\n")
    (below / "baselines").mkdir()
    monkeypatch.chdir(below)
    assert suite_root() == tmp_path
    (tmp_path / "package" / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    assert suite_root() == tmp_path / "package"


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


def test_a_project_with_another_file_of_settings_has_its_baselines_found(shell: Shell) -> None:
    settings = (shell.folder / "pytest.ini").read_text().replace("[pytest]", "[tool:pytest]")
    (shell.folder / "pytest.ini").unlink()
    (shell.folder / "setup.cfg").write_text(settings)
    shell.store("main", entry())
    (shell.folder / "tests").mkdir()
    words = ("ipubench.plugins.baseline", "list")
    outcome = run_command(shell.folder / "tests", shell.project.environment, *words)
    outcome.assert_code(0).line("main  ")


# merge


@pytest.mark.entry_point
def test_merge_joins_shards(shell: Shell) -> None:
    shell.store("one", entry("a"))
    shell.store("two", entry("b"), entry("a", machine="cpu/y"), entry("a", config_hash="g"))
    shell.alone("merge", "all", "one", "two").assert_code(0).line("all.json has 4 entries now")
    expected = load_all(shell.path("one")) + load_all(shell.path("two"))
    assert sorted(map(key_of, load_all(shell.path("all")))) == sorted(map(key_of, expected))


def test_a_merge_of_nothing_is_refused(shell: Shell) -> None:
    shell.store("empty")
    shell("merge", "all", "empty", "empty").assert_code(4)
    assert not shell.path("all").exists()


def test_merge_into_a_file_that_exists_keeps_its_cases(shell: Shell) -> None:
    shell.store("all", entry("a"))
    shell.store("two", entry("b"))
    shell("merge", "all", "two").assert_code(0)
    shell("merge", "all", "two").assert_code(0)  # the same content is no conflict
    assert set(load(shell.path("all"))) == {A, B}


def test_merge_refuses_two_results_of_one_case_unless_told_to_take_the_newer(shell: Shell) -> None:
    old, new = entry(time="2026-01-01T00:00:00Z"), entry(time="2026-01-02T00:00:00Z", slower=2)
    accepted = [{"reason": "x", "pattern": "*", "time": "2026-01-01T00:00:00Z"}]
    record_of(old)["accepted"] = accepted
    shell.store("old", old)
    shell.store("new", new)
    record_of(new)["accepted"] = accepted  # which the newer one remembers
    outcome = shell("merge", "all", "new", "old").assert_code(4)
    outcome.line(f"{A} was measured twice on cpu/x (2026-01-02T00:00:00Z and 2026-01-01T00:00:00Z)")
    assert not shell.path("all").exists()
    for inputs in (["new", "old"], ["old", "new"]):
        shell("merge", "all", *inputs, "--newest").assert_code(0).line("the newer kept")
        assert load(shell.path("all"))[A] == new
    # A result that is there already is no second one for what is remembered beside it.
    assert "twice" not in shell("merge", "all", "new").assert_code(0).text
    assert load(shell.path("all"))[A] == new


def test_commands_that_change_one_file_at_once_lose_nothing(shell: Shell) -> None:
    names = [f"part{number}" for number in range(4)]
    for name in names:
        shell.store(name, entry(name))
    commands = [["merge", "all", name] for name in names[:2]]
    commands += [["promote", str(shell.path(name)), "all"] for name in names[2:]]
    program = ("-m", "ipubench.plugins.baseline")
    running = [
        Started(shell.folder, shell.project.environment, *program, *words) for words in commands
    ]
    for process in running:
        process.wait().assert_code(0)
    assert len(load(shell.path("all"))) == 4


def test_what_another_merge_says_of_its_runs_stays(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that one changes the file while this one is about to."""
    for name in ("one", "two"):
        says = {"runs": [RunFacts(name=name, outcomes={A: "passed"}).as_dict()]}
        write(shell.path(name), {**document(entry(name)), "ipubench": says})
    change = store.change

    def after_another(*given: Any) -> None:
        monkeypatch.setattr(store, "change", change)
        assert main(["merge", "all", "two"]) == 0
        change(*given)

    monkeypatch.chdir(shell.folder)
    monkeypatch.setattr(store, "change", after_another)
    assert main(["merge", "all", "one"]) == 0
    assert {run.name for run in read_run(shell.path("all")).runs} == {"one", "two"}


# prune


@pytest.mark.entry_point
def test_prune_takes_out_the_cases_that_no_longer_exist(shell: Shell) -> None:
    shell.project.run("--baseline-save=main", "--budget=0.3", "--processes=1").assert_code(0)
    assert "0 cases were pruned" in shell.alone("prune", "main").assert_code(0).text
    bench = shell.folder / "bench_fake.py"
    bench.write_text(bench.read_text().replace('"beta"', '"renamed"'))
    kept = [nodeid for nodeid in load(shell.path("main")) if "beta" not in nodeid]
    outcome = shell.alone("prune", "main", "--dry-run").assert_code(0)
    outcome.line("bench_fake.py::bench_fake[beta-generated]")
    outcome.line("2 cases would be pruned")
    assert len(load(shell.path("main"))) == len(kept) + 2
    shell.alone("prune", "main").assert_code(0).line("2 cases were pruned")
    assert list(load(shell.path("main"))) == kept


def test_prune_keeps_cases_of_other_devices_and_of_other_options(shell: Shell) -> None:
    """gamma needs IPUs, alpha-bs4 is an inner sweep point, and options change a case's name."""
    names = ["gamma-pod4-inference-synthetic", "alpha-bs4-synthetic", "beta-synthetic-noise0.02"]
    entries = [entry(name, time="2026-01-01T00:00:00Z") for name in names]
    for benchmark, name in zip(entries, names):
        benchmark["fullname"] = f"bench_fake.py::bench_fake[{name}]"
    record_of(entries[2])["overrides"] = ["noise"]
    gone = entry("c")
    gone["fullname"] = "bench_fake.py::bench_gone[c-noise0.02]"
    record_of(gone)["overrides"] = ["noise"]
    shell.store("main", *entries, gone)
    outcome = shell.alone("prune", "main").assert_code(0)
    outcome.line("  bench_fake.py::bench_gone[c-noise0.02]")
    assert set(load(shell.path("main"))) == {benchmark["fullname"] for benchmark in entries}


def test_prune_of_a_suite_that_cannot_be_collected_changes_nothing(shell: Shell) -> None:
    shell.store("main", entry())
    (shell.folder / "bench_fake.py").write_text("import nothing_of_this_name")
    outcome = shell.alone("prune", "main").assert_code(4)
    outcome.line("nothing was pruned: the suite in")
    assert "nothing_of_this_name" in outcome.text
    assert set(load(shell.path("main"))) == {A}


# diff


def kinds(found: List[Dict[str, Any]]) -> Dict[str, str]:
    return {difference["case"]: difference["kind"] for difference in found}


@pytest.mark.entry_point
def test_diff_says_what_the_gate_says(shell: Shell) -> None:
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
    made, gone = entry("a-noise0.02"), entry("c-noise0.02")
    gone["fullname"] = "bench_gone.py::bench_gone[c-noise0.02]"
    for benchmark in (made, gone):
        record_of(benchmark)["overrides"] = ["noise"]
    shell.store("before", entry("a"), made, gone)
    shell.store("now", entry("a"))
    found = kinds(shell.json("diff", "before", "now"))
    assert found == {A: "not judged", gone["fullname"]: "missing"}


def test_diff_of_other_machines_compares_nothing(shell: Shell) -> None:
    shell.store("before", entry("a", machine="cpu/y"))
    shell.store("now", entry("a"))
    outcome = shell("diff", "before", "now", "--gate=5%").assert_code(6)
    outcome.line(f"incomparable: {A}: another machine (cpu/y, now cpu/x)")
    outcome.line("nothing was compared")


def test_diff_takes_the_entry_of_the_same_machine_and_configuration(shell: Shell) -> None:
    shell.store("before", entry(machine="cpu/y"), entry(), entry(config_hash="g", slower=3))
    shell.store("now", entry())
    (found,) = shell.json("diff", "before", "now", "--gate=5%")
    assert found["kind"] in ("pass", "inconclusive")
    assert found["change"] == pytest.approx(0)


def other(function: str, case: Benchmark) -> Benchmark:
    """Return the case of this name of another bench function."""
    name = record_of(case)["name"]
    return {**case, "fullname": f"{function}.py::{function}[{name}]"}


def test_entries_of_one_name_are_told_apart(shell: Shell) -> None:
    """By their functions, machines and configurations."""
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
    assert len(json.loads(shell("export", "main", "--format=bencher").text)) == len(found)


# export


@pytest.mark.entry_point
def test_export_prints_or_writes_another_tools_format(shell: Shell) -> None:
    shell.store("main", entry())
    printed = shell.alone("export", "main", "--format=github-action-benchmark").assert_code(0).text
    (exported,) = json.loads(printed)
    assert exported["value"] == pytest.approx(799.4, rel=0.001)
    shell("export", "main", "--format=csv", "--output=out.csv").assert_code(0)
    assert (shell.folder / "out.csv").read_text().count("\n") == 2
    shell("export", "main", "--format=xml").assert_code(4).line("there are: bencher, csv")


LONG = "x" * 300


@pytest.mark.parametrize(
    "words",
    [
        ["show", "~nobody2/main"],
        ["promote", "~nobody2/run.jsonl", "main"],
        ["promote", LONG, "main"],
        ["promote", f"./{LONG}", "main"],
        ["merge", "out", f"./{LONG}"],
        ["history", f"--folder={LONG}"],
        ["promote", "baselines/main.json", f"./{LONG}"],
        ["export", "main", "--format=csv", "-o", "~nobody2/out.csv"],
        ["export", "main", "--format=csv", "-o", LONG],
        ["export", "main", "--format=csv", "-o", "."],
    ],
)
def test_a_path_that_cannot_be_used_is_one_message(shell: Shell, words: List[str]) -> None:
    shell.store("main", entry())
    assert len(shell(*words).assert_code(4).lines) == 1
