"""A case's secret option, and secrets in its errors: no output contains them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import List

import pytest

from ipubench.fixtures.case.cases import CaseSet
from ipubench.fixtures.case.masking import mask_text, remember, secrets_in
from ipubench.fixtures.case.options import option, secrets_of
from ipubench.fixtures.runtimes.model_cache import options_of
from ipubench.plugins.processes import revision
from ipubench.plugins.selection.expand import expand
from tests.support import instances
from tests.support.fake_cases import Fake
from tests.support.harness import Outcome, Project, SuiteServer, run_command

CANARY = "c4n4ry-"  # a record has "canary", too
GIVEN = "--set=api_token=c4n4ry-of-the-option"
OPTION = '    api_token: str = option("", "opens a server")\n'
ERROR = '"a server says 401 to " + config.api_token + os.environ["GITHUB_TOKEN"]'


@dataclass(frozen=True)
class Tokened(Fake):
    """A configuration with a secret."""

    api_token: str = option("", "opens a server")


def edit(path: Path, *changes: str) -> None:
    text = path.read_text()
    for old, new in zip(changes[::2], changes[1::2]):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture
def secretive(project: Project) -> Project:
    """Give the cases a secret option, and put another secret into their errors."""
    edit(
        project.folder / "bench_fake.py",
        "    trouble: str",
        OPTION + "    trouble: str",
        'RuntimeError("an unforeseen error")',
        f"RuntimeError({ERROR})",
        '"the fake is broken on purpose; mend it"',
        ERROR,
    )
    project.environment["GITHUB_TOKEN"] = f"{CANARY}of-the-environment"
    project.environment["GITHUB_STEP_SUMMARY"] = str(project.folder / "step.md")
    return project


def leaks(project: Project, *outcomes: Outcome) -> List[str]:
    """Return the files with a canary in their content or name, and the printed leaks."""
    paths = list(project.folder.rglob("*"))
    found = [str(path) for path in paths if CANARY in path.name]
    for path in paths:
        if path.is_file() and path.suffix != ".py" and CANARY.encode() in path.read_bytes():
            found.append(str(path))
    return found + [line for one in outcomes for line in one.lines if CANARY in line]


OUTPUTS = ("--report=out", "--junitxml=out/junit.xml", "--benchmark-json=out/own.json")


@pytest.mark.slow
def test_a_secret_option_is_in_no_output_and_gives_the_same_case(secretive: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    words = ("-k", "beta-synthetic", *OUTPUTS, "--keep-disturbed")
    saved = secretive.run(*words, GIVEN, "--baseline-save=main", "--processes=2").assert_code(0)
    assert list(secretive.records()) == ["beta-synthetic"]
    journal = str(secretive.journals()[-1])
    promoted = run_command(
        secretive.folder,
        secretive.environment,
        *("ipubench.plugins.baseline", "promote", journal, "main", "--history"),
    ).assert_code(0)
    trends = run_command(
        secretive.folder, secretive.environment, "ipubench.plugins.baseline", "history", "--json"
    ).assert_code(0)
    other = "--set=api_token=c4n4ry-another-one"
    gated = secretive.run(*words, other, "--baseline=main", "--gate=50%").assert_code(0)
    gated.line("1 pass")
    assert leaks(secretive, saved, promoted, trends, gated) == []


def test_the_given_options_of_a_case_contain_no_secret() -> None:
    words = {"api_token": [f"{CANARY}of-the-option"], "flag": ["yes"]}
    (case,) = expand(CaseSet.of(Tokened(flavour="sour"), {}), words)
    assert case.error and case.given == {"--set=api_token=***", "--set=flag=yes"}


def test_values_that_no_identifier_shows_are_refused() -> None:
    family = CaseSet.of(Tokened(), {})
    for case in expand(family, {"api_token": ["one-secret", "another"]}):
        assert case.error.startswith("--set=api_token: ") and "one-secret" not in case.error
    for case in expand(family, {"api_token": ["", "one-secret"]}):
        assert not case.error


@pytest.mark.slow
def test_no_failure_shows_a_secret(secretive: Project) -> None:
    words = ["-k", "beta-synthetic", "--junitxml=junit.xml", GIVEN, "--set=trouble=raise,error"]
    failed = secretive.run(*words, "--showlocals").assert_code(1)
    failed.line("RuntimeError: a server says 401 to ******")
    failed.line("a server says 401 to ******")
    refused = secretive.refused("-k", "beta", GIVEN, "--set=batch_size=x")
    listed = secretive.listed("-k", "beta", GIVEN, "--collect-only").assert_code(0)
    assert leaks(secretive, failed, refused, listed) == []


@pytest.mark.slow
def test_neither_process_of_a_comparison_shows_a_secret(secretive: Project) -> None:
    SuiteServer.python(secretive.folder / "other-python")
    words = [
        "-k",
        "beta-synthetic",
        "--against=./other-python",
        "--gate-cap=2",
        "--junitxml=junit.xml",
    ]
    assert leaks(secretive, secretive.run(*words, GIVEN).assert_code(0)) == []


@pytest.mark.slow
def test_no_instance_shows_a_secret_in_its_log(project: Project) -> None:
    instances.with_instances(project)
    error = ERROR.replace("config.", "self.config.")
    edit(
        project.folder / "bench_together.py",
        "    instances: int",
        OPTION + "    instances: int",
        'RuntimeError("an unforeseen error")',
        f"RuntimeError({error})",
    )
    project.environment["GITHUB_TOKEN"] = f"{CANARY}of-the-environment"
    outcome = instances.run(project, GIVEN, "--set=trouble=raise").assert_code(1)
    assert "RuntimeError: a server says 401 to ******" in outcome.text
    logs = list((project.folder / "results").rglob("instance-*.log"))
    assert logs and leaks(project, outcome) == []


def test_the_facts_of_a_kept_model_contain_no_secret() -> None:
    config = Tokened(api_token=f"{CANARY}of-the-option")
    assert CANARY not in repr(config) + str(options_of(config))
    assert secrets_of(config) == ["c4n4ry-of-the-option"]


@pytest.mark.parametrize("program", ["false", "echo c4n4ry-of-the-word >&2; exit 1", "nothing"])
def test_preparing_a_revision_shows_no_secret(program: str) -> None:
    """In the terminal, which has the arguments of the command line."""
    words = {"nothing": "no-such-program"}.get(program, f"sh -c '{program}'")
    setup = f"{words} --token c4n4ry-of-the-word"
    remember(secrets_in(shlex.split(setup)))
    with pytest.raises(pytest.UsageError) as caught:
        revision._run_setup(setup, Path())
    shown = mask_text(str(caught.value))
    assert CANARY not in shown and "--token ***" in shown
