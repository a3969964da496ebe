"""The files of a report: every number comes from the record, and every text is inert."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import List

import pytest

from ipubench.plugins.record.record import with_processes
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.report.__main__ import main
from ipubench.plugins.report.exports import csv_with_verdicts
from ipubench.plugins.report.files import ReportError, append_summary, write
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.results.rows import Report, by_change, conclusion, counts, headline
from ipubench.plugins.results.run_facts import RunFacts
from ipubench.plugins.web.templates import is_installed
from tests.support.reports import (
    FILES,
    NASTY,
    benchmark,
    nasty,
    report_on,
    reported,
    verdict,
    visible,
)
from tests.support.stored import changed

INTERRUPTED = RunFacts(exit_code=2)


def test_a_report_has_a_row_for_every_case(report: Report) -> None:
    rows = report.rows()
    assert len(rows) == 62
    assert counts(rows) == {
        "regressed": 6, "failed": 1, "missing": 1, "inconclusive": 6, "incomparable": 6,
        "improved": 6, "new": 6, "pass": 30,
    }  # fmt: skip
    assert [row.kind for row in by_change(rows)][:8] == 6 * ["regressed"] + ["failed", "missing"]
    assert "62 cases: 6 regressed, 1 failed" in headline(report, rows)
    slower, *others = conclusion(report, rows).split(", ")
    assert slower.startswith("6 of 62 cases ") and others == ["1 failed", "1 missing"]


def test_the_conclusion_names_the_one_case_that_is_slower() -> None:
    cases = [benchmark("a"), benchmark("b")]
    slower = verdict("regressed", 100, -0.25)
    report = reported(cases, {cases[0].fullname: slower})
    assert conclusion(report, report.rows()) == "a is 25% slower"
    report = reported(cases, {cases[0].fullname: slower}, {cases[1].fullname: "failed"})
    assert conclusion(report, report.rows()) == "a is 25% slower, 1 failed"
    larger = verdict("regressed", 100, 0.01, metric="host_memory")
    report = reported(cases, {cases[0].fullname: larger})
    assert conclusion(report, report.rows()) == "a regressed"


def test_the_conclusion_reports_success() -> None:
    case = benchmark("a")
    report = report_on([case])
    assert conclusion(report, report.rows()) == "1 case measured"
    report = reported([case], {case.fullname: verdict("pass", 100)}, baseline="main.json")
    assert conclusion(report, report.rows()).startswith("No regression ")
    report.runs = [INTERRUPTED]
    assert "; the run was " in conclusion(report, report.rows())


def test_an_unjudged_case_is_not_a_pass() -> None:
    cases = [benchmark(name) for name in "abc"]
    a, b, c = (case.fullname for case in cases)
    unjudged = verdict("not judged", 100, -0.2, threshold=None)
    report = reported(cases, dict.fromkeys((a, b, c), unjudged), baseline="main.json")
    text = markdown(report)
    assert text.startswith("**⚪ 3 cases: 3 not judged, against main.json")
    assert text.count("| -20.0% (-21.2% to -18.5%) |") == 3
    assert text.count("not judged") == 1 + 3  # the verdict of a case is always shown
    new = dict.fromkeys((a, b, c), verdict("new", 100))
    report = reported(cases, new, baseline="main.json", gate="gate 2.0%")
    said = "3 cases: 3 new, against main.json (gate 2.0%); no case was decided"
    assert markdown(report).startswith(f"**🟡 {said}**")
    report.judge({a: unjudged, b: verdict("pass", 100), c: verdict("inconclusive", 100)}, "b", "g")
    assert conclusion(report, report.rows()).endswith("1 case, 1 inconclusive, 1 not judged")
    (row, *_) = csv.DictReader(io.StringIO(csv_with_verdicts(report)))
    assert (row["verdict"], row["change (1)"], row["gate (1)"]) == ("not judged", "-0.2", "")
    if is_installed():
        assert '<span class="kind not-judged">not judged</span>' in page(report)


def test_a_comparison_describes_its_method() -> None:
    case = benchmark("a")
    for in_turns, how in ((False, "at equal machine speed"), (True, "measured in turns")):
        found = verdict("improved", 100, 0.1, in_turns=in_turns, allowed=0.07)
        report = reported([case], {case.fullname: found})
        assert f"Change is {how}, with" in markdown(report)
        text = "1 case is allowed more than the gate, because of its own noise: a 7.0%"
        assert text in markdown(report)
        if is_installed():
            text = page(report)
            assert f"over speed before, {how}, with" in text
            assert '<p class="headline good">' in text and "<dt>compared with</dt>" not in text
            report.runs = [INTERRUPTED]
            assert '<p class="headline bad">' in page(report)


def test_a_report_that_fails_keeps_the_baseline_of_the_one_before(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    write(report_on([benchmark("a")]), tmp_path)
    before = (tmp_path / "baseline.json").read_text()
    damaged = changed(benchmark("b"), {"record.config_hash": ""})
    with pytest.raises(ReportError, match="was not written"):
        write(report_on([damaged]), tmp_path)
    assert (tmp_path / "baseline.json").read_text() == before


def test_the_page_of_a_nasty_name_is_inert() -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    text = page(nasty())
    assert "alert(1)" in text
    assert "<script>alert" not in text and "</td>|" not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data.group(1))["rows"][0]["name"] == NASTY


def test_the_page_loads_nothing_and_is_small(report: Report) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    text = page(report)
    assert len(text) < 1_000_000
    assert len(page(report_on([benchmark("a")]))) < 300_000
    assert set(re.findall(r"https?:[^\"]*", text)) == {"http://www.w3.org/2000/svg"}  # a name
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=[\"'](?!data:)", text)
    assert "default-src 'none'" in text


def test_the_pages_table_and_data_have_the_records(report: Report) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    text = page(report)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert found is not None
    data = json.loads(found.group(1))
    by_id = {row["id"]: row for row in data["rows"]}
    assert len(by_id) == 62 and len(data["details"]) == 60
    for case in report.benchmarks:
        record = case.record
        assert by_id[case.fullname]["throughput"] == record.throughput.median
        (process,) = data["details"][case.fullname]["processes"]
        assert len(process["rates"]) == len(process["canaries_ms"]) == 25
    assert {row["framework"] for row in data["rows"]} == {
        *("torch", "tensorflow", "python", None),
    }
    assert text.count("<tr data-row=") == 62
    assert "<dt>took</dt><dd>1 h 6 min</dd>" in re.sub("</?span>", "", text)
    assert '<option value="None">' not in text  # of cases that measured nothing


def test_cases_with_one_name_and_function_are_distinguished_on_the_page() -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    cases = [
        changed(benchmark(name, "a.py::test_op"), {"record.name": "test_op"}) for name in ("+", "-")
    ]
    cases.append(benchmark("test_op", "b.py::test_other"))
    found = re.findall('class="name"><a [^>]*>([^<]*)</a>', page(report_on(cases)))
    assert found == ["test_op[+]", "test_op[-]", "test_other[test_op]"]


def test_every_process_of_a_case_is_shown() -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    fresh = [benchmark("a", seed=seed, rate=101, rounds=700) for seed in range(3)]
    case = with_processes(benchmark("a"), fresh)
    found = re.search(r'id="data">(.*?)</script>', page(report_on([case])))
    assert found is not None
    (detail,) = json.loads(found.group(1))["details"].values()
    assert [process["fresh"] for process in detail["processes"]] == [False, True, True, True]
    last = detail["processes"][-1]
    assert (last["rounds"], last["every"], len(last["rates"])) == (700, 3, 234)
    assert last["throughput"] == pytest.approx(101, rel=0.02)


def test_a_report_is_written_and_overwritten(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    assert set(write(report, tmp_path)) == FILES == set(visible(tmp_path))
    write(report_on([benchmark("a")]), tmp_path)
    kept = json.loads((tmp_path / "baseline.json").read_text())["benchmarks"]
    assert [case["name"] for case in kept] == ["bench_cnn_torch[a]"]


def stored(folder: Path, cases: List[Benchmark]) -> Path:
    write(report_on(cases), folder)
    return folder / "baseline.json"


def test_a_report_of_stored_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    now = stored(tmp_path / "now", [benchmark("a", rate=100), benchmark("b", rate=100)])
    before = stored(tmp_path / "before", [benchmark("a", rate=150), benchmark("c", rate=100)])
    out = tmp_path / "out"
    assert main([str(now), f"--out={out}", f"--baseline={before}"]) == 1
    rows = list(csv.DictReader((out / "results.csv").open(encoding="utf-8")))
    kinds = {row["name"]: row["verdict"] for row in rows}
    # With one process on each side not every gate can find a regression.
    assert kinds["a"] in ("regressed", "inconclusive")
    assert (kinds["b"], kinds["c"]) == ("new", "missing")
    assert float(rows[0]["change (1)"]) == pytest.approx(-1 / 3, abs=0.03)
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "none.json"), f"--out={out}"]) == 4
    assert main([str(now), f"--out={tmp_path / 'file'}"]) == 4
    capsys.readouterr()
    for word in ("--gate=x", "--gate=1%", "--out=", "--baseline="):
        with pytest.raises(SystemExit, match="^4$"):
            main([str(now), f"--out={out}", word])
        assert word.split("=")[0] in capsys.readouterr().err


def test_a_summary_file_that_is_a_pipe_without_a_reader_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "pipe"))
    with pytest.raises(ReportError, match="cannot be written"):
        append_summary(report_on([benchmark("a")]))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "file"))
    append_summary(report_on([benchmark("a")]))
    append_summary(report_on([benchmark("a")]))
    assert (tmp_path / "file").read_text().count("1 case: 1 measured") == 2
