"""`ipubench-bisect`: which commit made a case slower, in a real repository."""

from __future__ import annotations

from typing import List

import pytest

from ipubench.plugins.processes.bisection import BAD, GOOD, SKIP, judged
from tests.support.harness import Outcome
from tests.support.repository import Repository

WORDS = ["-k", "beta-synthetic", "bench_fake.py", "--device=fake", "--gate-cap=3"]


def bisect(repository: Repository, *words: str) -> Outcome:
    return repository.python("-m", "ipubench.plugins.processes.bisection", *words)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], SKIP),
        (["pass"], GOOD),
        (["improved", "pass"], GOOD),
        (["pass", "regressed", "inconclusive"], BAD),
        (["inconclusive"], SKIP),
        (["pass", "incomparable"], SKIP),
    ],
)
def test_what_verdicts_mean_for_git(kinds: List[str], expected: int) -> None:
    assert judged({str(n): {"kind": kind} for n, kind in enumerate(kinds)}) == expected


@pytest.mark.slow
def test_the_commit_that_slows_a_case_is_found(repository: Repository) -> None:
    good = repository.git("rev-parse", "HEAD")
    repository.commit("nothing")
    repository.replace("bench_fake.py", 'name="beta"', 'name="renamed"')
    repository.commit("without the case")
    repository.replace("bench_fake.py", 'name="renamed"', 'name="beta"')
    repository.commit("with it again")
    repository.slow_down(1.25)
    slow = repository.commit("slower")
    repository.commit("later")
    (repository.folder / "note").write_text("in no commit")
    before = repository.state()
    outcome = bisect(repository, good, "main", *WORDS).assert_code(0)
    outcome.line(f"{slow} is the first bad commit")
    outcome.line("slower: bad: regressed -20.0%")
    outcome.line("with it again: good: pass")
    assert "sys.path" not in outcome.text
    assert repository.state() == before
    assert len(repository.git("worktree", "list").splitlines()) == 2  # ours, and that of GOOD
    assert repository.git("for-each-ref", "refs/bisect") == ""


@pytest.mark.slow
def test_where_nothing_is_slower_nothing_is_searched_for(repository: Repository) -> None:
    good = repository.git("rev-parse", "HEAD")
    bad = repository.commit("nothing")
    outcome = bisect(repository, "HEAD~1", "HEAD", *WORDS).assert_code(6)
    outcome.line(f"nothing to search for: {bad[:12]} is not slower than {good[:12]}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "main", "-k", "beta"], "git knows no revision 'nowhere'"),
        (["main", "nowhere", "-k", "beta"], "git knows no revision 'nowhere'"),
        (["main", "main"], "the following arguments are required: -k"),
        (["main", "main", "-k", "beta", "--gate=2"], "not a percentage"),
    ],
)
def test_a_command_line_that_cannot_be_used(
    repository: Repository, words: List[str], message: str
) -> None:
    outcome = bisect(repository, *words).assert_code(4)
    assert message in outcome.text
    assert "Traceback" not in outcome.text
