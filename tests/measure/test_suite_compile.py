"""Runs of the suite in a process: compile times, and limits by the loader."""

from __future__ import annotations

import pytest

from tests.support.harness import Project


@pytest.mark.entry_point
def test_a_stored_model_saves_its_compilation_and_the_summary_shows_it(project: Project) -> None:
    words = ["-k", "beta", "--set=model_cache_path=kept"]
    save = ("-k", "beta", "--baseline-save=main", "--processes=1")
    project.run(*save).assert_code(0)
    project.run(*words).assert_code(0)
    assert {record["compile"] for record in project.records().values()} <= {"fresh", "cached"}
    outcome = project.run(*words, "--baseline=main", "--gate=5%").assert_code(0)
    outcome.line("2 pass")
    for record in project.records().values():
        assert record["compile"] == "cached"
        assert record["compile_seconds"] == pytest.approx(0.5)
        assert record["compile_saved_seconds"] == pytest.approx(1.5)
    outcome.line("kept from earlier: 3.0 s saved")


def test_a_damaged_model_is_compiled_again_with_a_warning(project: Project) -> None:
    words = ["-k", "beta-synthetic", "--set=model_cache_path=kept"]
    project.run(*words).assert_code(0)
    (model,) = (project.folder / "kept").glob("*.txt")
    model.write_bytes(b"\xff")
    outcome = project.run(*words).assert_code(0)
    assert "cannot be used" in outcome.text
    (record,) = project.records().values()
    assert (record["compile"], record["compile_seconds"]) == ("fresh", pytest.approx(2.0))
    project.run(*words).assert_code(0)
    (record,) = project.records().values()
    assert record["compile"] == "cached"


@pytest.mark.entry_point
def test_compile_only_measures_nothing_and_reports_what_a_stored_model_saved(
    project: Project,
) -> None:
    words = ["--set=compile_only=yes", "--set=model_cache_path=kept"]
    outcome = project.run("-k", "beta-synthetic", *words).assert_code(0)
    outcome.line("beta-synthetic: built in 1.0 s, compiled in 2.0 s, not run")
    assert project.records() == {}
    outcome = project.run("-k", "beta-synthetic", *words).assert_code(0)
    outcome.line("built in 1.0 s, compiled in 0.5 s (1.5 s less ")


def test_the_summary_shows_whether_the_loader_or_the_model_limits(project: Project) -> None:
    words = ["-k", "beta-synthetic", "--set=loader_seconds=0.0005,0.0022"]
    outcome = project.run(*words).assert_code(0)
    records = project.records().values()
    for record, rate, limit in zip(records, (16000, 8 / 0.0022), ("model", "loader")):
        facts = record["input"]
        assert facts["loader"] == pytest.approx(rate)
        assert facts["model"] == pytest.approx(4000)
        assert (facts["unit"], facts["limit"]) == ("items/s", limit)
        outcome.line(f"model 4,000 items/s alone: the {limit} limits")
    assert len(records) == 2


def test_many_loading_cases_are_summed_up(project: Project) -> None:
    outcome = project.run("--sweep", "--set=loader_seconds=0.001,0.011").assert_code(0)
    assert sum(" items/s alone: the " in line for line in outcome.lines) == 6
    outcome.line("8 more read from disk; of all 14 the loader limits 6, the model 8")
