"""Words that are nearly right: the message names what is meant."""

from __future__ import annotations

from typing import List

import pytest

from ipubench.plugins.command_line.set_option import original_options
from tests.support.harness import Project

#: Options that pytest or a plugin has as well.
ALSO_HERE = {"device_id", "profile", "report", "save_graph", "sweep"}


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
        (["--hidden-size", "512"], "--hidden-size, as an option of a case: --set=hidden_size=512"),
        (["--validation=False"], "--validation, as an option of a case: --set=validation=False"),
        (["--eight-bit-io", "bench_fake.py"], "--set=eight_bit_io=true (see --describe)"),
        (["--pipeline-splits", "a", "b", "-q"], "a case: '--set=pipeline_splits=a b' (see"),
        (["--base-learning-rate", "-11"], "--set=base_learning_rate=-11 (see"),
        (["--synthetic-data", "cpu"], "--synthetic-data: use --data=generated instead"),
        (["--mode", "eval"], "; write -k evaluation"),
        (["--report"], "--report: --profile=DIR leaves"),
        (["--set=mode=trainng"], "write -k training"),
        (["--set=mode=training"], "use -k training instead"),
        (["--set=data=nothing"], "'nothing' is none of synthetic, generated, real; write --data="),
        (["-k", "beta", "--against=/bin/false"], "name one, such as /opt/old/bin/python"),
    ],
)
def test_a_message_names_what_is_meant(project: Project, words: List[str], said: str) -> None:
    project.run(*words).assert_code(4).line(said)


def test_each_option_of_the_original_programs_has_its_advice(project: Project) -> None:
    advice = {f"--{name.replace('_', '-')}": text for name, text in original_options().items()}
    flags = [flag for flag in advice if flag[2:].replace("-", "_") not in ALSO_HERE]
    outcome = project.run(*flags).assert_code(4)
    assert [line.strip() for line in outcome.lines if line.startswith("  --")] == [
        f"{flag}: {advice[flag]}" for flag in sorted(flags)
    ]


def test_no_option_of_pytest_stands_in_for_one_of_a_case(project: Project) -> None:
    outcome = project.run("--train", "--hidden-size=512", "--config=resnet50").assert_code(4)
    assert "did you mean" not in outcome.text


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
