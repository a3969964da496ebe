"""The report of a run, however the run ends."""

from __future__ import annotations

import csv
import errno
import html
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ipubench.plugins.record.text import percent, short_number
from ipubench.plugins.report import files
from ipubench.plugins.report.__main__ import main
from ipubench.plugins.report.files import ReportError, write
from ipubench.plugins.results.rows import Report
from tests.support.baselines import BASELINE
from tests.support.harness import Project, run_command
from tests.support.reports import FILES, benchmark, report_on, visible

# Marks every process except the first.
WAS_THERE = """

def _was_there() -> bool:
    try:
        open("once", "x").close()
    except FileExistsError:
        return True
    return False
"""


@pytest.mark.entry_point
def test_a_run_writes_a_report_even_if_a_case_fails(project: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    source = (project.folder / "bench_fake.py").read_text()
    broken = source.replace('config.trouble == "error"', '"beta-generated" in str(meter.case)')
    (project.folder / "bench_fake.py").write_text(broken)
    summary = project.folder / "step.md"
    summary.write_text("before\n")
    words = ["-k", "beta", "--report=out", "--junitxml=out/junit.xml"]
    outcome = project.run(*words, env={"GITHUB_STEP_SUMMARY": str(summary)}).assert_code(1)
    outcome.line("report: out/report.html")
    out = project.folder / "out"
    assert set(visible(out)) == FILES | {"junit.xml"}
    rows = list(csv.DictReader((out / "results.csv").open(encoding="utf-8")))
    assert {row["name"]: row["verdict"] for row in rows} == {
        "beta-synthetic": "measured",
        "beta-generated": "failed",
    }
    median = project.records()["beta-synthetic"]["throughput"]["median"]
    assert float(rows[0]["throughput (items/s)"]) == median
    empty = [heading for heading, text in rows[0].items() if not text]
    assert empty[: empty.index("before (items/s)")] == [  # the fake device has no value for it
        *(
            "engine",
            "instructions (1/call)",
            "energy (J/item)",
            "energy source",
            "device memory peak (bytes)",
            "work (FLOP/item)",
            "achieved (FLOP/s)",
        ),
        *("peak (FLOP/s)", "share of peak (1)", "loader alone (items/s)", "model alone (items/s)"),
        *("git", "weights (bytes/item)", "copy peak (bytes/s)"),
    ]
    assert summary.read_text().startswith("before\n**🔴 2 cases: 1 failed, 1 measured")
    (case,) = [
        case
        for case in ElementTree.parse(out / "junit.xml").getroot().iter("testcase")  # noqa: S314  our own file
        if case.get("name") == "bench_fake[beta-synthetic]"
    ]
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert float(str(properties["throughput"])) == median
    assert properties["unit"] == "items/s"


def test_every_output_of_a_run_shows_the_deciding_processes(project: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    source = (project.folder / "bench_fake.py").read_text()
    # The first process, the session's own, is the slow one.
    once = source.replace("config.batch_seconds,", "config.batch_seconds * (2 - _was_there()),")
    (project.folder / "bench_fake.py").write_text(once + WAS_THERE)
    words = ["-k", "beta-synthetic", "--set=noise=0.3", "--processes=4", "--budget=0.3"]
    outcome = project.run(*words, "--report=out", "--junitxml=junit.xml").assert_code(0)
    (row,) = csv.DictReader((project.folder / "out" / "results.csv").open(encoding="utf-8"))
    rate, low, high = (float(row[f"throughput{end} (items/s)"]) for end in ("", " low", " high"))
    (record,) = project.records().values()
    assert rate > 1.5 * record["throughput"]["median"]
    shown = [short_number(rate), percent((high - low) / 2 / rate)]
    outcome.line(f"[1/1] bench_fake[beta-synthetic-noise0.3] {shown[0]} items/s ±{shown[1]} (")
    assert outcome.table[0].split()[1:3] == shown
    junit = ElementTree.parse(project.folder / "junit.xml")  # noqa: S314  our own file
    properties = {p.get("name"): p.get("value") for p in junit.iter("property")}
    assert float(str(properties["throughput"])) == rate


def test_a_later_report_equals_the_runs_own(project: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    project.run("-k", "alpha-bs8-synthetic", "--baseline-save=main", "--processes=3").assert_code(0)
    words = ("-k", "alpha-bs8 and not generated or beta", "--baseline=main", "--gate=5%")
    project.run(*words, "--report=out", env={"DATASETS_DIR": "/a b"}).assert_code(0)
    later = ("ipubench.plugins.report", str(project.journals()[-1]), "--out=later")
    run_command(project.folder, project.environment, *later).assert_code(0)
    own, made = project.folder / "out", project.folder / "later"
    for name in ("results.csv", "summary.md", "github-action-benchmark.json", "bencher.json"):
        assert (own / name).read_text() == (made / name).read_text()
    text = html.unescape((made / "summary.md").read_text())
    assert "DATASETS_DIR='/a b' pytest -p" in text and f"-k '{words[1]}'" in text
    rows = {row["name"]: row for row in csv.DictReader((made / "results.csv").open())}
    columns = ("processes now", "processes before", "decided by")
    said = {name: [row[column] for column in columns] for name, row in rows.items()}
    assert said["beta-synthetic"] == ["", "", ""]  # it is new
    assert said["alpha-bs8-synthetic"] == ["1", "3", "throughput"]


def test_an_unwritable_file_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")

    def broken(report: Report) -> str:
        raise KeyError("unforeseen")

    def full(report: Report) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")  # like a failing write of a file

    monkeypatch.setattr(files, "page", broken)
    monkeypatch.setattr(files, "_save", broken)
    monkeypatch.setattr(files, "csv_with_verdicts", full)
    with pytest.raises(ReportError) as error:
        write(report_on([benchmark("a")]), tmp_path)
    for problem in ("baseline.json", "report.html", "KeyError('unforeseen') in ", "results.csv"):
        assert problem in str(error.value)
    assert set(visible(tmp_path)) == FILES - {"report.html", "baseline.json", "results.csv"}


def test_a_failing_report_keeps_the_table_and_the_summary(
    project: Project,
) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    (project.folder / "broken_page.py").write_text(
        "from ipubench.plugins.report import files\nfiles.page = None\n"
    )
    words = ["-p", "broken_page", "-k", "beta-synthetic", "--budget=0.3", "--report=out"]
    path = f"{project.environment['PYTHONPATH']}:{project.folder}"
    summary = {"PYTHONPATH": path, "GITHUB_STEP_SUMMARY": str(project.folder / "step.md")}
    outcome = project.run(*words, env=summary).assert_code(4)
    outcome.line("report.html could not be made: TypeError(")
    assert outcome.table and "Traceback" not in outcome.text
    assert "1 case: 1 measured" in (project.folder / "step.md").read_text()


def test_an_interrupted_run_writes_a_report(project: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    source = (project.folder / "bench_fake.py").read_text()
    broken = source.replace(
        'if config.trouble == "error":\n        raise CaseError(',
        'if "beta-generated" in str(meter.case):\n        raise KeyboardInterrupt(',
    )
    (project.folder / "bench_fake.py").write_text(broken)
    project.run("-k", "beta", "--report=out").assert_code(2)
    text = (project.folder / "out" / "summary.md").read_text()
    assert "was interrupted" in text and "beta-synthetic" in text
    # The journal has what a killed run measured.
    later = project.folder / "later"
    assert main([str(project.journals()[-1]), f"--out={later}"]) == 1
    assert "beta-synthetic" in (later / "summary.md").read_text()


@pytest.mark.parametrize(
    "option",
    [
        "--report=bench_fake.py/out",
        "--report=page.html",
        "--report=~nobody2/out",
        "--benchmark-json=nowhere/out.json",
    ],
)
def test_an_unwritable_folder_is_refused_before_any_measurement(
    project: Project, option: str
) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    project.refused("-k", "beta", option).line(f"{option}: ")
    assert not project.journals()


def test_without_a_library_nothing_is_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.folder / "gate.yml").write_text("gate: 50%\n")
    for module, package, words in (
        ("jinja2", "jinja2", ["--report=out"]),
        ("yaml", "PyYAML", ["--gate-policy=gate.yml", f"--baseline={BASELINE}"]),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        project.refused("-k", "beta", *words).line(f"pip install {package}")
    assert not project.journals()


def test_a_run_without_measurements_writes_no_report(project: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    outcome = project.run("-k", "beta", "--benchmark-disable", "--report=out").assert_code(0)
    outcome.line("no report was written")
    assert not visible(project.folder / "out")
