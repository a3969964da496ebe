"""The files of a report: every number is the record's, every text is inert."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.baseline.case_row import framework_name, process_rows, row_of
from ipubench.plugins.baseline.entries import differences
from ipubench.plugins.baseline.exports import EXPORTS, csv_with_verdicts
from ipubench.plugins.baseline.rows import Report, by_change, conclusion, counts, headline
from ipubench.plugins.baseline.show import details, overview
from ipubench.plugins.gate.shown_throughput import throughput_of
from ipubench.plugins.record.record import record_of, with_processes
from ipubench.plugins.record.text import percent, short_number
from ipubench.plugins.report import files
from ipubench.plugins.report.__main__ import main
from ipubench.plugins.report.files import ReportError, write
from ipubench.plugins.report.markdown import LARGEST, markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.table import table_rows
from ipubench.plugins.web.templates import escape_markdown, plotly_is_there
from tests.support.harness import Project, run_command, run_pytest
from tests.support.reports import benchmark, document, large_report, verdict

NASTY = "<script>alert(1)</script>|`*@someone*`\n</td>"
FILES = {
    "baseline.json",
    "report.html",
    "summary.md",
    "results.csv",
    "pytest-benchmark.json",
    "github-action-benchmark.json",
    "bencher.json",
}


# Tells every process but the first that it is not the first.
WAS_THERE = """

def _was_there() -> bool:
    try:
        open("once", "x").close()
    except FileExistsError:
        return True
    return False
"""


@pytest.fixture(scope="module")
def report() -> Report:
    return large_report()


def visible(folder: Path) -> List[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def test_a_report_has_a_row_for_every_case(report: Report) -> None:
    rows = report.rows()
    assert len(rows) == 62
    assert counts(rows) == {
        "regressed": 6, "failed": 1, "missing": 1, "inconclusive": 6, "incomparable": 6,
        "improved": 6, "new": 6, "pass": 30,
    }  # fmt: skip
    assert [row["kind"] for row in by_change(rows)][:8] == 6 * ["regressed"] + ["failed", "missing"]
    assert "62 cases: 6 regressed, 1 failed, 1 missing" in headline(report, rows)
    assert conclusion(report, rows) == "6 regressed, 1 failed, 1 missing of 62 cases"


def test_a_case_that_is_missing_has_its_whole_name() -> None:
    gone = dict.fromkeys(("x.py::test_x[list[int]]", "x.py::test_y"), verdict("missing", 0))
    names = [(row["name"], row["function"]) for row in Report(document([]), gone).rows()]
    assert names == [("list[int]", "test_x"), ("x.py::test_y", "test_y")]


def test_the_conclusion_says_when_nothing_is_wrong() -> None:
    report = Report(document([benchmark("a")]))
    assert conclusion(report, report.rows()) == "1 case measured"
    report.baseline = "main.json"
    report.verdicts[benchmark("a")["fullname"]] = verdict("pass", 100)
    assert conclusion(report, report.rows()) == "No regression in 1 case"
    report.verdicts[benchmark("a")["fullname"]] = verdict("not judged", 100)
    assert conclusion(report, report.rows()) == "1 case measured, none judged"
    report.interrupted = True
    assert conclusion(report, report.rows()).endswith("; the run was interrupted")


def test_a_case_that_nothing_judged_is_no_pass() -> None:
    cases = [benchmark(name) for name in "abc"]
    a, b, c = (case["fullname"] for case in cases)
    unjudged = {**verdict("not judged", 100, -0.2), "threshold": None}
    report = Report(document(cases), dict.fromkeys((a, b, c), unjudged), baseline="main.json")
    text = markdown(report)
    assert text.startswith("**⚪ 3 cases: 3 not judged, against main.json (no gate)")
    assert text.count("| -20.0% (-21.2% to -18.5%) | not judged |") == 3
    report.verdicts = {a: unjudged, b: verdict("pass", 100), c: verdict("inconclusive", 100)}
    assert conclusion(report, report.rows()) == (
        "No regression in 2 cases, 1 inconclusive, 1 not judged"
    )
    (row, *_) = csv.DictReader(io.StringIO(csv_with_verdicts(report)))
    assert (row["verdict"], row["change (1)"], row["gate (1)"]) == ("not judged", "-0.2", "")
    if plotly_is_there():
        assert '<span class="kind not-judged">not judged</span>' in page(report)


def test_a_comparison_says_how_it_was_made() -> None:
    case = benchmark("a")
    for in_turns, how in ((False, "at equal machine speed"), (True, "measured in turns")):
        found = {**verdict("improved", 100, 0.1), "in_turns": in_turns, "allowed": 0.07}
        report = Report(document([case]), {case["fullname"]: found})
        assert f"Change is {how}, with" in markdown(report)
        assert "1 case is allowed more than the gate, by its own noise: a 7.0%" in markdown(report)
        if plotly_is_there():
            assert f"over speed before, {how}, with" in page(report)


def test_a_report_that_fails_keeps_the_baseline_of_the_one_before(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    write(Report(document([benchmark("a")])), tmp_path)
    before = (tmp_path / "baseline.json").read_text()
    damaged = benchmark("b")
    record_of(damaged)["config_hash"] = ""
    with pytest.raises(ReportError, match="was not written"):
        write(Report(document([damaged])), tmp_path)
    assert (tmp_path / "baseline.json").read_text() == before


def test_the_csv_holds_the_records(report: Report) -> None:
    text = EXPORTS["csv"](report.document)
    assert "\r" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 60 and {row["implausible"] for row in rows} == {"no"}
    for row, case in zip(rows, report.document["benchmarks"]):
        record = record_of(case)
        assert row["case"] == case["fullname"]
        assert float(row["throughput (items/s)"]) == record["throughput"]["median"]
        assert float(row["latency p99 (ms)"]) == record["latency"]["p99_ms"]
        fresh = record["compile"] == "fresh"
        assert row["compile (s)"] == (str(record["compile_seconds"]) if fresh else "")
        assert float(row["build (s)"]) == record["build_seconds"]
        assert float(row["share of peak (1)"]) == record["compute"]["share"]
        assert row["unit"] == record["throughput"]["unit"]
        assert int(row["batch size"]) == record["config"]["batch_size"]


def test_the_csv_says_how_many_instances_ran() -> None:
    cases = [benchmark(name) for name in "abc"]
    for case, ran in zip(cases[1:], (None, 2)):
        record_of(case)["config"]["instances"] = 4
        if ran is not None:
            record_of(case)["effective"]["instances"] = {"asked": 4, "ran": ran}
    rows = csv.DictReader(io.StringIO(EXPORTS["csv"](document(cases))))
    assert [row["instances"] for row in rows] == ["1", "4", "2"]


def test_a_spreadsheet_takes_no_name_for_a_formula() -> None:
    case = benchmark("=HYPERLINK(1)")
    (row,) = csv.DictReader(io.StringIO(EXPORTS["csv"](document([case]))))
    assert row["name"] == "'=HYPERLINK(1)"


@pytest.mark.parametrize("name", ["a\r=HYPERLINK(1)", "a\n=1", "\t=1", "\x00\x1b[2J", "a\u2028=1"])
def test_a_name_opens_no_row_of_its_own(name: str) -> None:
    text = EXPORTS["csv"](document([benchmark(name)]))
    assert len(text.splitlines()) == 2 and text.count("\n") == 2
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["name"].isprintable()


def test_github_action_benchmark_reads_a_list(report: Report) -> None:
    entries = json.loads(EXPORTS["github-action-benchmark"](report.document))
    assert [entry["name"] for entry in entries] == [
        case["fullname"] for case in report.document["benchmarks"]
    ]
    record = record_of(report.document["benchmarks"][0])
    throughput = record["throughput"]
    assert entries[0]["value"] == throughput["median"]
    assert entries[0]["unit"] == "images/s"
    half = (throughput["high"] - throughput["low"]) / 2
    assert float(entries[0]["range"][2:]) == pytest.approx(half, rel=1e-3)
    assert "latency p50 (ms): " in entries[0]["extra"]
    assert "\nrounds: 25\nprocesses: 1\n" in entries[0]["extra"]
    for entry in entries:
        assert {key: type(value) for key, value in entry.items()} == {
            "name": str, "unit": str, "value": float, "range": str, "extra": str,
        }  # fmt: skip


def test_bencher_metric_format(report: Report) -> None:
    metrics = json.loads(EXPORTS["bencher"](report.document))
    case = report.document["benchmarks"][0]
    record = record_of(case)
    measures = metrics[case["fullname"]]
    assert measures["throughput"] == {
        "value": record["throughput"]["median"],
        "lower_value": record["throughput"]["low"],
        "upper_value": record["throughput"]["high"],
    }
    # Bencher's own measure of latency is in nanoseconds.
    assert measures["latency"] == {"value": 1e6 * record["latency"]["p50_ms"]}
    assert measures["build-time"] == {"value": record["compile_seconds"]}
    for measured in metrics.values():
        for name, metric in measured.items():
            assert len(name) <= 64
            assert "value" in metric and set(metric) <= {"value", "lower_value", "upper_value"}
            assert all(isinstance(value, (int, float)) for value in metric.values())


def test_all_files_show_the_processes_that_decide_with_their_own_interval() -> None:
    fresh = [benchmark("a", seed=seed, rate=80 + seed) for seed in range(3)]
    case = with_processes(benchmark("a", rate=100), fresh)
    before = with_processes(benchmark("a", rate=100))
    (found,) = differences([before], [case], 0.05)
    report = Report(document([case]), {case["fullname"]: found.verdict.as_dict()})
    (row,) = csv.DictReader(io.StringIO(csv_with_verdicts(report)))
    now = float(row["now (items/s)"])
    low, high = (float(row[f"throughput {end} (items/s)"]) for end in ("low", "high"))
    assert float(row["throughput (items/s)"]) == now == pytest.approx(81, rel=0.02)
    medians = sorted(record_of(one)["throughput"]["median"] for one in fresh)
    assert [low, high] == pytest.approx([medians[0], medians[-1]])
    rates = [record_of(one)["throughput"] for one in fresh]
    for figure, of_all in (("mean", statistics.fmean), ("min", min), ("max", max)):
        expected = of_all([rate[figure] for rate in rates])
        assert float(row[f"throughput {figure} (items/s)"]) == pytest.approx(expected)
    (stored,) = csv.DictReader(io.StringIO(EXPORTS["csv"](report.document)))
    assert stored["throughput (items/s)"] == row["throughput (items/s)"]
    (measures,) = json.loads(EXPORTS["bencher"](report.document)).values()
    assert measures["throughput"] == {"value": now, "lower_value": low, "upper_value": high}
    (listed,) = json.loads(EXPORTS["github-action-benchmark"](report.document))
    assert listed["value"] == now
    assert float(listed["range"][2:]) == pytest.approx((high - low) / 2, rel=1e-3)
    cells = list(overview([case]))[-1].split()
    assert cells[1:4] == [f"{now:.2f}", "images/s", f"{(high - low) / 2 / now:.1%}"]
    (plain,) = json.loads(EXPORTS["pytest-benchmark"](report.document))["benchmarks"]
    assert record_of(plain)["throughput"] and "processes" not in record_of(plain)
    (_, line) = table_rows([case], report.verdicts)
    assert (line.cells[1], line.cells[3]) == (cells[1], cells[3])
    own, compute = record_of(case)["throughput"], record_of(case)["compute"]
    achieved, share = (compute[key] * now / own["median"] for key in ("achieved", "share"))
    assert float(row["achieved (FLOP/s)"]) == pytest.approx(achieved)
    assert float(row["share of peak (1)"]) == pytest.approx(share)
    assert line.cells[7] == percent(share, 0) != percent(compute["share"], 0)
    # The session's own process may have been compared alone.
    alone = {case["fullname"]: {**verdict("inconclusive", own["median"]), "processes": 1}}
    (one,) = Report(document([case]), alone).rows()
    assert [one[key] for key in ("throughput", "low", "high")] == [
        own[key] for key in ("median", "low", "high")
    ]
    assert f"({low:.2f} to {high:.2f})" in "\n".join(details(case))


def test_two_processes_decide_together_and_one_that_others_disturbed_does_not() -> None:
    both = [benchmark("a", rate=100), benchmark("a", rate=50, seed=1)]
    case = with_processes(both[0], both[1:])
    own, other = (record_of(one)["throughput"] for one in both)
    shown = throughput_of(case)
    assert (shown["low"], shown["high"]) == pytest.approx((other["median"], own["median"]))
    record_of(case)["processes"][0].update(clean=False, lost=0.5)
    shown = throughput_of(case)
    for figure in ("median", "low", "high", "spread"):
        assert shown[figure] == pytest.approx(other[figure])


def test_where_pairs_were_compared_no_other_interval_stands_beside_their_figure(
    tmp_path: Path,
) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    case = benchmark("a", rate=100)
    own = record_of(case)["throughput"]["median"]
    pairs = {**verdict("regressed", own, -0.2), "in_turns": True}
    report = Report(document([case]), {case["fullname"]: pairs}, outcomes={"b": "failed"})
    row, _ = report.rows()
    assert (row["throughput"], row["low"]) == (own, None)  # as it may happen to be
    pairs["now"] = 80
    row, _ = report.rows()
    assert row["throughput"] == 80
    assert [row[key] for key in ("low", "high", "mean", "min", "max", "spread")] == 6 * [None]
    write(report, tmp_path)
    metrics = json.loads((tmp_path / "bencher.json").read_text())
    assert metrics[case["fullname"]]["throughput"] == {"value": 80} and len(metrics) == 1
    (listed,) = json.loads((tmp_path / "github-action-benchmark.json").read_text())
    assert listed["value"] == 80 and "range" not in listed
    (_, line) = table_rows([case], report.verdicts)
    assert (line.cells[1], line.cells[3]) == ("80.00", "-")


def test_other_tools_are_given_no_result_that_may_be_wrong(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    cases = {name: benchmark(name) for name in ("right", "slower", "wrong", "skipped", "too-fast")}
    record_of(cases["too-fast"])["implausible"] = True
    right, slower, wrong, skipped, _ = (case["fullname"] for case in cases.values())
    outcomes = {right: "passed", slower: "failed", wrong: "failed", skipped: "skipped"}
    found = {slower: verdict("regressed", 100, -0.2)}
    write(Report(document(list(cases.values())), found, outcomes), tmp_path)
    listed = json.loads((tmp_path / "github-action-benchmark.json").read_text())
    assert [entry["name"] for entry in listed] == [right, slower]
    assert set(json.loads((tmp_path / "bencher.json").read_text())) == {right, slower}


def test_a_reused_compilation_has_no_time_of_its_own() -> None:
    (measures,) = json.loads(
        EXPORTS["bencher"](document([benchmark("a", compile="reused")]))
    ).values()
    assert "build-time" not in measures


@pytest.mark.parametrize("how", ["none", "within the command"])
def test_no_time_to_compile_is_shown_where_nobody_knows_it(how: str) -> None:
    case = with_processes(benchmark("a", compile=how))
    record_of(case)["first_step_seconds"] = 0.0
    row = row_of(case)
    assert {row[f"{part}_seconds"] for part in ("build", "compile", "first_step")} == {None}
    (process,) = process_rows(case)
    assert process["compile_seconds"] is None
    (cells,) = csv.DictReader(io.StringIO(EXPORTS["csv"](document([case]))))
    assert [cells[f"{part} (s)"] for part in ("build", "compile", "first step")] == 3 * [""]
    assert cells["compile"] == how
    assert [line.split()[1:] for line in details(case) if "compilation" in line] == [how.split()]


def test_pytest_benchmark_reads_its_own_format(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(EXPORTS["pytest-benchmark"](report.document), encoding="utf-8")
    program = str(Path(sys.executable).with_name("pytest-benchmark"))
    answer = subprocess.run(
        [program, "compare", str(path)],
        cwd=str(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert b"bench_cnn_torch[resnet50-bs1-synthetic]" in answer.stdout
    assert "ipubench" not in json.loads(path.read_text())


def test_the_summary_says_first_how_the_run_ended(report: Report) -> None:
    text = markdown(report)
    first, *rest = text.splitlines()
    assert first.startswith("**🔴 62 cases: 6 regressed, 1 failed, 1 missing")
    table = [line for line in rest if line.startswith("|")]
    assert "regressed" in table[2] and "<code>efficientnet-b0-bs" in table[2]
    assert re.search(r"\| -9\.\d% \(-1\d\.\d% to -\d\.\d%\) \|", table[2])
    assert text.count("<details>") == text.count("</details>") == 2
    assert "- torch: 2.13.0" in text


def test_the_summary_of_any_run_fits_a_comment() -> None:
    cases = [benchmark(f"case-{number}-" + 80 * "x", rounds=5) for number in range(1500)]
    verdicts = {
        case["fullname"]: {**verdict("incomparable", 100), "reasons": [200 * "y"]} for case in cases
    }
    text = markdown(Report(document(cases), verdicts=verdicts))
    assert 30_000 < len(text.encode()) <= LARGEST
    assert "more are in results.csv and report.html" in text
    assert text.count("<details>") == text.count("</details>")


def test_the_summary_shows_what_changed_beside_a_long_command_line_and_many_baselines() -> None:
    case = benchmark("a")
    report = Report(
        document([case]),
        {case["fullname"]: verdict("regressed", 100, -0.2)},
        command="pytest " + " ".join(f"bench_x.py::bench_x[case-{n:04d}]" for n in range(3000)),
        baseline=" | ".join(f"shards/{n:04d}/baselines/main.json" for n in range(3000)),
        gate=" | ".join(f"gate {n}.0%" for n in range(3000)),
    )
    text = markdown(report)
    assert len(text.encode()) <= 10_000
    assert text.count("<code>a</code>") == 2  # in the table of changes, and in that of all cases
    assert "- command: <code>pytest bench" in text and "case-2999" in text
    assert "shards/0000" in text and "2999/baselines/main.json" in text


def test_the_summary_names_the_function_of_cases_of_one_name() -> None:
    training = "bench_training/bench_cnn_torch.py::bench_cnn_torch"
    cases = [
        benchmark("a"),
        benchmark("b"),
        benchmark("b", "bench_inference/bench_cnn_tensorflow.py::bench_cnn_tensorflow"),
        benchmark("c"),
        benchmark("c", training),
    ]
    found = {case["fullname"]: verdict("regressed", 100, -0.2) for case in cases}
    text = html.unescape(markdown(Report(document(cases), found)))
    assert re.findall("regressed [|] <code>(.*?)</code>", text) == [
        "a",
        "bench_cnn_torch b",
        "bench_cnn_tensorflow b",
        cases[3]["fullname"],
        f"{training}[c]",
    ]
    assert text.count("<code>bench_cnn_torch b</code>") == 2


def nasty() -> Report:
    case = benchmark(NASTY)
    record_of(case)["versions"][NASTY] = NASTY
    found = {**verdict("incomparable", 100), "reasons": [NASTY]}
    return Report(document([case]), {case["fullname"]: found}, command=NASTY, baseline=NASTY)


def test_markdown_of_a_nasty_name_is_inert() -> None:
    text = markdown(nasty())
    assert "<script" not in text and "@someone" not in text and "`" not in text
    rows = [line for line in text.splitlines() if line.startswith("| 🟡")]
    assert len(rows) == 1 and rows[0].count("|") == 7


def test_markdown_of_underscores_is_text() -> None:
    assert escape_markdown("aten::_foreach_add_") == "aten::&#95;foreach&#95;add&#95;"
    case = benchmark("_x_-bs1")
    assert "<code>&#95;x&#95;-bs1</code>" in markdown(Report(document([case])))


def without_plotly(text: str) -> str:
    """Return the page less the library of others."""
    start = text.index('<script type="application/gzip" id="plotly">')
    return text[:start] + text[text.index("</script>", start) :]


def test_the_page_of_a_nasty_name_is_inert() -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    text = without_plotly(page(nasty()))
    assert "alert(1)" in text
    assert "<script>alert" not in text and "</td>|" not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data.group(1))["rows"][0]["name"] == NASTY


def test_the_page_loads_nothing_and_is_small(report: Report) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    whole = page(report)
    assert len(whole) < 2_500_000
    text = without_plotly(whole)
    assert "http:" not in text and "https:" not in text
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=[\"'](?!data:)", text)
    assert "default-src 'none'" in text


def test_the_pages_table_and_data_hold_the_records(report: Report) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    text = page(report)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert found is not None
    data = json.loads(found.group(1))
    by_id = {row["id"]: row for row in data["rows"]}
    assert len(by_id) == 62 and len(data["details"]) == 60
    for case in report.document["benchmarks"]:
        record = record_of(case)
        assert by_id[case["fullname"]]["throughput"] == record["throughput"]["median"]
        (process,) = data["details"][case["fullname"]]["processes"]
        assert len(process["rates"]) == len(process["canaries_ms"]) == 25
    assert text.count("<tr data-row=") == 62


def test_every_process_of_a_case_is_shown() -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    fresh = [benchmark("a", seed=seed, rate=101, rounds=700) for seed in range(3)]
    case = with_processes(benchmark("a"), fresh)
    found = re.search(r'id="data">(.*?)</script>', page(Report(document([case]))))
    assert found is not None
    (detail,) = json.loads(found.group(1))["details"].values()
    assert [process["fresh"] for process in detail["processes"]] == [False, True, True, True]
    last = detail["processes"][-1]
    assert (last["rounds"], last["every"], len(last["rates"])) == (700, 3, 234)
    assert last["throughput"] == pytest.approx(101, rel=0.02)


def test_a_record_with_little_in_it_makes_a_report(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    case = with_processes(benchmark("a"))
    record = record_of(case)
    for key in ("latency", "compute", "memory", "input", "rounds", "build_seconds", "git"):
        del record[key]
    # It is no baseline, and that is said when all else is written.
    with pytest.raises(ReportError, match="'latency' is a required property"):
        write(Report(document([case])), tmp_path)
    assert set(visible(tmp_path)) == FILES - {"baseline.json"}
    (row,) = csv.DictReader((tmp_path / "results.csv").open(encoding="utf-8"))
    assert row["latency p50 (ms)"] == "" and float(row["throughput (items/s)"]) > 0


def test_the_framework_is_the_records_or_the_functions() -> None:
    assert framework_name("bench_cnn_torch", {}) == "torch"
    assert framework_name("bench_dense", {}) == "tensorflow"
    assert framework_name("bench_dense", {"framework": "popart"}) == "popart"
    assert framework_name("bench_tensorflow_serving", {"framework": None}) == "tensorflow"
    assert framework_name("bench_count", {"framework": None}) == "python"


def test_a_report_is_written_and_written_again(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    assert set(write(report, tmp_path)) == FILES == set(visible(tmp_path))
    write(Report(document([benchmark("a")])), tmp_path)
    kept = json.loads((tmp_path / "baseline.json").read_text())["benchmarks"]
    assert [case["name"] for case in kept] == ["bench_cnn_torch[a]"]


def stored(path: Path, cases: List[Dict[str, Any]]) -> Path:
    write(Report(document(cases)), path.parent)
    (path.parent / "baseline.json").rename(path)
    return path


def test_a_report_of_stored_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    now = stored(tmp_path / "now.json", [benchmark("a", rate=100), benchmark("b", rate=100)])
    before = stored(tmp_path / "before.json", [benchmark("a", rate=150), benchmark("c", rate=100)])
    out = tmp_path / "out"
    assert main([str(now), f"--out={out}", f"--baseline={before}"]) == 1
    rows = list(csv.DictReader((out / "results.csv").open(encoding="utf-8")))
    kinds = {row["name"]: row["verdict"] for row in rows}
    # One process on each side cannot be called a regression by every gate.
    assert kinds["a"] in ("regressed", "inconclusive")
    assert (kinds["b"], kinds["c"]) == ("new", "missing")
    assert float(rows[0]["change (1)"]) == pytest.approx(-1 / 3, abs=0.03)
    assert main([str(tmp_path / "none.json"), f"--out={out}"]) == 4
    assert "there is no baseline" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main([str(now), f"--out={tmp_path / 'file'}"]) == 4
    assert "a report cannot be written there" in capsys.readouterr().err
    for gate, why in (("x", "'x'"), ("1%", "--gate needs something to compare with")):
        with pytest.raises(SystemExit, match="^4$"):
            main([str(now), f"--out={out}", f"--gate={gate}"])
        assert why in capsys.readouterr().err


@pytest.mark.entry_point
def test_a_run_leaves_a_report_also_when_a_case_fails(project: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
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
    assert summary.read_text().startswith("before\n**🔴 2 cases: 1 failed, 1 measured")
    (case,) = [
        case
        for case in ElementTree.parse(out / "junit.xml").getroot().iter("testcase")  # noqa: S314  our own file
        if case.get("name") == "bench_fake[beta-synthetic]"
    ]
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert float(str(properties["throughput"])) == median
    assert properties["unit"] == "items/s"


def test_every_output_of_a_run_shows_the_processes_that_decided(project: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    source = (project.folder / "bench_fake.py").read_text()
    # The first process, which is the session's own, is the slow one.
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


def test_a_report_that_is_made_later_says_what_the_runs_own_said(project: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
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


@pytest.mark.entry_point
def test_a_file_whose_name_is_no_text_is_reported(project: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    named = os.fsdecode(b"bench_\xff.py")
    (project.folder / "bench_fake.py").rename(project.folder / named)
    words = [".", "--device=fake", "-k", "beta-synthetic", "--budget=0.3", "--report=out"]
    outcome = run_pytest(project.folder, project.environment, *words).assert_code(0)
    outcome.line("report: out/report.html")
    assert set(visible(project.folder / "out")) == FILES
    text = (project.folder / "out" / "report.html").read_text()
    assert 'href="#case=bench_%5Cudcff.py%3A%3Abench_fake%5Bbeta-synthetic%5D' in text


def test_a_file_that_cannot_be_made_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")

    def broken(report: Report) -> str:
        raise KeyError("unforeseen")

    monkeypatch.setattr(files, "page", broken)
    monkeypatch.setattr(files, "_save", broken)
    with pytest.raises(ReportError) as error:
        write(Report(document([benchmark("a")])), tmp_path)
    assert "is not complete: baseline.json could not be made: " in str(error.value)
    assert "report.html could not be made: KeyError('unforeseen') in " in str(error.value)
    assert set(visible(tmp_path)) == FILES - {"report.html", "baseline.json"}


def test_a_report_that_cannot_be_made_costs_neither_the_table_nor_the_summary(
    project: Project,
) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    (project.folder / "broken_page.py").write_text(
        "from ipubench.plugins.report import files\nfiles.page = None\n"
    )
    words = ["-p", "broken_page", "-k", "beta-synthetic", "--budget=0.3", "--report=out"]
    path = f"{project.environment['PYTHONPATH']}:{project.folder}"
    summary = {"PYTHONPATH": path, "GITHUB_STEP_SUMMARY": str(project.folder / "step.md")}
    outcome = project.run(*words, env=summary).assert_code(4)
    outcome.line("the report in out is not complete: report.html could not be made: TypeError(")
    assert outcome.table and "Traceback" not in outcome.text
    assert "1 case: 1 measured" in (project.folder / "step.md").read_text()


def test_an_interrupted_run_leaves_a_report(project: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    source = (project.folder / "bench_fake.py").read_text()
    broken = source.replace(
        'if config.trouble == "error":\n        raise CaseError(',
        'if "beta-generated" in str(meter.case):\n        raise KeyboardInterrupt(',
    )
    (project.folder / "bench_fake.py").write_text(broken)
    project.run("-k", "beta", "--report=out").assert_code(2)
    text = (project.folder / "out" / "summary.md").read_text()
    assert "the run was interrupted" in text and "beta-synthetic" in text
    # What a killed run measured is in its journal.
    later = project.folder / "later"
    assert main([str(project.journals()[-1]), f"--out={later}"]) == 1
    assert "beta-synthetic" in (later / "summary.md").read_text()


def test_a_folder_that_cannot_be_written_costs_no_measurement(project: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    (project.folder / "file").write_text("in the way")
    outcome = project.run("-k", "beta", "--report=file/out").assert_code(4)
    assert "--report=file/out: " in outcome.text and "cannot be written there" in outcome.text
    assert "Traceback" not in outcome.text and not project.journals()


@pytest.mark.parametrize("name", ["nowhere/out.json", ".", "bench_fake.py/out.json"])
def test_a_document_that_cannot_be_written_costs_no_measurement(
    project: Project, name: str
) -> None:
    outcome = project.run("-k", "beta", f"--benchmark-json={name}").assert_code(4)
    outcome.line(f"--benchmark-json={name}: it cannot be written there (")
    assert "Traceback" not in outcome.text and not project.journals()


def test_a_document_that_is_there_is_written_anew(project: Project) -> None:
    (project.folder / "out.json").write_text("old")
    project.run("-k", "beta-synthetic", "--benchmark-json=out.json").assert_code(0)
    assert len(json.loads((project.folder / "out.json").read_text())["benchmarks"]) == 1


@pytest.mark.parametrize("folder", ["~nobody2/out", "x" * 300])
def test_a_folder_that_cannot_be_looked_at_costs_no_measurement(
    project: Project, folder: str
) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    outcome = project.run("-k", "beta", f"--report={folder}").assert_code(4)
    assert f"--report={folder}: " in outcome.text
    assert "Traceback" not in outcome.text and not project.journals()


def test_without_plotly_nothing_is_measured(project: Project) -> None:
    hidden = project.folder / "hidden"
    hidden.mkdir()
    (hidden / "without_plotly.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'plotly' "
        "else find(name, *rest)\n"
    )
    path = f"{hidden}:{project.environment['PYTHONPATH']}"
    words = ["-p", "without_plotly", "-k", "beta", "--report=out"]
    outcome = project.run(*words, env={"PYTHONPATH": path}).assert_code(4)
    assert "report.html needs plotly: pip install" in outcome.text
    assert not project.journals()


def test_a_run_that_measures_nothing_writes_no_report(project: Project) -> None:
    pytest.importorskip("plotly", reason="pip install plotly")
    outcome = project.run("-k", "beta", "--benchmark-disable", "--report=out").assert_code(0)
    outcome.line("no report was written to out: no case was measured")
    assert not visible(project.folder / "out")
