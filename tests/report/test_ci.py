"""The example workflows: valid YAML, made of commands and options that there are, and they work."""

from __future__ import annotations

import csv
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest
import yaml

from tests.support.harness import ROOT, Project

# Many runs of the suite; the older Python leaves them out (make test38).
pytestmark = pytest.mark.slow

FILES = ("github-actions.yml", "gitlab-ci.yml")
COMMAND = re.compile(r"\.venv/bin/python -m (\S+) (.*)")


def scripts(value: Any) -> Iterator[str]:
    """Yield the shell texts of a workflow: `run` of GitHub, `script` of GitLab."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("run", "script", "before_script"):
                yield from [inner] if isinstance(inner, str) else inner
            else:
                yield from scripts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from scripts(inner)


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / "docs" / "ci" / name).read_text(encoding="utf-8"))


def commands(name: str) -> List[Tuple[str, str]]:
    """Return (module, words) of every Python command of a workflow."""
    found = [match for text in scripts(workflow(name)) for match in COMMAND.findall(text)]
    assert len(found) >= 6
    return found


@functools.lru_cache(maxsize=None)
def help_of(*words: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-m", *words, "--help"],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout.decode()


@pytest.mark.parametrize("name", FILES)
def test_its_commands_have_their_options(name: str) -> None:
    for module, words in commands(name):
        subcommand = [words.split()[0]] if module == "ipubench.plugins.baseline" else []
        text = help_of(module, *subcommand)
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", words):
            assert re.search(rf"{option}(?![\w-])", text), f"{module} has no {option}"


def test_github_measures_on_own_machines_and_says_what_exit_code_6_is() -> None:
    jobs = workflow("github-actions.yml")["jobs"]
    assert all("self-hosted" in job["runs-on"] for job in jobs.values())
    assert any('"$code" = 6' in text for text in scripts(jobs["measure"]))


def test_gitlab_warns_at_exit_code_6() -> None:
    assert workflow("gitlab-ci.yml")["gate"]["allow_failure"] == {"exit_codes": [6]}


@pytest.mark.parametrize("name", FILES)
def test_shards_become_one_report_and_a_baseline(project: Project, name: str) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    baseline = project.folder / "kept" / "main.json"

    def run(part: str) -> None:
        """Run the command of the workflow that has this part."""
        found = [(m, w) for m, w in commands(name) if part in f"{m} {w}"]
        module, words = min(found, key=lambda command: len(command[1]))
        answer = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m {module} {words}"],
            cwd=str(project.folder),
            env={**project.environment, "BASELINE": str(baseline)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert answer.returncode == 0, answer.stdout.decode()

    def verdicts() -> List[Tuple[str, str]]:
        path = project.folder / "report" / "results.csv"
        with path.open(encoding="utf-8") as file:
            return sorted((row["name"], row["verdict"]) for row in csv.DictReader(file))

    for shard in ("beta", "bs8"):
        project.run("-k", shard, f"--report=shards/{shard}", "--processes=2").assert_code(0)
    names = ["alpha-bs8-generated", "alpha-bs8-synthetic", "beta-generated", "beta-synthetic"]
    run("baseline merge")
    run("--out=report")
    run("baseline promote")
    assert [name for name, _ in verdicts()] == names
    assert baseline.exists()
    run("--out=report --baseline")
    assert verdicts() == [(name, "pass") for name in names]


def test_the_page_about_reports_names_every_file_of_one() -> None:
    text = (ROOT / "docs" / "how-to" / "reports.md").read_text(encoding="utf-8")
    files = ("report.html", "summary.md", "results.csv", "baseline.json", "pytest-benchmark.json",
             "github-action-benchmark.json", "bencher.json", "junit.xml", *FILES)  # fmt: skip
    assert [name for name in files if name not in text] == []
    assert Path(ROOT / "docs" / "ci").is_dir()
