"""The command line of baselines, run as a user does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.baseline.commands import suite_root
from ipubench.plugins.baseline.entries import Benchmark, key_of
from ipubench.plugins.baseline.run_facts import RunFacts
from ipubench.plugins.baseline.store import load_all, load_document, save, write
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.text import cut_middle, table
from tests.support.baselines import A, B, document, entry, load
from tests.support.harness import Outcome, Project, run_command
from tests.support.reports import verdict
from tests.support.repository import IDENTITY

SYNTHETIC = "bench_fake.py::bench_fake[beta-synthetic]"
GENERATED = "bench_fake.py::bench_fake[beta-generated]"


class Shell:
    """Runs ``python -m ipubench.plugins.baseline`` in a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder

    def __call__(self, *words: str) -> Outcome:
        outcome = run_command(
            self.folder, self.project.environment, "ipubench.plugins.baseline", *words
        )
        assert "Traceback" not in outcome.text, outcome.text
        return outcome

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json").assert_code(0).text)

    def store(self, name: str, *benchmarks: Benchmark) -> None:
        save(self.path(name), document(*benchmarks))

    def path(self, name: str) -> Path:
        return self.folder / "baselines" / f"{name}.json"


@pytest.fixture
def shell(project: Project) -> Shell:
    return Shell(project)


def run(project: Project, *words: str, **env: str) -> None:
    project.run("-k", "beta", "--budget=0.3", "--processes=1", *words, env=env)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline and with a journal of its cases, measured again and slower."""
    project = Project(tmp_path_factory.mktemp("measured"))
    run(project, "--baseline-save=main")
    run(project, "--baseline=main", "--gate=5%", IPUBENCH_FAKE_SLOWDOWN="1.2")
    return project.folder


@pytest.fixture
def regressed(shell: Shell, measured: Path) -> str:
    """The name of such a journal, in the shell's project."""
    for name in ("baselines", "results"):
        shutil.copytree(measured / name, shell.folder / name)
    return shell.project.journals()[-1].name


@pytest.mark.entry_point
def test_list_shows_each_baseline(shell: Shell) -> None:
    shell.store("main", entry("a"), entry("b"), entry("a", machine="cpu/y"))
    shell.store("other", entry())
    outcome = shell("list").assert_code(0)
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
    outcome.line("cpu/x (1 entries)")
    assert outcome.line("..").split()[1:5] == ["796.5", "items/s", "0.0%", "5"]


@pytest.mark.entry_point
def test_show_a_case_has_its_configuration_and_each_process(shell: Shell) -> None:
    shell.store("main", entry("a", processes=3), entry("b"))
    outcome = shell("show", "main", "bench_x[a]").assert_code(0)
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


@pytest.mark.parametrize("words", [[], ["nothing"], ["show"], ["diff", "a", "b", "--gate=x"]])
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
    shell("merge", "all", "one", "two").assert_code(0).line("all.json has 4 entries now")
    expected = load_all(shell.path("one")) + load_all(shell.path("two"))
    assert sorted(map(key_of, load_all(shell.path("all")))) == sorted(map(key_of, expected))


def test_merge_into_a_file_that_exists_keeps_its_cases(shell: Shell) -> None:
    shell.store("all", entry("a"))
    shell.store("two", entry("b"))
    shell("merge", "all", "two").assert_code(0)
    shell("merge", "all", "two").assert_code(0)  # the same content is no conflict
    assert set(load(shell.path("all"))) == {A, B}


def test_merge_refuses_two_results_of_one_case_unless_told_to_take_the_newer(shell: Shell) -> None:
    shell.store("old", entry(time="2026-01-01T00:00:00Z"))
    shell.store("new", entry(time="2026-01-02T00:00:00Z", slower=2))
    outcome = shell("merge", "all", "new", "old").assert_code(4)
    outcome.line(f"{A} was measured twice on cpu/x (2026-01-02T00:00:00Z and 2026-01-01T00:00:00Z)")
    assert not shell.path("all").exists()
    for inputs in (["new", "old"], ["old", "new"]):
        shell("merge", "all", *inputs, "--newest").assert_code(0).line("the newer kept")
        assert load(shell.path("all"))[A] == entry(time="2026-01-02T00:00:00Z", slower=2)


def test_commands_that_change_one_file_at_once_lose_nothing(shell: Shell) -> None:
    names = [f"part{number}" for number in range(4)]
    for name in names:
        shell.store(name, entry(name))
    commands = [["merge", "all", name] for name in names[:2]]
    commands += [["promote", str(shell.path(name)), "all"] for name in names[2:]]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "ipubench.plugins.baseline", *words],
            cwd=str(shell.folder),
            env=shell.project.environment,
            stdout=subprocess.DEVNULL,
        )
        for words in commands
    ]
    assert [process.wait(timeout=120) for process in running] == [0] * 4
    assert len(load(shell.path("all"))) == 4


# promote


@pytest.mark.entry_point
def test_promote_makes_a_journal_the_baseline(shell: Shell) -> None:
    run(shell.project, "--baseline-save=saved")
    (journal,) = shell.project.journals()
    for word in (journal.name, journal.stem, str(journal)):
        shell("promote", word, "main").assert_code(0).line("2 cases of")
    saved = load(shell.path("saved"))
    promoted = load(shell.path("main"))
    assert promoted == saved
    program = str(Path(sys.executable).with_name("pytest-benchmark"))
    answer = subprocess.run(
        [program, "compare", str(shell.path("main"))],
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


def test_promote_refuses_a_regressed_run_unless_told_otherwise(
    shell: Shell, regressed: str
) -> None:
    outcome = shell("promote", regressed, "main").assert_code(4)
    outcome.line("regressed (bench_fake.py::bench_fake[beta-synthetic], bench_fake.py::bench_fake[")
    before = load(shell.path("main"))
    shell("promote", regressed, "main", "--accept-regressed").assert_code(0)
    after = load(shell.path("main"))
    for nodeid, benchmark in before.items():
        ratio = record_of(after[nodeid])["throughput"]["median"]
        assert ratio < 0.9 * record_of(benchmark)["throughput"]["median"]


def test_promote_takes_a_regressed_case_that_is_accepted_by_name(
    shell: Shell, regressed: str
) -> None:
    # Each of them needs its own word.
    one = ["--accept", "*synthetic*=the result was wrong = too fast"]
    shell("promote", regressed, "main", *one).assert_code(4).line("1 case of")
    both = [*one, "--accept", "bench_fake.py::bench_fake[beta-generated]=checked input"]
    unknown = ["--accept", "*nobody*=nothing"]
    outcome = shell("promote", regressed, "main", *both, *unknown).assert_code(0)
    outcome.line("--accept: no case of the run matches *nobody*")
    stored = load(shell.path("main"))
    (accepted,) = record_of(stored["bench_fake.py::bench_fake[beta-synthetic]"])["accepted"]
    assert accepted["reason"] == "the result was wrong = too fast"
    assert (accepted["pattern"], accepted["kind"]) == ("*synthetic*", "regressed")
    assert -0.2 < accepted["change"] < -0.1
    shell("show", "main", "beta-synthetic").line("-16.7%, the result was wrong = too fast")
    # It stays when the case is measured anew, and the newer slow-down comes after it.
    run(shell.project, "--baseline-save=main", IPUBENCH_FAKE_SLOWDOWN="1.2")
    assert record_of(load(shell.path("main"))[SYNTHETIC])["accepted"] == [accepted]
    run(shell.project, "--baseline=main", "--gate=5%", IPUBENCH_FAKE_SLOWDOWN="1.5")
    newer = shell.project.journals()[-1].name
    shell("promote", newer, "main", "--accept", "*=again").assert_code(0)
    reasons = [one["reason"] for one in record_of(load(shell.path("main"))[SYNTHETIC])["accepted"]]
    assert reasons == ["the result was wrong = too fast", "again"]


@pytest.mark.parametrize(
    ("how", "kind"), [("assert not", "failed"), ("if data: pytest.skip()  #", "skipped")]
)
def test_a_wrong_result_is_no_reference_however_fast_it_was(
    shell: Shell, how: str, kind: str
) -> None:
    run(shell.project, "--baseline-save=main")
    before = load(shell.path("main"))
    bench = shell.folder / "bench_fake.py"
    last = "flops=config.flops or None)\n"
    judged = f'{last}    data = "generated" in str(meter.case)\n    {how} data, "wrong"\n'
    text = bench.read_text().replace(last, judged)
    bench.write_text(text.replace("import os\n", "import os\nimport pytest\n"))
    words = ("-k", "beta", "--budget=0.3", "--processes=1", "--baseline-save=main", "--history")
    outcome = shell.project.run(*words, env={"IPUBENCH_FAKE_SLOWDOWN": "0.5"})
    outcome.assert_code(1 if kind == "failed" else 0)
    outcome.line("baseline with 1 case written")
    outcome.line(f"1 {kind}, whose entries stay as they were: {GENERATED}")
    outcome.line(f"1 {kind}, which the history does not keep: {GENERATED}")
    after = load(shell.path("main"))
    assert after[GENERATED] == before[GENERATED] and after[SYNTHETIC] != before[SYNTHETIC]
    # Promoting the same run leaves the same case out.
    promoted = ("promote", shell.project.journals()[-1].name, "promoted", "--history=kept")
    outcome = shell(*promoted).assert_code(1 if kind == "failed" else 0)
    outcome.line(f"1 {kind}, whose entries stay as they were: {GENERATED}")
    history = shell.folder / "baselines" / "history"
    kept = [*history.glob("*/*.json"), *(shell.folder / "kept").glob("*/*.json")]
    assert [list(load(path)) for path in (*kept, shell.path("promoted"))] == [[SYNTHETIC]] * 3
    # Where no other is left, nothing is written.
    words = ("-k", "beta-generated", *words[2:])
    outcome = shell.project.run(*words)
    outcome.line("no baseline was written: no case was left")
    outcome.line("nothing was kept for the history: no case was left")


@pytest.mark.parametrize("word", ["*synthetic*", "=reason", "pattern=", " = "])
def test_an_acceptance_without_a_reason_is_one_message(shell: Shell, word: str) -> None:
    shell("promote", "x.jsonl", "main", "--accept", word).assert_code(4).line(
        "is no PATTERN=REASON"
    )


def test_promote_keeps_a_run_for_the_history_also_where_it_refuses_it(
    shell: Shell, regressed: str
) -> None:
    for _ in range(2):  # once, however often it is tried
        outcome = shell("promote", regressed, "main", "--history=kept").assert_code(4)
        outcome.line("kept for the history in ")
        (file,) = (shell.folder / "kept").glob("*/*.json")
    assert file.name.endswith("-unversioned-promoted.json")
    assert len(load(file)) == 2 and record_of(load(file)[SYNTHETIC]).get("accepted") is None
    accept = ["--accept", "*=a better result"]
    shell("promote", regressed, "main", "--history=kept", *accept).assert_code(0)
    trends = shell("history", "beta-synthetic", "--folder=kept").assert_code(0)
    trends.line("accepted: a better result")
    shell("promote", regressed, "main", "--history", *accept).assert_code(0)
    assert shell.json("history")[0]["runs"][0]["accepted"] == "accepted: a better result"


def test_a_run_that_the_history_has_is_kept_once(shell: Shell) -> None:
    def kept() -> Dict[Path, Dict[str, Any]]:
        return {path: load_document(path) for path in folder.glob("*/*.json")}

    folder = shell.folder / "baselines" / "history"
    run(shell.project, "--history")
    run(shell.project, "-k", "bs8", "--history")
    before = kept()
    names = [journal.name for journal in shell.project.journals()]
    for name in (*names, names[0]):
        shell("promote", name, "main", "--history").assert_code(0)
    after = kept()
    assert set(after) == set(before) and len(after) == 2
    for path, document_ in after.items():
        assert [record_of(one)["promoted"] for one in document_["benchmarks"]] == ["main", "main"]
        assert document_["machine_info"] == before[path]["machine_info"] != {}
        times = [record_of(one)["time"] for one in document_["benchmarks"]]
        assert times == [record_of(one)["time"] for one in before[path]["benchmarks"]]


def git(folder: Path, *words: str) -> str:
    command = ["git", *IDENTITY, *words]
    return subprocess.check_output(command, cwd=str(folder), text=True).strip()


def committed(folder: Path, message: str) -> str:
    """Make a commit and return its number."""
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def test_promote_accepts_what_the_commits_since_the_last_promotion_say(
    shell: Shell, regressed: str
) -> None:
    def commit(message: str) -> str:
        return committed(shell.folder, message)

    words = ["promote", regressed, "main", "--accept-commits"]
    shell(*words).assert_code(4).line("--accept-commits: ")
    git(shell.folder, "init", "-q")
    commit("long ago\n\nBenchmark-accept: *=not for this one")
    promoted = commit("the promoted one")
    stored = json.loads(shell.path("main").read_text())
    stored["commit_info"] = {"id": f"{promoted}-dirty"}
    shell.path("main").write_text(json.dumps(stored))
    # Without a word since then, with a useless one, and with those of two commits.
    shell(*words).assert_code(4).line("nothing was promoted: 2 cases")
    commit("careless\n\nBenchmark-accept: everything")
    outcome = shell(*words).assert_code(4)
    outcome.line("Benchmark-accept: 'everything' is no PATTERN=REASON")
    commit("one\n\nBenchmark-accept: *synthetic*=right now\nSigned-off-by: me")
    commit("two\n\nBenchmark-accept: *generated*=$(touch harm); `touch harm`")
    # A commit that this clone does not have: the newest one alone is asked.
    stored["commit_info"] = {"id": 40 * "1"}
    shell.path("main").write_text(json.dumps(stored))
    shell(*words).assert_code(4).line("nothing was promoted: 1 case")
    stored["commit_info"] = {"id": promoted}
    shell.path("main").write_text(json.dumps(stored))
    shell(*words).assert_code(0)
    after = load(shell.path("main"))
    (accepted,) = record_of(after[GENERATED])["accepted"]
    assert accepted["reason"] == "$(touch harm); `touch harm`"
    assert not (shell.folder / "harm").exists()


def test_what_a_commit_accepts_is_for_the_entries_before_it(shell: Shell) -> None:
    """One case fails in the run that the commit is for; the other one is promoted then."""

    def judged(commit: str, a: str, b: str) -> Outcome:
        kinds = {A: a, B: b}
        facts = RunFacts(
            selected=[A, B],
            outcomes={
                case: "failed" if kind == "failed" else "passed" for case, kind in kinds.items()
            },
            verdicts={
                case: verdict(kind, 100, -0.5) for case, kind in kinds.items() if kind != "failed"
            },
            exit_code=1,
        )
        cases = [entry(name, slower=2, git=commit) for name in ("a", "b")]
        ours = {"ipubench": {"runs": [facts.as_dict()]}, "commit_info": {"id": commit}}
        write(shell.folder / "run.json", {**document(*cases), **ours})
        return shell("promote", "./run.json", "main", "--accept-commits")

    git(shell.folder, "init", "-q")
    first = committed(shell.folder, "the baseline's")
    shell.store("main", entry("a", git=first), entry("b", git=first))
    second = committed(shell.folder, "slower\n\nBenchmark-accept: *=mask needed")
    judged(second, "failed", "regressed").assert_code(1).line(
        f"1 failed, whose entries stay as they were: {A}"
    )
    third = committed(shell.folder, "mends a")
    refused = judged(third, "regressed", "regressed").assert_code(4)
    refused.line(f"nothing was promoted: 1 case of run.json regressed ({B})")
    assert record_of(load(shell.path("main"))[A]).get("accepted") is None
    judged(third, "regressed", "pass").assert_code(0)
    (accepted,) = record_of(load(shell.path("main"))[A])["accepted"]
    assert accepted["reason"] == "mask needed"
    assert record_of(load(shell.path("main"))[A])["git"] == third


def test_promote_keeps_the_entries_of_cases_that_were_not_measured_well(shell: Shell) -> None:
    """A verdict that leaves the speed open makes no baseline; a person may take it all the same."""
    run(shell.project, "--baseline-save=main")
    before = load(shell.path("main"))
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
    shell("promote", journal.name, "main", "--accept", "*=as good as it gets").assert_code(0)
    assert load(shell.path("main"))[SYNTHETIC] != before[SYNTHETIC]


def test_promote_takes_out_a_case_that_is_gone_on_purpose(shell: Shell) -> None:
    run(shell.project, "--baseline-save=main")
    bench = shell.folder / "bench_fake.py"
    bench.write_text(bench.read_text().replace('"beta"', '"renamed"'))
    words = ["-k", "renamed", "--budget=0.3", "--baseline=main", "--gate=5%"]
    # All are new: the gate says 6, which is less than that two are missing.
    shell.project.run(*words).assert_code(1)
    journal = shell.project.journals()[-1].name
    outcome = shell("promote", journal, "main").assert_code(1)
    outcome.line("2 missing, whose entries stay as they were: ")
    assert len(load(shell.path("main"))) == 4
    outcome = shell("promote", journal, "main", "--accept", "*beta*=renamed").assert_code(0)
    outcome.line(f"taken out: {SYNTHETIC}")
    assert all("renamed" in nodeid for nodeid in load(shell.path("main")))


def test_promote_takes_out_no_case_that_was_skipped(shell: Shell) -> None:
    run(shell.project, "--baseline-save=main")
    before = load(shell.path("main"))
    bench = shell.folder / "bench_fake.py"
    skip = 'import pytest\n    if "beta-generated" in str(meter.case): pytest.skip()\n    '
    first = 'if config.trouble == "error":'
    bench.write_text(bench.read_text().replace(first, skip + first))
    run(shell.project, "--baseline=main", "--gate=5%")
    journal = shell.project.journals()[-1].name
    for accept in ("--accept-regressed", "--accept=*=whatever it is"):
        outcome = shell("promote", journal, "main", accept).assert_code(1)
        outcome.line(f"1 missing, whose entries stay as they were: {GENERATED}")
        assert "taken out" not in outcome.text
        assert load(shell.path("main"))[GENERATED] == before[GENERATED]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("nothing\n", "is not the journal of a run"),
        ('{"type": "run", "format": 99}\n', "has format 99, this version reads up to"),
        ('{"type": "run", "format": 1}\n', "measured no case"),
        (
            '{"type": "run", "format": 1}\n'
            '{"type": "case", "benchmark": {"fullname": "x", "extra_info": {}}}\n',
            "is damaged",
        ),
    ],
)
def test_promote_what_is_no_run_is_one_message(shell: Shell, content: Any, message: str) -> None:
    if content is not None:
        (shell.folder / "run.jsonl").write_text(content)
    shell("promote", "./run.jsonl", "main").assert_code(4).line(message)


# prune


@pytest.mark.entry_point
def test_prune_takes_out_the_cases_that_no_longer_exist(shell: Shell) -> None:
    shell.project.run("--baseline-save=main", "--budget=0.3", "--processes=1").assert_code(0)
    assert "0 cases were pruned" in shell("prune", "main").assert_code(0).text
    bench = shell.folder / "bench_fake.py"
    bench.write_text(bench.read_text().replace('"beta"', '"renamed"'))
    kept = [nodeid for nodeid in load(shell.path("main")) if "beta" not in nodeid]
    outcome = shell("prune", "main", "--dry-run").assert_code(0)
    outcome.line("bench_fake.py::bench_fake[beta-generated]")
    outcome.line("2 cases would be pruned")
    assert len(load(shell.path("main"))) == len(kept) + 2
    shell("prune", "main").assert_code(0).line("2 cases were pruned")
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
    outcome = shell("prune", "main").assert_code(0)
    outcome.line("  bench_fake.py::bench_gone[c-noise0.02]")
    assert set(load(shell.path("main"))) == {benchmark["fullname"] for benchmark in entries}


def test_prune_of_a_suite_that_cannot_be_collected_changes_nothing(shell: Shell) -> None:
    shell.store("main", entry())
    (shell.folder / "bench_fake.py").write_text("import nothing_of_this_name")
    outcome = shell("prune", "main").assert_code(4)
    outcome.line("nothing was pruned: the suite in")
    assert "nothing_of_this_name" in outcome.text
    assert set(load(shell.path("main"))) == {A}


# diff


def kinds(found: List[Dict[str, Any]]) -> Dict[str, str]:
    return {difference["case"]: difference["kind"] for difference in found}


@pytest.mark.entry_point
def test_diff_says_what_the_gate_says(shell: Shell) -> None:
    shell.store("before", entry("a", processes=6), entry("gone", processes=6))
    shell.store("now", entry("a", processes=6, slower=1.5), entry("added"))
    outcome = shell("diff", "before", "now", "--gate=5%").assert_code(1)
    assert all(len(line) <= 80 for line in outcome.lines)
    assert outcome.line("regressed").split()[:4] == ["a", "796.5", "531.0", "-33.3%"]
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


def test_cases_of_one_name_are_told_apart_by_their_functions_and_machines(shell: Shell) -> None:
    cases = [entry("a"), entry("a", machine="cpu/y"), entry("b"), other("bench_z", entry("b"))]
    shell.store("main", *cases, entry("c"))
    rows = shell("diff", "main", "main").assert_code(0).lines
    names = [row.rsplit(maxsplit=8)[0] for row in rows if " not judged" in row][:5]
    assert names == ["a on cpu/x", "a on cpu/y", "bench_x b", "c", "bench_z b"]
    found = [(one["case"], one["machine"]) for one in shell.json("diff", "main", "main")]
    assert found.count((A, "cpu/x")) == found.count((A, "cpu/y")) == 1
    shown = shell("show", "main").assert_code(0)
    for name in ("  bench_x b ", "  bench_z b ", "  c "):
        shown.line(name)


# export


@pytest.mark.entry_point
def test_export_prints_or_writes_another_tools_format(shell: Shell) -> None:
    shell.store("main", entry())
    printed = shell("export", "main", "--format=github-action-benchmark").assert_code(0).text
    (exported,) = json.loads(printed)
    assert exported["value"] == pytest.approx(796.5, rel=0.001)
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
    ],
)
def test_a_path_that_cannot_be_used_is_one_message(shell: Shell, words: List[str]) -> None:
    shell.store("main", entry())
    assert len(shell(*words).assert_code(4).lines) == 1


def test_a_table_fits_and_cuts_names_in_their_middle() -> None:
    rows = [("case", "n"), ("a-name-that-is-long", "12")]
    assert table(rows, 20) == ["case               n", "a-name-..is-long  12"]
    assert cut_middle("short", 10) == "short"


def test_a_table_cuts_no_name_so_far_that_it_is_anothers() -> None:
    rows = [("case", "n"), ("resnet18-bs1-synthetic", "12"), ("resnet50-bs1-synthetic", "7")]
    names = [line.split()[0] for line in table(rows, 14)]
    assert names == ["case", "resnet1..nthetic", "resnet5..nthetic"]
