"""Groups of pytest-benchmark: blocks of the table and of reports, with ratios to the fastest."""

from __future__ import annotations

import math
from typing import Any, List

import pytest
from msgspec.structs import replace

from ipubench.plugins.record.record import with_processes
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.report.groups import GROUP_HEADINGS, group_tables, groups_of
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.table import HEADINGS, layout, table_rows
from ipubench.plugins.results.case_row import Ratio
from ipubench.plugins.results.rows import named
from tests.support.own_project import OwnProject
from tests.support.reports import report_on, reported
from tests.support.stored import a_benchmark

#: Half the 95% interval of a logarithmic ratio of two processes that show no noise of their own:
#: an assumed 2% for each, and Student's t for three degrees of freedom.
ASSUMED = 3.1824 * 0.02 * math.sqrt(2)


def case(name: str, seconds: List[float], group: Any = "words", **changes: Any) -> Benchmark:
    found = a_benchmark(seconds, name=name, **changes)
    return replace(found, fullname=f"test_a.py::{name}", name=name, group=group)


def ratios(*cases: Benchmark) -> List[List[Any]]:
    found = groups_of(report_on(cases).rows())
    return [[group.name, {row.name: row.ratio for row in group.rows}] for group in found]


def test_a_ratio_is_to_the_fastest_of_the_group_with_the_interval_of_two_processes() -> None:
    ((name, found),) = ratios(case("slow", [0.2] * 9), case("fast", [0.1] * 9))
    assert name == "words" and list(found) == ["fast", "slow"]
    assert found["fast"] == Ratio(1.0) and found["fast"].interval == "-"
    expected = [2.0, 2.0 * math.exp(-ASSUMED), 2.0 * math.exp(ASSUMED)]
    assert [*found["slow"]] == pytest.approx(expected, rel=1e-4)
    assert found["slow"].interval == "1.83 to 2.19"


def test_rounds_that_differ_widen_the_interval_of_one_process() -> None:
    noisy = [0.2 * factor for factor in (0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2)]
    ((_, found),) = ratios(case("slow", noisy), case("fast", [0.1] * 9))
    low, high = found["slow"].low, found["slow"].high
    # Seven rounds give the interval from the first to the last.
    error = math.hypot(0.02 * math.sqrt(2), math.log(1.2 / 0.8) / (2 * 1.96))
    assert math.log(high / low) / 2 == pytest.approx(3.1824 * error, rel=1e-4)


def test_more_processes_narrow_the_interval() -> None:
    sides = [case("fast", [0.1] * 9), case("slow", [0.2] * 9)]
    ((_, found),) = ratios(*(with_processes(one, [one] * 4) for one in sides))
    # Of five processes that agree on both sides, the trimmed means keep three.
    assert math.log(found["slow"].high / 2) < ASSUMED / 2


def test_a_single_round_has_a_ratio_without_an_interval() -> None:
    ((_, found),) = ratios(case("fast", [0.1] * 9), case("slow", [0.2]))
    assert found["slow"] == Ratio(2.0)


def test_other_units_and_cases_alone_or_without_a_group_make_no_group() -> None:
    pages = case("pages", [0.1] * 9)
    throughput = replace(pages.record.throughput, unit="pages/s")
    pages = case("pages", [0.1] * 9, throughput=throughput)
    alone = case("alone", [0.1] * 9, group="alone")
    nothing = [case(name, [0.1] * 9, group=None) for name in "ab"]
    assert ratios(case("one", [0.1] * 9), pages, alone, *nothing) == []


def test_a_group_is_a_block_of_the_table_that_fits_the_terminal() -> None:
    cases = [
        case("test_slow", [0.2] * 9),
        case("test_other", [0.1] * 9, group=None),
        case("test_fast_with_a_name_of_some_length", [0.1] * 9),
    ]
    rows = table_rows(report_on(cases).rows())
    assert [row.cells[0] for row in rows] == [
        "words (items/s)",
        "  test_fast_with_a_name_of_some_length",
        "  test_slow",
        "test_other (items/s)",
    ]
    for width in (60, 80, 120):
        lines = [row.cells[0] for row in layout(rows, width)]
        assert max(map(len, lines)) < width
        assert "ratio" in lines[0].split() and "2.00x" in lines[3].split()
    assert "1.83 to 2.19" in [row.cells[0] for row in layout(rows, 80)][3]


def test_without_a_group_the_table_has_no_ratios() -> None:
    rows = table_rows(
        report_on([case(name, [0.1] * 9, group=None) for name in ("test_a", "test_b")]).rows()
    )
    assert [len(row.cells) for row in rows] == [len(HEADINGS)] * 2
    assert "ratio" not in layout(rows, 120)[0].cells[0]


def test_a_regressed_case_comes_first_in_its_group() -> None:
    cases = [case(name, [seconds] * 9) for name, seconds in (("fast", 0.1), ("slow", 0.2))]
    verdict = Verdict("regressed", change=-0.3)
    rows = table_rows(reported(cases, {"test_a.py::slow": verdict}).rows())
    assert [row.cells[0].strip() for row in rows[1:]] == ["slow", "fast"]


def test_reports_have_the_groups() -> None:
    cases = [case(name, [seconds] * 9) for name, seconds in (("slow", 0.2), ("fast", 0.1))]
    report = report_on(cases)
    table: Any
    (table,) = group_tables(named(report.rows()))
    assert table["heading"] == "words (items/s)"
    lines = [["fast", "100.0", "1.00x", "-"], ["slow", "50.00", "2.00x", "1.83 to 2.19"]]
    assert table["lines"] == lines
    for text in (page(report), markdown(report)):
        assert all(heading in text for heading in GROUP_HEADINGS) and "2.00x" in text
    ungrouped = report_on([replace(one, group=None) for one in cases])
    assert "2.00x" not in page(ungrouped) + markdown(ungrouped)


TESTS = """
import pytest

@pytest.mark.benchmark(group="sums")
def test_marked(benchmark):
    benchmark(sum, range(10))

def test_set(benchmark):
    benchmark.group = "sums"
    benchmark(sum, range(1000))

@pytest.mark.parametrize("count", [10, 1000])
def test_count(benchmark, count):
    benchmark(sum, range(count))
"""
QUICK = ("--budget=0.05",)


def test_the_marker_and_the_fixture_group_a_run(own: OwnProject) -> None:
    own.write(TESTS)
    outcome = own.run(*QUICK, "--report=out").assert_code(0)
    start = outcome.lines.index(outcome.line("sums (calls/s)"))
    assert [line.split()[0] for line in outcome.lines[start + 1 : start + 3]] == [
        "test_marked", "test_set",
    ]  # fmt: skip
    assert outcome.text.count("1.00x") == 1
    assert "sums (calls/s)" in (own.folder / "out" / "report.html").read_text()


def test_an_option_groups_the_run_and_its_report(own: OwnProject) -> None:
    own.write(TESTS)
    words = ("-k", "count", "--benchmark-group-by=func", "--report=out")
    outcome = own.run(*QUICK, *words).assert_code(0)
    assert "1.00x" in outcome.line("  test_count-10 ")
    assert "1.00x" in (own.folder / "out" / "summary.md").read_text()
    assert "1.00x" not in own.run(*QUICK, "-k", "count").assert_code(0).text
