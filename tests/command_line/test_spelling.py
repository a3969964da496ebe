"""Messages for near misses name the intended value."""

from __future__ import annotations

from typing import List

import pytest

from ipubench.plugins.command_line.set_option import original_options
from tests.support.harness import Project

#: Options that pytest or another plugin also has.
ALSO_HERE = {"device_id", "profile", "report", "save_graph", "sweep"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--precision=fp32"], "'fp32' is not one of 16.16, 16.32, 32.32; fp32 is 32.32 here"),
        (["--device=gpu"], "; gpu is cuda here"),
        (["--device=cdua"], "; did you mean cuda?"),
        (["--basline-save=x"], "--basline-save, did you mean: --baseline-save"),
        (["--hidden-size", "512"], "--hidden-size, as an option of a case: --set=hidden_size=512"),
        (["--pipeline-splits", "a", "b", "-q"], "a case: '--set=pipeline_splits=a b' (see"),
        (["--synthetic-data", "cpu"], "--synthetic-data: use --data=generated instead"),
        (["--mode", "eval"], "; write -k evaluation"),
        (["--report"], "--report: --profile=DIR leaves"),
        (
            ["--set=data=nothing"],
            "'nothing' is not one of synthetic, generated, real; write --data=",
        ),
        (["-k", "beta", "--against=/bin/nothing"], "such as /opt/old/bin/python"),
    ],
)
def test_a_message_names_the_intended_value(project: Project, words: List[str], said: str) -> None:
    project.refused(*words).line(said)


def test_a_typing_error_is_no_option_of_a_case(project: Project) -> None:
    outcome = project.refused("--agianst=git:main")
    outcome.line("--agianst, did you mean: --against")
    assert "--set" not in outcome.text


def test_each_original_option_has_its_advice(project: Project) -> None:
    advice = {f"--{name.replace('_', '-')}": text for name, text in original_options().items()}
    flags = [flag for flag in advice if flag[2:].replace("-", "_") not in ALSO_HERE]
    outcome = project.refused(*flags)
    assert [line.strip() for line in outcome.lines if line.startswith("  --")] == [
        f"{flag}: {advice[flag]}" for flag in sorted(flags)
    ]


@pytest.mark.parametrize(
    ("old", "new", "said", "end"),
    [
        ('data=("synthetic"', 'dta=("synthetic"', "@cases(dta=...): ", "; did you mean data?"),
        (
            'Fake(name="beta", ',
            'Fake(name="beta"), Fake(name="beta", ',
            "@cases: two configurations have the identifier beta-synthetic; ",
            "give them different names",
        ),
    ],
)
def test_a_wrong_declaration_is_one_message(
    project: Project, old: str, new: str, said: str, end: str
) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    wrong = source.replace(old, new, 1)
    assert wrong != source
    (project.folder / "bench_fake.py").write_text(wrong)
    outcome = project.listed().assert_code(2)
    assert outcome.line(said).endswith(end)
    assert "dataclasses.py" not in outcome.text and "expand.py" not in outcome.text
