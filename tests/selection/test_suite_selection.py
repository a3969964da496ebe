"""Runs of the suite in a process: choosing cases and setting their options."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import pytest

from ipubench.fixtures.case.cases import NAMED, Case
from ipubench.fixtures.case.options import CaseConfig
from ipubench.plugins.selection import deselect
from tests.support.command_line import given_options
from tests.support.harness import ROOT, Outcome, Project, listed, run_pytest
from tests.support.own_project import OwnProject


def collected(outcome: Outcome) -> List[str]:
    return re.findall(r"\[([^\]]+)\]$", outcome.text, re.MULTILINE)


def test_a_host_leaves_out_what_it_cannot_run_and_names_the_reason(project: Project) -> None:
    outcome = project.listed("--collect-only", "-q").assert_code(0)
    assert collected(outcome) == [
        "alpha-bs1-synthetic",
        "alpha-bs1-generated",
        "alpha-bs8-synthetic",
        "alpha-bs8-generated",
        "beta-synthetic",
        "beta-generated",
        "delta-synthetic",
    ]
    outcome.line("2 cases need 4 IPUs: --device=ipu")
    outcome.line("2 cases between the ends of a sweep")


@pytest.mark.entry_point
def test_sweep_runs_the_middle_points(project: Project) -> None:
    outcome = project.listed("--collect-only", "-q", "--sweep", "-k", "alpha").assert_code(0)
    assert collected(outcome) == [
        f"alpha-bs{size}-{data}" for size in (1, 4, 8) for data in ("synthetic", "generated")
    ]


@pytest.mark.parametrize(
    ("keyword", "names"),
    [
        ("Alpha-BS4", ["alpha-bs4-synthetic", "alpha-bs4-generated"]),
        ("alpha-bs and synthetic", ["alpha-bs1-synthetic", "alpha-bs8-synthetic"]),
    ],
)
def test_a_point_of_a_sweep_runs_by_its_full_name(
    keyword: str, names: List[str], project: Project
) -> None:
    outcome = project.listed("--collect-only", "-q", "-k", keyword).assert_code(0)
    assert collected(outcome) == names


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ({"keyword": "small_bs1"}, True),
        ({"keyword": "Small_BS1-synthetic"}, True),
        ({"keyword": "not small_bs16"}, False),
        ({"keyword": "small"}, False),
        ({"file_or_dir": ["bench_a.py::bench_a[small_bs1-synthetic]"]}, True),
        ({"file_or_dir": ["small_bs1/bench_a.py"]}, False),
    ],
)
def test_a_named_configuration_runs_if_its_name_is_given(words: Dict[str, Any], runs: bool) -> None:
    name = "small_bs1-synthetic"
    case = Case(CaseConfig(name="small_bs1"), name, tier=NAMED, base_id=name)
    option = given_options(**{"keyword": "", **words})
    item: Any = SimpleNamespace(config=SimpleNamespace(option=option))
    assert (not deselect._why_not_here("cpu", item, case)) is runs


@pytest.mark.entry_point
def test_the_cases_of_an_ipu_are_listed_without_the_sdk(project: Project) -> None:
    outcome = project.listed("--collect-only", "-q", "--device=ipu-model").assert_code(0)
    assert collected(outcome) == [
        "gamma-pod4-inference-synthetic",
        "gamma-pod4-training-synthetic",
    ]
    outcome.line("for a host: --device=cpu or --device=cuda")


@pytest.mark.entry_point
def test_set_sweeps_a_value_and_shows_it(project: Project) -> None:
    outcome = project.run("--set=batch-size=2,16", "-k", "synthetic", "--steps=3").assert_code(0)
    records = project.records()
    assert set(records) == {
        "alpha-bs2-synthetic",
        "alpha-bs16-synthetic",
        "beta-synthetic-bs2",
        "beta-synthetic-bs16",
        "delta-synthetic-bs2",
        "delta-synthetic-bs16",
    }
    assert records["delta-synthetic-bs16"]["config"]["micro_batch_size"] == 16
    assert records["beta-synthetic-bs2"]["overrides"] == ["batch_size", "steps"]
    assert records["beta-synthetic-bs2"]["throughput"]["median"] == pytest.approx(1000)
    assert "ends of a sweep" not in outcome.text


def test_cases_that_lack_a_key_are_left_out(project: Project) -> None:
    outcome = project.listed("--set=flavour=sweet", "--collect-only", "-q").assert_code(0)
    assert not any(name.startswith("delta") for name in collected(outcome))
    outcome.line("1 case without the option flavour")


#: Words of a command line, and what its usage error quotes.
REFUSED = {
    "--set=flavor=sweet": "'flavor'; did you mean flavour?",
    "--set=flavour=sweet -k delta": "'flavour'",
    "--set=config=resnet50": "'config'; each",
    "--set=batch_size=zero": "--set=batch_size=zero: 'zero'",
    "--set=batch_size=x -k beta --collect-only": "'x'",
    "--set=batch_size=0,-1 -k beta": "'0'",
    "--set=flavour=sour --set=flag=yes": "flavour sour and flag",
    "--set=replicas=2 -k beta-synthetic": "replicas=2 needs an IPU",
    "--gate=0%": "'0%'",
    "--gate=150%": "--gate needs ",
    "--budget=0": "'0'",
    "--steps=0": "'0'",
    "--steps=3 --set=repeat=5": "--steps=3: steps ",
    "--set=steps=4,5": "--set=steps: ",
    "--zero-values": "--zero-values: kernels have it",
    "--data=fake": " synthetic, generated, real",
    "--device=ipu": "Poplar SDK",
    "--device=cpu --device-id=1": "--device-id: ",
    "--baseline=": "--baseline= is empty",
    "--against=git:main --against-setup=": "--against-setup= is empty",
    "--profile=reports --baseline-save=x": "--profile times nothing",
    "--describe --dry-run": "--describe and --dry-run",
    "-p no:benchmark": "pytest-benchmark, which is not loaded",
}


def test_a_contradiction_or_a_bad_value_is_one_message(project: Project) -> None:
    for words, quoted in REFUSED.items():
        text = project.refused(*words.split()).text
        assert quoted in text, (words, text)


@pytest.mark.entry_point
def test_a_usage_error_ends_pytest_with_4(project: Project) -> None:
    outcome = project.run("--set=flavor=sweet").assert_code(4)
    outcome.line("did you mean flavour?")
    assert "Traceback" not in outcome.text


def test_an_error_that_the_first_measuring_test_finds_is_one_message(own: OwnProject) -> None:
    own.write("def test_sum(benchmark):\n    benchmark(sum, [1])\n")
    (own.folder / "pytest.ini").write_text("[pytest]\naddopts = -p ipubench\n")
    own.refused("-p", "no:benchmark").line("ERROR: ipubench builds ")


def test_a_bad_value_matters_only_if_selected(project: Project) -> None:
    outcome = project.listed("--set=batch_size=x", "-k", "gamma", "--collect-only").assert_code(5)
    outcome.line("2 cases need 4 IPUs: --device=ipu")


def test_data_narrows_a_case_with_several_modes_and_overrides_one(project: Project) -> None:
    outcome = project.listed("--data=generated", "--collect-only", "-q").assert_code(0)
    assert collected(outcome) == [
        "alpha-bs1-generated",
        "alpha-bs8-generated",
        "beta-generated",
        "delta-generated",
    ]
    outcome.line("cases left out by --data=generated")


def test_markers_select_cases(project: Project) -> None:
    quick = collected(project.listed("-m", "quick", "--collect-only", "-q"))
    assert quick == ["alpha-bs8-synthetic", "beta-synthetic", "delta-synthetic"]
    training = collected(
        project.listed("-m", "training and ipus", "--device=ipu", "--collect-only", "-q")
    )
    assert training == ["gamma-pod4-training-synthetic"]


@pytest.mark.entry_point
def test_describe_lists_options_and_runs_nothing(project: Project) -> None:
    outcome = project.run("--describe", "-k", "beta").assert_code(0)
    outcome.line("bench_fake.py::bench_fake: 2 cases")
    line = outcome.line("  batch_size=8 (int): ")
    assert line.endswith("micro_batch_size")
    outcome.line("  flavour=plain (str): ")
    outcome.line("  data=synthetic|generated (str)")
    line = outcome.line("  half_partial=False (bool)")
    assert line.endswith(" on a host")
    line = outcome.line("  replicas=1 (int): ")
    assert "; at least 1; " in line and "an IPU; " in line
    assert not project.journals()
    assert "[1/" not in outcome.text


def test_an_ipu_option_is_recorded_on_a_host_and_the_header_lists_it(
    project: Project,
) -> None:
    outcome = project.run("-k", "beta", "--set=half_partial=yes", "--steps=1").assert_code(0)
    outcome.line("not used on a host: half_partial")
    assert project.records()["beta-synthetic-halfpartialTrue"]["config"]["half_partial"] is True
    outcome = project.listed("--device=ipu", "--collect-only", "--set=half_partial=yes")
    assert "not used" not in outcome.assert_code(0).text


def test_given_batches_per_step_are_kept(project: Project) -> None:
    project.run("-k", "beta-synthetic", "--batches-per-step=7", "--steps=4").assert_code(0)
    record = project.records()["beta-synthetic-bps7"]
    assert record["rounds"]["batches_per_step"] == 7
    assert record["rounds"]["count"] == 4
    assert record["rounds"]["stopped_by"] == "steps"
    assert record["effective_options"]["batches_per_step"] == 7


def suite(project: Project, *words: str) -> Outcome:
    """List cases of the suite itself."""
    return listed(ROOT, project.environment, "--collect-only", "-q", *words)


def test_a_case_is_also_found_by_its_name_before_overrides(project: Project) -> None:
    words = ("-k", "resnet18-bs16-synthetic", "--set=micro-batch-size=3")
    outcome = suite(project, "bench_inference", "--device=cpu", *words).assert_code(0)
    assert collected(outcome) == ["resnet18-bs3-synthetic"]


def test_a_node_id_may_leave_out_the_overrides(project: Project) -> None:
    file = "bench_inference/bench_cnn_torch.py"
    name = f"{file}::bench_cnn_torch"
    given = ("--device=cpu", "--set=micro-batch-size=3")
    words = (f"{name}[resnet34-bs16-synthetic]", f"{name}[resnet18-bs3-synthetic]")
    outcome = suite(project, *words, *given).assert_code(0)
    assert collected(outcome) == ["resnet34-bs3-synthetic", "resnet18-bs3-synthetic"]
    whole = suite(project, words[1], "bench_inference/bench_triton.py", *given).assert_code(0)
    names = collected(whole)
    assert names[0] == "resnet18-bs3-synthetic" and "resnet34-bs3-synthetic" not in names
    suite(project, f"{name}[resnet99]", *given).assert_code(4).line("not found: ")


def test_an_empty_selection_lists_what_would_match(project: Project) -> None:
    outcome = suite(project, "--device=ipu", "-k", "resnt18 or lstmm").assert_code(5)
    said = outcome.line("by -k 'resnt18 or lstmm'; ")
    names = said.split("are: ")[1].split(";")[0].split(", ")
    assert {"resnet18", "lstm"} <= set(names)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("resnet50_bs16", "resnet50-bs16"),
        ("not bench_dense and (Dense_Inference)", "not bench_dense and (dense-inference)"),
        ("bench-gru or resnet50_bs16-synthetic", "bench_gru or resnet50-bs16-synthetic"),
    ],
)
def test_an_underscore_for_a_hyphen_has_its_right_spelling(
    project: Project, given: str, meant: str
) -> None:
    outcome = suite(project, "--device=cpu", "-k", given).assert_code(5)
    outcome.line(f"no case is selected by -k {given!r}; did you mean -k {meant!r}?")


def test_an_empty_selection_of_valid_names_explains_what_excluded_them(
    project: Project,
) -> None:
    words = ("--device=cpu", "-k", "hmc", "--data=real")
    outcome = suite(project, "bench_kernels", *words).assert_code(5)
    outcome.line("cases left out by --data=real")
    outcome.line("no case is selected: all that -k 'hmc'")
    assert "nearest names" not in outcome.text


NEIGHBOURS = """
from ipubench import CaseConfig, cases
from ipubench.fixtures.data.feeds import ArrayFeed
from tests.support.fake_runtime import FakeStep


def measure(device, meter):
    meter(FakeStep(device, ArrayFeed("synthetic", ()), 0.01), items=1, unit="items")


def bench_one(device, meter):
    measure(device, meter)


def bench_two(device, meter):
    measure(device, meter)


class TestMore:
    def bench_three(self, device, meter):
        measure(device, meter)

    @cases(CaseConfig(name="four"))
    def bench_four(self, config, device, meter):
        measure(device, meter)
"""
ONE, TWO = "bench_near.py::bench_one", "bench_near.py::bench_two"
THREE = "bench_near.py::TestMore::bench_three"


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline of these four cases."""
    project = Project(tmp_path_factory.mktemp("measured"))
    (project.folder / "bench_near.py").write_text(NEIGHBOURS)
    run_near(project, "bench_near.py", "--baseline-save=main", "--processes=1").assert_code(0)
    return project.folder / "baselines"


@pytest.fixture
def near(stored: Project) -> Project:
    """A project with these cases and their baseline."""
    (stored.folder / "bench_near.py").write_text(NEIGHBOURS)
    return stored


def run_near(project: Project, *words: str) -> Outcome:
    return run_pytest(project.folder, project.environment, "--device=fake", *words)


GATED = ("--baseline=main", "--gate=50%")


@pytest.mark.parametrize("words", [[ONE], ["bench_near.py::TestMore"], [ONE, THREE, "-n1"]])
def test_cases_next_to_a_named_case_are_not_missing(near: Project, words: List[str]) -> None:
    if "-n1" in words:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    outcome = run_near(near, *words, *GATED).assert_code(0)
    outcome.line("of the baseline were not selected")
    assert "missing" not in outcome.text


@pytest.mark.parametrize(("gone", "name"), [(TWO, "bench_two"), (THREE, "bench_three")])
def test_a_removed_case_is_missing_if_its_file_or_class_was_collected(
    near: Project, gone: str, name: str
) -> None:
    path = near.folder / "bench_near.py"
    path.write_text(NEIGHBOURS.replace(f"def {name}(", "def bench_other("))
    named = "bench_near.py::TestMore::bench_four" if gone == THREE else ONE
    outcome = run_near(near, named, *GATED).assert_code(1)
    outcome.line(f"  missing: {gone}")
    assert sum(line.startswith("  missing: ") for line in outcome.lines) == 1
    assert sum(" in gate.yml" in line for line in outcome.lines) == 1


@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_an_invalid_point_of_a_sweep_does_not_stop_the_valid_ones(
    project: Project, workers: Sequence[str]
) -> None:
    words = ("-k", "beta-synthetic", "--set=batch_size=4,0,8", *workers)
    outcome = project.run(*words, "--baseline-save=main", "--processes=1").assert_code(4)
    assert [line.split()[0] for line in outcome.table] == [
        "beta-synthetic-bs4",
        "beta-synthetic-bs8",
    ]
    outcome.line("not measured: beta cannot have --set=batch_size=0: '0' ")
    assert len(project.baseline("main")["benchmarks"]) == 2


OWN = """
from dataclasses import dataclass

from ipubench import CaseConfig, cases, option


@dataclass(frozen=True)
class Plain(CaseConfig):
    name: str = option("plain", "first part of the case's name")


@dataclass(frozen=True)
class Typed(CaseConfig):
    name: str = option("typed", "first part of the case's name")
    precision: str = option("16.16", "of the sum", choices=("16.16", "32.32"))


@cases(Plain())
def test_plain(config, meter):
    meter(lambda: sum(range(9)))


@cases(Typed())
def test_typed(config, meter):
    meter(lambda: sum(range(9)))


def test_benchmark(benchmark):
    benchmark(sum, range(9))
"""


@pytest.mark.parametrize("word", ["--precision=32.32", "--data=real"])
def test_an_option_that_would_change_nothing_is_refused_by_its_name(
    own: OwnProject, word: str
) -> None:
    own.write(OWN)
    for selected in ("plain", "benchmark"):
        own.refused("tests", "-k", selected, word).line(f"ERROR: {word}: ")
    option = word.partition("=")[0].lstrip("-")
    if option == "precision":
        outcome = own.listed("tests", word, "--collect-only", "-q").assert_code(0)
        assert collected(outcome) == ["typed-synthetic-32.32"]
        outcome.line("2 cases without the option precision")


def test_the_rate_of_a_callable_has_no_share_of_a_peak(own: OwnProject) -> None:
    own.write("def test_sum(meter):\n    meter(lambda: sum(range(999)), flops=999)\n")
    outcome = own.run("tests", "--budget=0.05").assert_code(0)
    assert outcome.line(" no share ").startswith("test_sum: ")
