"""Files for other programs: spreadsheets, other trackers and pytest-benchmark."""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path

import pytest

from ipubench.plugins.baseline.entries import differences
from ipubench.plugins.baseline.show import details, overview
from ipubench.plugins.gate.shown_throughput import throughput_of
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.record import BY_COUNTS, with_processes
from ipubench.plugins.record.structs import Record
from ipubench.plugins.record.text import percent, rate_text, time_text
from ipubench.plugins.report.exports import bencher, csv_with_verdicts
from ipubench.plugins.report.files import write
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.process_rounds import processes_shown
from ipubench.plugins.report.table import HEADINGS, table_rows
from ipubench.plugins.results.rows import Report
from tests.support.reports import EXPORTS, benchmark, report_on, reported, verdict
from tests.support.stored import changed, record_of


def share_of(record: Record) -> float:
    assert record.compute is not None and record.compute.share is not None
    return record.compute.share


def test_the_csv_holds_the_records(report: Report) -> None:
    text = EXPORTS["csv"](report_on(report.benchmarks))
    assert "\r" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 60 and {row["implausible"] for row in rows} == {"no"}
    for row, case in zip(rows, report.benchmarks):
        record = case.record
        assert row["case"] == case.fullname
        assert float(row["throughput (items/s)"]) == record.throughput.median
        assert float(row["latency p99 (ms)"]) == record.latency.p99_ms
        fresh = record.compile == "fresh"
        assert row["compile (s)"] == (str(record.compile_seconds) if fresh else "")
        assert float(row["build (s)"]) == record.build_seconds
        assert record.compute is not None
        assert float(row["share of peak (1)"]) == record.compute.share
        assert row["unit"] == record.throughput.unit
        assert int(row["batch size"]) == record.config["batch_size"]


def test_the_csv_has_the_number_of_instances() -> None:
    asked = {"record.config": {"instances": 4}}
    ran = {"record.effective": {"instances": {"asked": 4, "ran": 2}}}
    cases = [
        changed(benchmark(name), changes)
        for name, changes in (("a", {}), ("b", asked), ("c", {**asked, **ran}))
    ]
    rows = csv.DictReader(io.StringIO(EXPORTS["csv"](report_on(cases))))
    assert [row["instances"] for row in rows] == ["1", "4", "2"]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("a\r=HYPERLINK(1)", "a\\r=HYPERLINK(1)"),
        ("\t=1", "\\t=1"),
        ("a\u2028=1", "a\\u2028=1"),
    ],
)
def test_a_spreadsheet_takes_no_name_for_a_formula_or_a_row(name: str, cell: str) -> None:
    text = EXPORTS["csv"](report_on([benchmark(name)]))
    assert len(text.splitlines()) == 2
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["name"] == cell


def test_other_trackers_get_throughput_with_its_interval(report: Report) -> None:
    case = report.benchmarks[0]
    record = case.record
    throughput, latency = record.throughput, record.latency
    entries = json.loads(EXPORTS["github-action-benchmark"](report_on(report.benchmarks)))
    assert [one["name"] for one in entries] == [one.fullname for one in report.benchmarks]
    half = (throughput.high - throughput.low) / 2
    assert (entries[0]["value"], entries[0]["unit"]) == (throughput.median, "images/s")
    assert float(entries[0]["range"][2:]) == pytest.approx(half, rel=1e-3)
    assert f"share of peak: {percent(share_of(record))}\n" in entries[0]["extra"]
    # Bencher's built-in latency measure is in nanoseconds.
    assert json.loads(EXPORTS["bencher"](report_on(report.benchmarks)))[case.fullname] == {
        "throughput": {
            "value": throughput.median,
            "lower_value": throughput.low,
            "upper_value": throughput.high,
        },
        "latency": {"value": 1e6 * latency.p50_ms},
        "latency-p99": {"value": 1e6 * latency.p99_ms},
        "host-memory": {"value": record.memory.host_peak_rss_bytes},
        "build-time": {"value": record.compile_seconds},
    }


def test_all_files_show_the_deciding_processes_with_their_interval() -> None:
    fresh = [benchmark("a", seed=seed, rate=80 + seed) for seed in range(3)]
    case = with_processes(benchmark("a", rate=100), fresh)
    before = with_processes(benchmark("a", rate=100))
    (found,) = differences([before], [case], 0.05)
    report = reported([case], {case.fullname: found.verdict})
    (row,) = csv.DictReader(io.StringIO(csv_with_verdicts(report)))
    now = float(row["now (items/s)"])
    low, high = (float(row[f"throughput {end} (items/s)"]) for end in ("low", "high"))
    assert float(row["throughput (items/s)"]) == now == pytest.approx(81, rel=0.02)
    medians = sorted(one.record.throughput.median for one in fresh)
    assert [low, high] == pytest.approx([medians[0], medians[-1]])
    rates = [one.record.throughput for one in fresh]
    for figure, of_all in (("mean", statistics.fmean), ("min", min), ("max", max)):
        expected = of_all([getattr(rate, figure) for rate in rates])
        assert float(row[f"throughput {figure} (items/s)"]) == pytest.approx(expected)
    (stored,) = csv.DictReader(io.StringIO(EXPORTS["csv"](report_on(report.benchmarks))))
    assert stored["throughput (items/s)"] == row["throughput (items/s)"]
    (measures,) = json.loads(EXPORTS["bencher"](report_on(report.benchmarks))).values()
    assert measures["throughput"] == {"value": now, "lower_value": low, "upper_value": high}
    (listed,) = json.loads(EXPORTS["github-action-benchmark"](report_on(report.benchmarks)))
    assert listed["value"] == now
    assert float(listed["range"][2:]) == pytest.approx((high - low) / 2, rel=1e-3)
    cells = list(overview([case]))[-1].split()
    assert cells[1:4] == [f"{now:.2f}", "images/s", f"{(high - low) / 2 / now:.1%}"]
    (plain,) = json.loads(EXPORTS["pytest-benchmark"](report_on(report.benchmarks)))["benchmarks"]
    assert record_of(plain)["throughput"] and "processes" not in record_of(plain)
    (_, line) = table_rows(reported([case], report.facts.verdicts).rows())
    assert (line.cells[2], line.cells[HEADINGS.index("±")]) == (cells[1], cells[3])
    own, compute = case.record.throughput, case.record.compute
    achieved, share = (getattr(compute, key) * now / own.median for key in ("achieved", "share"))
    assert float(row["achieved (FLOP/s)"]) == pytest.approx(achieved)
    assert float(row["share of peak (1)"]) == pytest.approx(share)
    peak = line.cells[HEADINGS.index("peak")]
    assert peak == percent(share, 0) != percent(share_of(case.record), 0)
    # The session's first process may have been compared alone.
    alone = {case.fullname: verdict("inconclusive", own.median, processes=1)}
    (one,) = reported([case], alone).rows()
    assert [getattr(one.rate, key) for key in ("median", "low", "high")] == [
        getattr(own, key) for key in ("median", "low", "high")
    ]
    assert f"({low:.2f} to {high:.2f})" in "\n".join(details(case))


def test_two_processes_decide_together_and_a_disturbed_one_does_not() -> None:
    both = [benchmark("a", rate=100), benchmark("a", rate=50, seed=1)]
    case = with_processes(both[0], both[1:])
    own, other = (one.record.throughput for one in both)
    shown = throughput_of(case)
    assert (shown.low, shown.high) == pytest.approx((other.median, own.median))
    others = {"record.processes.0.lost": 0.5, "record.processes.0.clean": False}
    case = changed(case, others)
    shown = throughput_of(case)
    for figure in ("median", "low", "high", "spread"):
        assert getattr(shown, figure) == pytest.approx(getattr(other, figure))


def test_a_single_round_has_no_interval() -> None:
    case = benchmark("a", rounds=1)
    report = report_on([case])
    (row,) = report.rows()
    assert [getattr(row.rate, key) for key in ("low", "high", "spread")] == 3 * [None]
    (measures,) = json.loads(bencher(report)).values()
    assert measures["throughput"] == {"value": row.rate.median}
    (line,) = (one for one in details(case) if "throughput" in one)
    assert line.endswith(" images/s")


def test_pairs_have_no_interval_besides_that_of_their_change(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    case = benchmark("a", rate=100)
    own = case.record.throughput.median
    pairs = verdict("regressed", own, -0.2, in_turns=True, now=80)
    report = reported([case], {case.fullname: pairs}, outcomes={"b": "failed"})
    row, _ = report.rows()
    assert row.rate.median == 80
    assert [
        getattr(row.rate, key) for key in ("low", "high", "mean", "min", "max", "spread")
    ] == 6 * [None]
    write(report, tmp_path)
    metrics = json.loads((tmp_path / "bencher.json").read_text())
    assert metrics[case.fullname]["throughput"] == {"value": 80} and len(metrics) == 1
    (listed,) = json.loads((tmp_path / "github-action-benchmark.json").read_text())
    assert listed["value"] == 80 and "range" not in listed
    (_, line) = table_rows(reported([case], report.facts.verdicts).rows())
    assert (line.cells[2], line.cells[HEADINGS.index("±")]) == ("80.00", "-")


def test_a_case_whose_instructions_are_counted_shows_them_and_no_times() -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    counted = {
        "record.rounds.stopped_by": BY_COUNTS,
        "record.instructions": Counts((886_757.0,), "", {}).for_record(),
    }
    case = changed(benchmark("a", rate=100), counted)
    report = report_on([case])
    rate, latency = report.rows()[0].rate.median, case.record.latency
    table = "\n".join(" ".join(row.cells) for row in table_rows(report_on([case]).rows()))
    for text in (table, markdown(report), page(report).split('id="data"')[0]):
        assert "886.8k" in text
        for figure in (
            rate_text(rate),
            *map(time_text, (latency.p50_ms / 1e3, latency.p99_ms / 1e3)),
        ):
            assert figure not in text


def test_other_tools_get_no_result_that_may_be_wrong(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    cases = {name: benchmark(name) for name in ("right", "slower", "wrong", "skipped", "too-fast")}
    cases["too-fast"] = changed(cases["too-fast"], {"record.implausible": True})
    right, slower, wrong, skipped, _ = (case.fullname for case in cases.values())
    outcomes = {right: "passed", slower: "failed", wrong: "failed", skipped: "skipped"}
    found = {slower: verdict("regressed", 100, -0.2)}
    write(reported(list(cases.values()), found, outcomes), tmp_path)
    listed = json.loads((tmp_path / "github-action-benchmark.json").read_text())
    assert [entry["name"] for entry in listed] == [right, slower]
    assert set(json.loads((tmp_path / "bencher.json").read_text())) == {right, slower}


@pytest.mark.parametrize("how", ["none", "within the command"])
def test_an_unknown_compile_time_is_not_shown(how: str) -> None:
    case = changed(with_processes(benchmark("a", compile=how)), {"record.first_step_seconds": 0.0})
    (process,) = processes_shown(case)
    assert process["compile_seconds"] is None
    (cells,) = csv.DictReader(io.StringIO(EXPORTS["csv"](report_on([case]))))
    assert [cells[f"{part} (s)"] for part in ("build", "compile", "first step")] == 3 * [""]
    assert cells["compile"] == how
    assert [line.split()[1:] for line in details(case) if "compilation" in line] == [how.split()]
