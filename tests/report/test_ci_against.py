"""The workflows that gate a pull request on a hosted runner: they do, in a clone of one."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.report.test_ci import help_of, scripts, workflow
from tests.support.harness import WITHOUT_OTHERS, SuiteServer
from tests.support.process_starter import NO_SUITE
from tests.support.repository import Repository

pytestmark = pytest.mark.slow

FILES = ("github-against.yml", "gitlab-against.yml")


def gate_of(name: str) -> str:
    """Return the shell text that gates."""
    (found,) = [text for text in scripts(workflow(name)) if "--against=" in text]
    return str(found)


@pytest.mark.parametrize("name", FILES)
def test_its_options_are_there(name: str) -> None:
    text = help_of("pytest")
    for option in re.findall(r"(?<!\S)(--[a-z-]+)", gate_of(name)):
        assert re.search(rf"{option}(?![\w-])", text), f"pytest has no {option}"


def test_strangers_code_gets_a_hosted_runner_and_may_only_read() -> None:
    github = workflow("github-against.yml")
    assert github["permissions"] == {"contents": "read"}
    assert github["jobs"]["compare"]["runs-on"] == "ubuntu-latest"
    assert "secrets." not in str(github)


def gate(repository: Repository, name: str) -> int:
    """Run what gates in a checkout, as the runner does; return how it ends."""
    few = f"{' '.join(WITHOUT_OTHERS)} --device=fake -k beta-synthetic --gate-cap=3"
    text = re.sub(
        r"pytest (\$\{\{ \S+ \}\}|\S+) -m quick", f"pytest bench_fake.py {few}", gate_of(name)
    ).replace(".venv/bin/python", "./python")
    assert "bench_fake" in text and "--gate-time=" in text
    answer = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=str(repository.folder),
        env={**repository.environment, "BASE": "main", "TARGET": "main", "SHARD": "shard"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert answer.returncode in (0, 1), answer.stdout.decode()
    folder = repository.folder / ("report" if "github" in name else "shards/shard")
    assert ("regressed" in (folder / "summary.md").read_text()) == bool(answer.returncode)
    assert list(folder.glob("run-*.jsonl"))
    return answer.returncode


@pytest.mark.parametrize("name", FILES)
def test_a_change_that_slows_a_case_fails(repository: Repository, name: str) -> None:
    """In the checkout of a pull request, which has the base only as a branch of the remote."""
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.git("checkout", "-q", "-b", "change")
    repository.git("branch", "-q", "-D", "main")
    repository.slow_down(1.25)
    repository.commit("change")
    SuiteServer.python(repository.folder / "python", NO_SUITE)
    assert gate(repository, name) == 1
    if "github" in name:  # more than the one command, whose exit code is the job's on GitLab
        repository.git("revert", "--no-edit", "HEAD")
        assert gate(repository, name) == 0
