"""`--against=git:REV` compares this code with another revision, in real repositories."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import List

import pytest

from ipubench.plugins.processes.revision import find_commit, is_this_checkout
from tests.run.test_interruption import is_running
from tests.support.harness import ROOT, SuiteServer, start_pytest
from tests.support.process_starter import NO_SUITE
from tests.support.repository import FAST, IDENTITY, PYTEST, Repository

pytestmark = pytest.mark.slow

CASE = ["-k", "beta-synthetic", "--gate-cap=3"]
# Also reads the state of the other process.
NOTHING = ["-k", "no_such_case"]
NODEID = "bench_fake.py::bench_fake[beta-synthetic]"
TROUBLE = '    if config.trouble == "error":'


def worktrees(repository: Repository) -> List[Path]:
    folder = repository.folder / "cache" / "worktrees"
    return [path for path in folder.iterdir() if path.is_dir()]


def test_a_commit_that_slows_a_case_is_found(repository: Repository) -> None:
    repository.slow_down(1.25)
    repository.git("mv", "pytest.ini", "tox.ini")
    slow = repository.commit("slower, with the settings in another file")
    before = repository.state()
    # In the environment of a git hook.
    hook = {"GIT_DIR": str(repository.folder / ".git")}
    words = [*CASE, "--against=git:HEAD~1", "--gate=5%"]
    outcome = repository.run(*words, env=hook).assert_code(1)
    outcome.line("beta-synthetic has become slower: 4000 items/s before, 3200 items/s now.")
    outcome.line("against git:HEAD~1 (gate 5.0%): 1 regressed")
    first = repository.git("rev-parse", "main~1")
    outcome.line(f"the same versions; commit {first[:12]} there, {slow[:12]}")
    assert "alternating processes" not in outcome.text
    pairs = [line for line in repository.journal() if line["type"] == "pair"]
    for pair in pairs:
        records = [pair[side]["extra_info"]["ipubench"] for side in ("here", "there")]
        assert [record["git"] for record in records] == [slow, first]
    assert repository.state() == before
    assert not worktrees(repository)
    assert len(repository.git("worktree", "list").splitlines()) == 1
    # Changes that are in no commit make a difference.
    repository.replace("bench_fake.py", "1.25 * ", "1.0 * ")
    outcome = repository.run(*NOTHING, "--against=git:HEAD").assert_code(5)
    assert outcome.line("against git:HEAD: ").endswith("-dirty here")
    assert not worktrees(repository)


def test_a_commit_is_not_compared_with_itself(repository: Repository) -> None:
    words = [*CASE, "--against=git:merge-base:main"]
    repository.run(*words, "--gate=5%").assert_code(6)
    assert not repository.journals()
    # Without a gate the case is still measured.
    repository.run(*words).assert_code(0).line("nothing is compared")
    kinds = [line["type"] for line in repository.journal()]
    assert "case" in kinds and "pair" not in kinds
    assert not (repository.folder / "cache" / "worktrees").exists()


def test_uncommitted_changes_are_compared(tmp_path: Path) -> None:
    repository = Repository(tmp_path, suite=False)
    for name, same in (("results.txt", True), ("new.py", False), ("bench_fake.py", False)):
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
        assert is_this_checkout("git:main", tmp_path) == same
        repository.commit("changed")
        assert is_this_checkout("git:main", tmp_path)
        assert not is_this_checkout("git:main~1", tmp_path)


def test_the_merge_base_shows_what_a_pull_request_changes(tmp_path: Path) -> None:
    """main has advanced meanwhile; a clone has it only as origin/main."""

    def git(*words: str) -> str:
        command = ["git", *IDENTITY, *words]
        return subprocess.check_output(command, cwd=str(tmp_path), text=True).strip()

    def commit(message: str) -> str:
        git("commit", "-q", "--allow-empty", "-m", message)
        return git("rev-parse", "HEAD")

    git("init", "-q", "-b", "main")
    base = commit("as it is")
    git("branch", "change")
    later = commit("slower on main")
    git("checkout", "-q", "change")
    commit("nothing")
    git("update-ref", "refs/remotes/origin/main", "main")
    git("branch", "-q", "-D", "main")
    assert find_commit("asked", "merge-base:main", tmp_path) == base
    assert find_commit("asked", "main", tmp_path) == later


@pytest.mark.nightly
def test_a_revision_without_alternation_is_measured_in_processes(
    repository: Repository,
) -> None:
    repository.replace("fixtures/instances/protocol.py", "\nALTERNATING = 6\n", "\n")
    for name, known in (("pair", "!="), ("place", "int =")):
        file = f"plugins/processes/{name}.py"
        repository.replace(file, "import ALTERNATING\n", "import CLOSE\n")
        repository.replace(file, f"{known} ALTERNATING", f"{known} 7")
    repository.commit("older")
    repository.git("checkout", "-q", "HEAD~1", "--", ".")
    repository.slow_down(1.25)
    outcome = repository.run(*CASE, "--against=git:main", "--gate=5%").assert_code(1)
    outcome.line("4000 items/s before, 3200 items/s now")
    outcome.line("3 pairs of processes measure 1 case")
    outcome.line(
        "1 case measured in alternating processes, not in alternating rounds: the other "
        "environment has another version of alternating rounds"
    )
    assert all("rounds" not in line for line in repository.journal() if line["type"] == "pair")


@pytest.mark.nightly
def test_cases_that_fail_or_differ_there_are_incomparable(
    repository: Repository, tmp_path: Path
) -> None:
    """In all of these tests PYTHONPATH names another checkout, which alone changes nothing."""
    importing = f"    if config.batch_size == 4:\n{import_of_another_checkout(tmp_path)}"
    repository.replace("bench_fake.py", TROUBLE, importing + TROUBLE)
    repository.replace("bench_fake.py", "(1, 4, 8)", "(4, 8)")
    repository.replace("bench_fake.py", "batch_seconds=0.002", "batch_seconds=0.004")
    repository.commit("older")
    repository.replace("bench_fake.py", "(4, 8)", "(1, 4, 8)")
    repository.replace("bench_fake.py", "batch_seconds=0.004", "batch_seconds=0.002")
    cases = "alpha-bs1-synthetic or alpha-bs4-synthetic or beta-synthetic"
    outcome = repository.run("-k", cases, "--against=git:HEAD", "--gate=5%").assert_code(6)
    incomparable = "incomparable: bench_fake.py::bench_fake"
    outcome.line("new: bench_fake.py::bench_fake[alpha-bs1-synthetic]")
    outcome.line(f"{incomparable}[alpha-bs4-synthetic]: it does not run there: ")
    outcome.line(f"{incomparable}[beta-synthetic]: another configuration there")
    outcome.line("2 incomparable, 1 new")
    outcome.line("2 of 3 cases are open")
    assert "Traceback" not in outcome.text


@pytest.mark.nightly
def test_modules_of_another_checkout_are_refused(repository: Repository, tmp_path: Path) -> None:
    """Covers an editable installation that imports another suite before ours."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport ipubench.plugins\nsys.path.pop(0)\n"
    )
    path = f"{site}{os.pathsep}{ROOT}"
    repository.slow_down(1.0)
    words = [*CASE, "--against=git:HEAD", "--gate=5%"]
    outcome = repository.python_alone(*PYTEST, *words, env={"PYTHONPATH": path}).assert_code(4)
    line = outcome.line("refused, because ipubench comes from")
    assert (
        f"{ROOT / 'ipubench' / '__init__.py'}, outside {repository.folder / 'cache' / 'worktrees'}"
        in line
    )
    assert not repository.journals()


def import_of_another_checkout(folder: Path) -> str:
    """Return lines of a bench function that import a module of a new folder next to the project."""
    other = folder / "other"
    other.mkdir()
    (other / "bench_helper.py").write_text("")
    lines = ("import sys", f"sys.path.insert(0, {str(other)!r})", "import bench_helper")
    return "".join(f"        {line}\n" for line in lines)


@pytest.mark.nightly
def test_a_process_that_imports_another_checkout_is_refused(
    repository: Repository, tmp_path: Path
) -> None:
    importing = f"    if config:\n{import_of_another_checkout(tmp_path)}"
    repository.replace("bench_fake.py", TROUBLE, importing + TROUBLE)
    repository.replace("fixtures/instances/protocol.py", "ALTERNATING = 6", "ALTERNATING = 0")
    repository.commit("imports from elsewhere")
    repository.replace("fixtures/instances/protocol.py", "ALTERNATING = 0", "ALTERNATING = 6")
    outcome = repository.run(*CASE, "--against=git:HEAD", "--gate=5%").assert_code(6)
    outcome.line(f"incomparable: {NODEID}: it does not run there: ")
    helper = tmp_path / "other" / "bench_helper.py"
    outcome.line(f"refused: bench_helper comes from {helper}, outside ")


@pytest.fixture(scope="module")
def orphaned(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with a branch that has no suite and no common history."""
    repository = Repository(tmp_path_factory.mktemp("orphaned"))
    repository.git("checkout", "-q", "--orphan", "orphan")
    repository.git("rm", "-rq", "--cached", "ipubench")
    repository.git("commit", "-q", "-m", "without the suite")
    repository.git("checkout", "-q", "-f", "main")
    return repository


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--against=git:nowhere"], "'nowhere'"),
        (["--against=git:orphan"], "no ipubench folder"),
        (["--against=git:merge-base:orphan"], "no common commit"),
        (["--against-setup=true"], "--against=git:REV"),
        (["--against=git:main", "--against-setup=false"], "--against-setup=false"),
        (["--against=git:main", "--against-setup=true"], "--against-python"),
    ],
)
def test_an_unusable_revision_is_refused_before_any_measurement(
    orphaned: Repository, words: List[str], said: str
) -> None:
    outcome = orphaned.run(*words).assert_code(4)
    assert said in outcome.text
    assert "Traceback" not in outcome.text
    assert not orphaned.journals()


@pytest.mark.nightly
def test_an_option_that_a_revision_lacks_is_refused_only_if_given(
    repository: Repository,
) -> None:
    repository.replace("plugins/command_line/arguments.py", '    "wait_for_quiet",\n', "")
    repository.replace("plugins/command_line/options.py", '"--wait-for-quiet"', '"--other-word"')
    repository.commit("older")
    repository.git("checkout", "-q", "HEAD~1", "--", ".")
    words = [*CASE, "--against=git:main", "--gate=5%"]
    outcome = repository.run(*words, "--wait-for-quiet=1s").assert_code(4)
    outcome.line("the suite of that revision does not know --wait-for-quiet=1s; leave it out")
    assert not repository.journals()


def test_an_environment_is_made_once_per_revision(repository: Repository, tmp_path: Path) -> None:
    python = tmp_path / "python"
    SuiteServer.python(python, NO_SUITE)
    script = (
        "mkdir -p .venv/bin; echo made >> made\n"
        f"printf '#!/bin/sh\\nSIDE=there exec {python} \"$@\"\\n' > .venv/bin/python\n"
        "chmod +x .venv/bin/python\n"
    )
    (repository.folder / "setup.sh").write_text(script)
    repository.replace(
        "bench_fake.py",
        FAST,
        "        config.batch_seconds * (0.8 if os.environ.get('SIDE') else 1),\n",
    )
    repository.commit("faster in its own environment")
    words = [*CASE, "--against=git:main", "--against-setup=sh setup.sh", "--gate=5%"]
    repository.run(*words).assert_code(1).line("5000 items/s before, 4000 items/s now")
    repository.run(*words, *NOTHING).assert_code(5)
    (tree,) = worktrees(repository)
    assert (tree / "made").read_text() == "made\n"


@pytest.mark.nightly
def test_another_commit_is_measured_again(repository: Repository) -> None:
    words = [*CASE, "--against=git:main", "--gate=5%"]
    repository.git("checkout", "-q", "-b", "change")
    first = repository.commit("nothing")
    repository.commit("nothing more")
    repository.run(*words).assert_code(0).line("1 pass")
    repository.run(*words, "--resume").assert_code(0).line("1 case is done")
    repository.git("branch", "-f", "main", first)
    outcome = repository.run(*words, "--resume").assert_code(0)
    outcome.line("1 measured again")


@pytest.mark.nightly
def test_a_killed_process_ends_only_its_case(repository: Repository) -> None:
    # The run's own test of the case is no instance and measures.
    killed = (
        "    if config.name == 'alpha' and 'IPUBENCH_INSTANCE_TOKEN' in os.environ:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    repository.replace("bench_fake.py", TROUBLE, killed + TROUBLE)
    repository.commit("is killed")
    repository.replace("bench_fake.py", "config.name == 'alpha'", "config.name == 'beta'")
    words = ["-k", "synthetic and (beta or alpha-bs1)", "--against=git:HEAD", "--gate=5%"]
    outcome = repository.run(*words).assert_code(1)
    for side in ("here", "there"):
        outcome.line(f"the process {side} (process ")
    assert outcome.text.count("was killed by SIGKILL") >= 2
    # A case that only the other process cannot run is incomparable.
    outcome.line("1 incomparable")
    outcome.line("1 failed, 1 passed")
    assert "Traceback" not in outcome.text
    assert "Its log is /" not in outcome.text  # it ended with the processes


@pytest.mark.nightly
def test_an_interrupted_run_leaves_no_process_and_can_be_resumed(repository: Repository) -> None:
    waiting = "    if os.environ.get('WAIT') and os.environ.get('IPUBENCH_INSTANCE_TOKEN'):\n"
    waiting += "        with open(os.environ['WAIT'], 'a') as file:\n"
    waiting += "            file.write(f'{os.getpid()} ')\n"
    waiting += "        import time; time.sleep(60)\n"
    repository.replace("bench_fake.py", TROUBLE, waiting + TROUBLE)
    repository.commit("waits")
    repository.commit("the same")
    words = ["bench_fake.py", "--device=fake", *CASE, "--against=git:HEAD~1", "--gate=5%"]
    notes = repository.folder / "results.txt"
    environment = {**repository.environment, "WAIT": str(notes)}
    run = start_pytest(repository.folder, environment, *words, framework=NO_SUITE)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and (
        not notes.exists() or len(notes.read_text().split()) < 2
    ):
        time.sleep(0.1)
    pids = [int(word) for word in notes.read_text().split()]
    assert len(pids) == 2
    run.send_signal(signal.SIGINT)
    run.wait().assert_code(2)
    while time.monotonic() < deadline and any(map(is_running, pids)):
        time.sleep(0.1)
    assert not any(map(is_running, pids))
    repository.run(*words[2:], "--resume").assert_code(0).line("1 pass")
