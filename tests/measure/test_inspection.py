"""Runs of the suite in a process with --profile and --save-graph."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from ipubench.bench_inference.bench_triton import TritonClassifier
from ipubench.bench_inference.classifier import Classifier
from ipubench.bench_inference.serving import Serving
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.options import CaseConfig
from ipubench.plugins.command_line.arguments import inspection_arguments
from ipubench.plugins.measure.inspection import choose_folders, folder_of
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.expand import parametrize_cases
from ipubench.plugins.selection.selected import Selection
from ipubench.plugins.state import run_key
from tests.support.command_line import given_options
from tests.support.harness import Project


@pytest.mark.entry_point
def test_a_profile_replaces_the_timing(project: Project) -> None:
    outcome = project.run("--profile=reports", "-k", "beta").assert_code(0)
    outcome.line("profiled and not timed")
    names = {path.name for path in (project.folder / "reports").iterdir()}
    assert names == {"beta-synthetic", "beta-generated"}
    assert project.records() == {}
    assert "throughput" not in outcome.text
    assert "Warning" not in outcome.text


def test_cases_with_one_identifier_write_to_separate_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = "reports"
    config: Any = SimpleNamespace(
        option=given_options(profile=root, save_graph=None),
        invocation_params=SimpleNamespace(dir=tmp_path),
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # as a test may do
    items: Any = [
        SimpleNamespace(
            config=config,
            nodeid=f"{function}[{name}]",
            callspec=SimpleNamespace(params={"ipubench_case": Case(CaseConfig(name=name), name)}),
        )
        for function, name in (("a.py::bench_a", "net"), ("b.py::bench_b", "net"), ("b.py::b", "x"))
    ]
    run: Any = Recording(config, Selection({}, "cpu"))
    config.stash = {run_key: run}
    choose_folders(run, items)
    folders = [folder_of("--profile", root, item) for item in items]
    assert len({*folders}) == 3 and folders[2] == tmp_path / root / "x"
    # Another process that measures one of them uses the same folder.
    for item, folder in zip(items, folders):
        own = run.selection.folders.get(item.nodeid, "")
        assert inspection_arguments(config, own) == [f"--ipubench-profile={folder.parent}"]
    choose_folders(run, items[:1])
    assert folder_of("--profile", root, items[0]) == tmp_path / root / "net"


def only_case(config: CaseConfig, device: str, profile: Optional[str], **given: List[str]) -> Case:
    """Return the case of a configuration that is collected for a device."""
    made: List[Any] = []
    option = given_options(profile=profile, data=None, precision=None)
    metafunc: Any = SimpleNamespace(
        definition=SimpleNamespace(
            nodeid="b.py::bench_b", iter_markers=lambda _: [pytest.mark.cases(config).mark]
        ),
        config=SimpleNamespace(option=option),
        fixturenames=(),
        parametrize=lambda _, values, indirect: made.extend(values),
    )
    parametrize_cases(metafunc, Selection(given, device))
    ((case,),) = [parameter.values for parameter in made]
    assert isinstance(case, Case)
    return case


def batches(config: CaseConfig, profile: Optional[str], **given: List[str]) -> int:
    """Return the batches of an IPU case; its identifier has them if they are set."""
    case = only_case(config, "ipu", profile, **given)
    assert not case.error and ("-bps" in case.id) == bool(given)
    return case.config.batches_per_step


@pytest.mark.parametrize(
    ("config", "fewest"),
    [
        (PopartLstm(system="ipu"), 1),
        (PopartLstm(system="ipu", mode="training", shards=2, pipeline=True), 3),
        (Classifier(system="ipu", batches_per_step=256, num_io_tiles=64), 3),
        (Classifier(system="ipu", batches_per_step=256, pipeline_splits=("layer1/0/conv1",)), 2),
        (TritonClassifier(system="ipu", clients=2), 2),
        (Serving(system="ipu", data="generated"), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, CaseConfig) else str(value),
)
def test_an_ipu_profiles_the_fewest_batches_that_a_case_can_run(
    config: CaseConfig, fewest: int
) -> None:
    # Its identifier stays, because other processes and folders use it.
    assert batches(config, "reports") == fewest
    assert batches(config, None) == config.batches_per_step
    if fewest:
        assert batches(config, "reports", batches_per_step=["8"]) == 8
        assert batches(config, "reports", device_iterations=["8"]) == 8


def test_a_profiled_program_is_not_stored_for_timed_runs() -> None:
    config = Classifier(system="ipu", model_cache_path="kept")
    assert "model_cache_path: " in only_case(config, "ipu", "reports").error
    assert not only_case(config, "ipu", None).error
    assert not only_case(config, "cpu", "reports").error


def test_a_folder_that_cannot_be_created_ends_the_run_before_it_measures(project: Project) -> None:
    (project.folder / "taken").write_text("a file")
    for words in (["--profile=taken/below"], ["--save-graph=taken"]):
        project.refused(*words, "-k", "beta").line(f"{words[0]}: ")
    assert not project.journals()


def test_a_runtime_without_a_graph_is_refused(project: Project) -> None:
    outcome = project.run("--save-graph=graphs", "-k", "beta-synthetic").assert_code(1)
    outcome.line("--save-graph: FakeStep ")
