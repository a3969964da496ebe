"""`--against` compares which cases both sides have, in real repositories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.repository import Repository

pytestmark = pytest.mark.slow

WORDS = ["--gate-cap=3", "--gate=5%", "--against=git:HEAD"]
ALPHA = ["-k", "alpha and synthetic"]
NOT_GAMMA = ["-k", "(alpha or beta) and synthetic"]
BS1 = "bench_fake.py::bench_fake[alpha-bs1-synthetic]"
BETA = BS1.replace("alpha-bs1", "beta")
SHOWN = BS1.rpartition("::")[2]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository of cases alone: what both sides have is no matter of their suites."""
    folder = tmp_path / "repository"
    folder.mkdir()
    return Repository(folder, suite=False)


def test_cases_that_only_the_other_side_has_are_missing(repository: Repository) -> None:
    """One is deleted, and one has as its new name that of a case that the other side has."""
    repository.replace("bench_fake.py", "(1, 4, 8)", "(4, 8)")
    repository.replace("bench_fake.py", '    Fake(name="beta", batch_seconds=0.002),\n', "")
    renamed = BS1.replace("bs1", "bs8")
    (repository.folder / "gate.yml").write_text(f'renamed: {{"{BS1}": "{renamed}"}}\n')
    outcome = repository.run(*NOT_GAMMA, *WORDS).assert_code(1)
    for name in (BS1, BETA):
        outcome.line(f"missing: {name}")


def test_a_skipped_and_a_renamed_case_are_open(repository: Repository) -> None:
    skipping = "    if config.name == 'beta':\n        __import__('pytest').skip('slower')\n"
    trouble = "    if config.trouble =="
    repository.replace("bench_fake.py", f'{trouble} "error"', f'{skipping}{trouble} "error"')
    repository.replace("bench_fake.py", "(1, 4, 8)", "(2, 4, 8)")
    renamed = BS1.replace("bs1", "bs2")
    (repository.folder / "gate.yml").write_text(f'renamed: {{"{BS1}": "{renamed}"}}\n')
    outcome = repository.run(*NOT_GAMMA, *WORDS, "--report=out").assert_code(0)
    outcome.line(f"incomparable: {BETA}: skipped here, or failed as expected")
    line = outcome.line("2 of 4 cases are open")
    assert f"{SHOWN} (its name is" in line
    assert f"{BETA.rpartition('::')[2]} (skipped here, or" in line
    summary = (repository.folder / "out" / "summary.md").read_text()
    assert summary.rstrip().splitlines()[-1].startswith("2 of 4 cases ")


def test_a_change_that_leaves_cases_out_is_named(repository: Repository) -> None:
    """Its settings leave out one, and a hook another."""
    hidden = BS1.replace("alpha-bs1", "beta")
    repository.add_to_conftest(
        "def pytest_collection_modifyitems(items):\n"
        f"    items[:] = [item for item in items if item.nodeid != {hidden!r}]\n"
    )
    ini = repository.folder / "pytest.ini"
    settings = ini.read_text()
    ini.write_text(settings.replace("addopts = ", f"addopts = --deselect={BS1} ", 1))
    outcome = repository.run("-k", "synthetic", *WORDS).assert_code(0)
    for name in (BS1, hidden):
        outcome.line(f"incomparable: {name}: it is deselected here, and not there")
    for option in ("--collect-only", "--fixtures"):
        ini.write_text(settings.replace("addopts = ", f"addopts = {option} ", 1))
        repository.refused(*ALPHA, *WORDS).line("--gate compares, ")


@pytest.mark.parametrize(("there", "noted"), [("", True), ("--gate-policy=loose.yml", False)])
def test_settings_that_change_the_gate_are_named(
    repository: Repository, there: str, noted: bool
) -> None:
    ini = repository.folder / "pytest.ini"
    settings = ini.read_text()
    ini.write_text(settings.replace("addopts = ", f"addopts = {there} ", 1))
    repository.commit("settings")
    ini.write_text(settings.replace("addopts = ", "addopts = --gate-policy=loose.yml ", 1))
    (repository.folder / "loose.yml").write_text('cases: {"*": ignore}\n')
    outcome = repository.run(*ALPHA, *WORDS, "--gate-time=1s").assert_code(6)
    assert ("the settings here" in outcome.text) == noted


def test_settings_that_run_the_last_failed_leave_others_out(repository: Repository) -> None:
    """A change may contain pytest's cache."""
    ini = repository.folder / "pytest.ini"
    ini.write_text(ini.read_text().replace("addopts = ", "addopts = --lf ", 1))
    failed = repository.folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    failed.parent.mkdir(parents=True)
    failed.write_text(json.dumps({BS1.replace("bs1", "bs8"): True}))
    outcome = repository.run(*ALPHA, *WORDS, "-p", "cacheprovider").assert_code(0)
    outcome.line(f"incomparable: {BS1}: it is deselected here, and not there")


def test_another_selection_is_no_missing_case(repository: Repository) -> None:
    """The other side has the same paths, -k and -m; a file that it lacks is new here."""
    (repository.folder / "bench_other.py").write_text(repository.cases.read_text())
    repository.slow_down(1.0)
    name = BS1.replace("alpha-bs1", "beta")
    outcome = repository.python(
        *("-m", "pytest", "--device=fake", "-p", "no:cacheprovider", name, "bench_other.py"),
        *("-k", "beta-synthetic"),
        *WORDS,
    )
    outcome.assert_code(0).line("1 new, 1 pass")


@pytest.mark.parametrize("name", ["conftest.py", "bench_fake.py"])
def test_a_side_that_cannot_start_ends_the_run_at_once(repository: Repository, name: str) -> None:
    """Or one that can collect none of its files."""
    path = repository.folder / name
    text = path.read_text()
    path.write_text(f"{text}\nimport nothing_of_this_name\n")
    repository.commit("needs more")
    path.write_text(text)
    outcome = repository.run(*ALPHA, *WORDS).assert_code(4)
    outcome.line("pytest cannot start there")
    outcome.line("No module named 'nothing_of_this_name'")
    assert "case" not in [line["type"] for line in repository.journal()]


def test_a_change_does_not_loosen_its_own_gate(repository: Repository) -> None:
    policy = repository.folder / "gate.yml"
    policy.write_text("default: {throughput: 5%}\n")
    repository.commit("with a policy")
    repository.slow_down(1.25)
    policy.write_text("default: {throughput: 900%}\n")
    words = ["-k", "beta-synthetic", "--gate-cap=3", "--against=git:HEAD"]
    outcome = repository.run(*words).assert_code(1)
    outcome.line("gate.yml of git:HEAD applies")
