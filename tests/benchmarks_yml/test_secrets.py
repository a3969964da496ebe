"""No output contains a secret of a command, its environment or our own command line."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest

from tests.support.harness import Outcome, Project, run_command

# Runs the suite many times, so Python 3.8 skips it (make test38).
pytestmark = pytest.mark.slow

CANARY = "c4n4ry-"  # a record has "canary", too
PROGRAM = """\
import os, sys
print("given", *sys.argv[1:], os.environ["API_KEY"], file=sys.stderr)
print("throughput: 100 samples/sec")
sys.exit("--fail" in sys.argv)
"""
SPEC = r"""
works_gen:
  cmd: python3 prog.py --token $GITHUB_TOKEN --from https://me:c4n4ry-pw@host/x --secret {secret}
  env: {API_KEY: c4n4ry-env-of-file}
  parameters: {secret: c4n4ry-parameter, size: 4}
  data: {throughput: {regexp: 'throughput: *(.*?) samples\/sec'}}
  output: [[rate, throughput], [secret, secret], [size, size]]
fails_gen:
  cmd: python3 prog.py --fail $GITHUB_TOKEN --password=c4n4ry-in-command
  env: {API_KEY: c4n4ry-env-of-file}
"""
FILE = "vision/benchmarks.yml"


class Shell:
    """A project with a file of commands, and all output of its runs."""

    def __init__(self, project: Project) -> None:
        self.folder = project.folder
        (self.folder / "vision").mkdir()
        (self.folder / "vision" / "prog.py").write_text(PROGRAM)
        (self.folder / FILE).write_text(SPEC)
        self.environment: Dict[str, str] = {
            **project.environment,
            "GITHUB_TOKEN": "c4n4ry-of-the-environment",
            "PYTEST_ADDOPTS": "-o cache_dir=https://me:c4n4ry-addopts@host/",
        }
        self.said: List[str] = []
        self.project = project

    def run(self, *words: str) -> Outcome:
        outcome = self.project.run(FILE, *words, env=self.environment)
        self.said.append(outcome.text)
        return outcome

    def command(self, module: str, *words: str) -> None:
        outcome = run_command(self.folder, self.environment, f"ipubench.plugins.{module}", *words)
        assert outcome.code in (0, 1), outcome.text
        self.said.append(outcome.text)

    def leaks(self) -> List[str]:
        """Return the files with a canary in their content or name, and the printed leaks."""
        found = [str(path) for path in self.folder.rglob("*") if CANARY in path.name]
        for path in self.folder.rglob("*"):
            if path.is_file() and path.parent.name != "vision":
                content = path.read_bytes()
                if CANARY.encode() in content:
                    at = content.index(CANARY.encode())
                    found.append(f"{path}: {content[max(0, at - 60) : at + 30]!r}")
        return found + [line for text in self.said for line in text.splitlines() if CANARY in line]


@pytest.fixture
def shell(project: Project) -> Shell:
    return Shell(project)


def test_no_output_of_a_run_contains_a_secret(shell: Shell) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    words = ["-k", "works_gen", "--baseline-save=main", "--processes=2", "--report=out", "-n", "2"]
    words += ["--set=secret=c4n4ry-option", "--set=size=5", "--junitxml=out/junit.xml"]
    words += ["--benchmark-json=out/own.json", "--keep-disturbed"]
    run = shell.run(*words).assert_code(0)
    run.line("rate 100.0, secret ***, size 5")
    record = next(iter(shell.project.records().values()))
    assert record["spec"]["command"][2:4] == ["--token", "$GITHUB_TOKEN"]
    assert "https://me:***@host/x" in record["spec"]["command"]
    said = Path(record["spec"]["stderr"]).read_text()
    assert said == "given --token *** --from https://me:***@host/x --secret *** ***\n"
    shell.command("baseline", "show", "main", "works", "--json")
    shell.command("report", str(shell.project.journals()[-1]), "--out=later")
    shell.run("-k", "works", "--dry-run").assert_code(0).line("--token '$GITHUB_TOKEN'")
    shell.run("-k", "works", "--describe").assert_code(0)
    assert shell.leaks() == []


def test_no_message_of_a_failure_contains_a_secret(shell: Shell) -> None:
    outcome = shell.run("-k", "fails_gen", "--report=out", "--junitxml=junit.xml").assert_code(1)
    assert "given --fail *** --password=*** ***" in outcome.text
    assert shell.leaks() == []


def test_another_secret_gives_the_same_case(shell: Shell) -> None:
    shell.run("-k", "works_gen").assert_code(0)
    shell.environment["GITHUB_TOKEN"] = "c4n4ry-another"  # noqa: S105  a canary
    spec = (shell.folder / FILE).read_text()
    (shell.folder / FILE).write_text(spec.replace("c4n4ry-parameter", "c4n4ry-other"))
    shell.run("-k", "works_gen", "--resume").assert_code(0).line("1 case is done")
