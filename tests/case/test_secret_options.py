"""A case's own secret option is in nothing that is stored, and makes no other case of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ipubench.fixtures.case.cases import Family
from ipubench.fixtures.case.options import option
from ipubench.fixtures.runtimes.model_cache import options_of
from ipubench.plugins.selection.expand import expand
from tests.support.fake_cases import Fake
from tests.support.harness import Project

CANARY = "c4n4ry-of-the-option"
OPTION = '    api_token: str = option("", "opens a server")\n'


@dataclass(frozen=True)
class Tokened(Fake):
    """A configuration with a secret."""

    api_token: str = option("", "opens a server")


@pytest.mark.slow
def test_a_secret_option_is_in_no_output_and_makes_no_other_case(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    path.write_text(path.read_text().replace("    trouble: str", OPTION + "    trouble: str"))
    words = ("-k", "beta-synthetic", "--report=out", "--benchmark-json=own.json")
    given = f"--set=api_token={CANARY}"
    saved = project.run(*words, given, "--baseline-save=main", "--processes=2").assert_code(0)
    assert list(project.records()) == ["beta-synthetic"]
    gated = project.run(*words, "--set=api_token=another-one", "--baseline=main", "--gate=50%")
    gated.assert_code(0).line("1 pass")
    assert CANARY not in saved.text
    for file in (one for one in project.folder.rglob("*") if one.is_file()):
        assert CANARY.encode() not in file.read_bytes(), file


def test_what_a_case_says_of_its_options_has_no_secret() -> None:
    (case,) = expand(Family.of(Tokened(flavour="sour"), {}), {"api_token": [CANARY], "flag": ["1"]})
    assert case.error and case.given == {"--set=api_token=***", "--set=flag=1"}
    config = Tokened(api_token=CANARY)
    assert CANARY not in repr(config) + str(options_of(config))


def test_values_that_no_identifier_shows_are_refused() -> None:
    family = Family.of(Tokened(), {})
    for case in expand(family, {"api_token": ["one-secret", "another"]}):
        assert case.error == "--set=api_token: cases do not differ by api_token; give one value"
    for case in expand(family, {"api_token": ["", "one-secret"]}):
        assert not case.error
