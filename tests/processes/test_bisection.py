"""`ipubench-bisect`: which commit made a case slower, in a real repository."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import List, Tuple

import pytest

from ipubench.plugins.processes import bisection
from ipubench.plugins.processes.bisection import ABORT, BAD, GOOD, SKIP, judged
from tests.support.harness import WITHOUT_OTHERS, Outcome
from tests.support.repository import IDENTITY, Repository

WORDS = ["-k", "beta-synthetic", "bench_fake.py", "--device=fake", "--gate-cap=3"]


def bisect(repository: Repository, *words: str) -> Outcome:
    return repository.python("-m", "ipubench.plugins.processes.bisection", *words)


@pytest.mark.parametrize(
    ("kinds", "code", "expected"),
    [
        ([], 5, SKIP),
        ([], 0, SKIP),  # all cases were skipped
        (["pass"], 0, GOOD),
        (["improved", "pass"], 0, GOOD),
        (["pass", "regressed", "inconclusive"], 1, BAD),
        (["inconclusive"], 0, SKIP),
        (["pass", "incomparable"], 0, SKIP),
        # Another case failed, or its file could not be imported.
        (["pass"], 1, SKIP),
    ],
)
def test_what_verdicts_and_the_exit_code_mean_for_git(
    kinds: List[str], code: int, expected: int
) -> None:
    assert judged({str(n): {"kind": kind} for n, kind in enumerate(kinds)}, code) == expected


@pytest.mark.slow
def test_the_commit_that_slows_a_case_is_found(repository: Repository) -> None:
    good = repository.git("rev-parse", "HEAD")
    # Git looks at the middle first, which says nothing.
    repository.replace("bench_fake.py", 'name="beta"', 'name="renamed"')
    repository.commit("without the case")
    with (repository.folder / "bench_fake.py").open("a") as file:
        file.write("\nimport nowhere\n")
    repository.commit("cannot be imported")
    repository.replace("bench_fake.py", "\nimport nowhere\n", "")
    repository.replace("bench_fake.py", 'name="renamed"', 'name="beta"')
    repository.commit("with it again")
    repository.slow_down(1.25)
    slow = repository.commit("slower")
    (repository.folder / "note").write_text("in no commit")
    before = repository.state()
    outcome = bisect(repository, good, "main", *WORDS, *WITHOUT_OTHERS).assert_code(0)
    outcome.line(f"{slow} is the first bad commit")
    outcome.line("slower: bad: regressed -20.0%")
    outcome.line("with it again: good: pass")
    outcome.line("cannot be imported: skipped: no verdict (exit code 1): ")
    assert "sys.path" not in outcome.text
    assert repository.state() == before
    assert len(repository.git("worktree", "list").splitlines()) == 2  # ours, and that of GOOD
    assert repository.git("for-each-ref", "refs/bisect") == ""


@pytest.mark.slow
def test_a_project_that_only_uses_the_suite_is_searched_too(tmp_path: Path) -> None:
    repository = Repository(tmp_path, suite=False)
    good = repository.git("rev-parse", "HEAD")
    repository.commit("nothing")
    repository.slow_down(2.0)
    slow = repository.commit("slower")
    outcome = bisect(repository, good, "main", *WORDS, *WITHOUT_OTHERS).assert_code(0)
    outcome.line(f"{slow} is the first bad commit")
    outcome.line("nothing: good: pass")


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """Two commits of a repository that this process is in."""
    monkeypatch.chdir(tmp_path)

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *IDENTITY, *words], text=True).strip()

    git("init", "-q", "-b", "main")
    found = []
    for message in ("as it is", "nothing"):
        git("commit", "-q", "--allow-empty", "-m", message)
        found.append(git("rev-parse", "HEAD"))
    return found


@pytest.mark.parametrize(
    ("code", "ended", "said"),
    [
        (GOOD, 6, "BAD is not slower than GOOD"),
        (SKIP, 6, "BAD could not be compared with GOOD"),
        (ABORT, 2, ""),  # Ctrl-C
    ],
)
def test_where_nothing_is_slower_nothing_is_searched_for(
    code: int,
    ended: int,
    said: str,
    commits: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a measurement answers; what one says of equal code is told above: good, pass."""
    monkeypatch.setattr(bisection, "PROGRAM", f"import sys; sys.exit({code})")
    assert bisection.main(["HEAD~1", "HEAD", *WORDS]) == ended
    good, bad = (commit[:12] for commit in commits)
    how = said.replace("GOOD", good).replace("BAD", bad)
    line = f"nothing to search for: {how} in this measurement\n" if said else ""
    assert capsys.readouterr().out == line


def test_a_step_is_given_what_was_asked_for_and_the_files_of_the_users_own_folder(
    commits: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    said = "import os, sys; print(*sys.argv[4:], os.environ['DATASETS_DIR'])"
    monkeypatch.setattr(bisection, "PROGRAM", said)
    monkeypatch.setenv("DATASETS_DIR", "images")
    assert bisection.main([*commits, *WORDS, "--dataset-dir=images", "--gate-policy=a.yml"]) == 6
    images = tmp_path / "images"
    _, name, *others = WORDS
    files = [f"--dataset-dir={images}", f"--gate-policy={tmp_path / 'a.yml'}"]
    asked = [commits[0], "-k", name, "--gate=2.000000%", *others, *files]
    assert f"{' '.join(asked)} {images}\n" in capfd.readouterr().out
    (tree,) = subprocess.check_output(["git", "worktree", "list"], text=True).splitlines()
    assert tree.startswith(f"{tmp_path} ")


#: Ends the search from the measurement of this number, which then waits for its own end.
ENDED_BY = """\
import os, pathlib, signal, sys
def end(*_):
    pathlib.Path({note!r}).write_text("ended well")
    os._exit(143)
seen = pathlib.Path({seen!r})
seen.write_text(seen.read_text() + "x" if seen.exists() else "x")
if len(seen.read_text()) < {number}:
    sys.exit({bad})
signal.signal(signal.SIGTERM, end)
os.kill({pid}, signal.{by})
signal.alarm(20)
signal.pause()
"""


@pytest.mark.parametrize(
    ("by", "code", "number"),
    [("SIGTERM", 143, 1), ("SIGTERM", 143, 2), ("SIGHUP", 129, 1), ("SIGINT", 2, 1)],
)
def test_who_ends_the_search_ends_its_measurement_and_leaves_no_worktree(
    by: str,
    code: int,
    number: int,
    commits: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal to this process alone: one from the terminal would reach the others as well."""
    git = ["git", *IDENTITY]
    subprocess.check_call([*git, "commit", "-q", "--allow-empty", "-m", "more"])
    note, seen = str(tmp_path / "note"), str(tmp_path / "seen")
    known = {"note": note, "seen": seen, "number": number, "bad": BAD, "pid": os.getpid(), "by": by}
    monkeypatch.setattr(bisection, "PROGRAM", ENDED_BY.format(**known))
    # nohup would have these tests ignore one of them.
    before = [signal.signal(one, signal.SIG_DFL) for one in bisection.ENDING]
    try:
        ended = bisection.main(["HEAD~2", "HEAD", *WORDS])
    except SystemExit as end:
        ended = int(end.code or 0)
    finally:
        left = [signal.signal(one, old) for one, old in zip(bisection.ENDING, before)]
    assert ended == code
    assert Path(note).read_text() == "ended well"
    assert len(subprocess.check_output([*git, "worktree", "list"]).splitlines()) == 1
    assert left == [signal.SIG_DFL, signal.SIG_DFL]


#: Ends as the message of its commit says.
AS_ITS_COMMIT = """\
import subprocess, sys
said = subprocess.check_output(["git", "log", "-1", "--format=%s"], text=True).strip()
sys.exit({said}.get(said, {other}))
"""


@pytest.mark.parametrize(
    ("good", "other", "code"),
    [
        ("HEAD~2", SKIP, 6),  # nothing but skipped ones is left
        ("HEAD~2", GOOD, 0),
        ("later", GOOD, 4),  # git takes no GOOD that comes after BAD
    ],
)
@pytest.mark.usefixtures("commits")
def test_how_a_search_ends(
    good: str, other: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", *IDENTITY]
    for message in ("more", "later"):
        subprocess.check_call([*git, "commit", "-q", "--allow-empty", "-m", message])
    subprocess.check_call([*git, "tag", "later"])
    subprocess.check_call([*git, "reset", "-q", "--hard", "HEAD~1"])
    found = AS_ITS_COMMIT.replace("{said}", "{'more': 1}").replace("{other}", str(other))
    monkeypatch.setattr(bisection, "PROGRAM", found)
    assert bisection.main([good, "HEAD", *WORDS]) == code


def test_an_alias_of_git_that_bisects_leaves_its_checkout_as_it_is(
    commits: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisection, "PROGRAM", f"import sys; sys.exit({BAD})")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    subprocess.check_call(["git", *IDENTITY, "commit", "-q", "--allow-empty", "-m", "more"])
    assert bisection.main(["HEAD~2", "HEAD", *WORDS]) == 0
    left = subprocess.check_output(["git", "for-each-ref", "--format=%(refname)"], text=True)
    assert left == "refs/heads/main\n"
    assert (tmp_path / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"


@pytest.mark.parametrize(
    ("output", "code", "why"),
    [
        ("1 skipped in 0.1s\n", 0, "\n"),
        (
            "ERROR: of no use\n!!! Exit: refused: x comes from /y !!!\n1 warning\n",
            4,
            ": refused: x comes",
        ),
        ("collected 0 items\n1 error in 0.1s\n\n", 4, ": 1 error in 0.1s"),
        (
            "ERROR: usage: pytest.main() [options]\n"
            "pytest.main(): error: argument --budget: 'x' is no time\n  rootdir: /\n",
            4,
            ": argument --budget: 'x' is no time\n",
        ),
        (
            "ERROR: usage: pytest\npytest: error: unrecognized arguments: -Q\n",
            4,
            ": unrecognized arguments: -Q\n",
        ),
    ],
)
def test_a_commit_that_is_skipped_has_its_reason_shown(
    output: str,
    code: int,
    why: str,
    commits: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bisection, "_measure", lambda *words: (code, output))
    assert bisection.step([".", ".", commits[0], *WORDS]) == SKIP
    said = capsys.readouterr().out
    assert f"{commits[1][:7]} nothing: skipped: no verdict (exit code {code}){why}" in said


@pytest.mark.parametrize(
    ("by", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 143), (signal.SIGTERM, -15)]
)
def test_a_step_waits_for_a_measurement_that_is_ended_and_ends_the_search(
    by: int,
    code: int,
    commits: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SIGTERM reaches the step as well, which has the results to remove."""

    def measured(*_: object) -> Tuple[int, str]:
        if by == signal.SIGTERM:
            os.kill(os.getpid(), by)
        return code, ""

    monkeypatch.setattr(bisection, "_measure", measured)
    assert bisection.step([".", ".", commits[0], *WORDS]) == ABORT
    assert capsys.readouterr().out == ""


def test_a_step_that_fails_says_nothing_of_its_commit(
    commits: List[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A commit may lack the project's folder; exit code 1 would make it the bad one."""
    gone = tmp_path / "gone"
    assert bisection.step([str(gone), str(gone), commits[0], *WORDS]) == SKIP
    assert f"nothing: skipped: [Errno 2] No such file or directory: '{gone}'" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "main", "-k", "beta"], "ipubench-bisect: nowhere: git knows no revision"),
        (["main", "nowhere", "-k", "beta"], "ipubench-bisect: nowhere: git knows no revision"),
        (["main", "main"], "the following arguments are required: -k"),
        (["main", "main", "-k", "beta", "--gate=2"], "not a percentage"),
        (
            ["main", "main", "-k", "beta", "--results-dir=x"],
            "--results-dir: each step of the search",
        ),
        (["main", "main", "-k", "beta", "--report=x"], "--report: each step of the search"),
    ],
)
@pytest.mark.usefixtures("commits")
def test_a_command_line_that_cannot_be_used(
    words: List[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = bisection.main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 4
    assert message in capsys.readouterr().err
