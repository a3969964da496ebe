"""Words that are nearly right: the message names what is meant."""

from __future__ import annotations

from typing import List

import pytest

from tests.support.harness import Project


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--precision=fp32"], "'fp32' is none of 16.16, 16.32, 32.32; fp32 is 32.32 here"),
        (["--precision=32.23"], "; did you mean 32.32?"),
        (["--device=gpu"], "; gpu is cuda here"),
        (["--device=cdua"], "; did you mean cuda?"),
        (["--basline-save=x"], "--basline-save, did you mean: --baseline-save"),
        (["--bugdet", "3"], "--bugdet, did you mean: --budget"),
        (["--targ=3%"], "--targ, did you mean: --target-precision"),
        (["--set=mode=trainng"], "write -k training"),
        (["--set=mode=training"], "use -k training instead"),
        (["--set=data=nothing"], "'nothing' is none of synthetic, generated, real; write --data="),
        (["-k", "beta", "--against=/bin/false"], "name one, such as /opt/old/bin/python"),
    ],
)
def test_a_message_names_what_is_meant(project: Project, words: List[str], said: str) -> None:
    project.run(*words).assert_code(4).line(said)


def test_a_function_that_nearly_has_the_name_is_named(project: Project) -> None:
    outcome = project.run("-k", "bench_faek").assert_code(5)
    outcome.line("the nearest names of --device=fake are: bench_fake")


@pytest.mark.parametrize(
    ("old", "new", "said", "end"),
    [
        ('data=("synthetic"', 'dta=("synthetic"', "@cases(dta=...): ", "; did you mean data?"),
        (
            'Fake(name="beta", ',
            'Fake(name="beta"), Fake(name="beta", ',
            "@cases: two configurations would both be beta-synthetic; ",
            "give each a name of its own",
        ),
    ],
)
def test_a_declaration_that_is_wrong_is_one_message(
    project: Project, old: str, new: str, said: str, end: str
) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    wrong = source.replace(old, new, 1)
    assert wrong != source
    (project.folder / "bench_fake.py").write_text(wrong)
    outcome = project.run().assert_code(2)
    assert outcome.line(said).endswith(end)
    assert "dataclasses.py" not in outcome.text and "expand.py" not in outcome.text
