"""The final table and its notes: widths, numbers, cut names."""

from __future__ import annotations

import re
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.record.structs import Contention, InputRates
from ipubench.plugins.record.text import percent, short_number
from ipubench.plugins.record.verdict import JudgedMetric, Verdict
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.table import HEADINGS, Row, layout, shared_by, table_rows
from ipubench.plugins.report.terminal import summary, verdict_text
from ipubench.plugins.results.rows import own_noise
from ipubench.plugins.results.run_results import RunResults
from tests.support.harness import Project
from tests.support.reports import benchmark, report_on, reported, verdict
from tests.support.stored import changed

NAME = "  resnet50-bs16-synthetic"
FIGURES = ("228.1", "207.3", *"---", "onednn", "0.4%", "77.1 ms", "80 ms", "-", "3.4", "78%")
ROW = Row((NAME, *FIGURES, "-", "-1.2%", "-"))
COMPARED = Row((NAME, *FIGURES, "regressed", "-9.1%", "-10.3% to -7.6%"), "regressed")
BETA = "bench_fake.py::bench_fake[beta-synthetic]"


def lines_of(rows: List[Row], width: int) -> List[str]:
    return [row.cells[0] for row in layout(rows, width)]


def notes_of(cases: Dict[str, Any]) -> List[str]:
    """Return the lines below the table of some cases."""
    lines = summary(report_on([*cases.values()]), RunResults(benchmarks=cases), 80)
    return [row.cells[0] for row in lines]


EMPTY = ("ratio", "ratio 95%", "instr", "J/item")
WIDTHS = {
    130: [heading for heading in HEADINGS if heading not in EMPTY],
    80: ["case", "before", "throughput", "engine", "±", "p50", "verdict", "change"],
    60: ["case", "throughput", "engine", "verdict", "change"],
    40: ["case", "throughput", "verdict", "change"],
}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_narrow_terminal_has_fewer_columns_and_whole_numbers(width: int) -> None:
    figures = ("-", "1", *"----", "0.1%", "1 s", "1 s", "-", "reused", "1%", "-", "new", "-")
    short = Row(("  a", *figures))
    lines = lines_of([Row(("bench_cnn_torch (images/s)",)), COMPARED, short], width)
    assert max(map(len, lines)) < width
    assert lines[0].split() == " ".join(WIDTHS[width]).split()
    assert lines[2].split()[0].startswith("re")
    assert {"207.3", "-9.1%"} <= set(lines[2].split())
    assert len(lines[2].rstrip()) >= len(lines[3].rstrip())
    assert lines[2].index("207.3") + 5 == lines[3].index(" 1 ") + 2  # columns line up


def test_an_empty_column_is_left_out_and_no_case_makes_no_table() -> None:
    assert layout([], 80) == []
    (heading, _) = lines_of([Row((*ROW.cells[:12], "-", "-", "-", "-"))], 80)
    assert not {"peak", "change", "interval"} & set(heading.split())


def test_a_fact_that_all_rows_share_has_a_line_and_no_column() -> None:
    at = HEADINGS.index("compile s")
    other = Row((NAME + "2", *COMPARED.cells[1:at], "reused", *COMPARED.cells[at + 1 :]))
    (heading, *_) = lines_of([COMPARED, other], 130)
    assert "compile" in heading and "engine" not in heading and "verdict" in heading
    assert shared_by([COMPARED, other]) == "all cases: engine onednn"
    (heading, *_) = lines_of([other, other], 130)
    assert "compile" not in heading and "throughput" in heading  # a figure that happens to agree
    assert shared_by([other, other]) == "all cases: engine onednn, compilation reused"
    assert shared_by([COMPARED]) == shared_by([Row(("bench (images/s)",)), COMPARED]) == ""
    assert "engine" in lines_of([COMPARED], 130)[0]


def test_cut_names_and_headings_still_differ() -> None:
    names = [f"  resnet50-{engine}bs16-synthetic" for engine in ("", "openvino-")]
    figures = (
        "-",
        "18.68",
        "-",
        "-",
        "-",
        "openvino",
        "12.5%",
        "857 ms",
        "1.08 s",
        "-",
        "3.5",
        "17%",
        "-",
        "-",
        "-",
    )
    lines = lines_of([Row((name, *figures)) for name in names], 80)
    assert lines[1].split()[0] != lines[2].split()[0]
    # The table is wider than a terminal that only fits the throughput.
    long = [f"  {'a' * 30}-bs{size}-{'b' * 30}" for size in (1, 16)]
    heading, *rows = lines_of([Row((name, *figures)) for name in long], 60)
    assert heading.split() == ["case", "throughput"]
    assert rows[0].split()[0] != rows[1].split()[0]
    where = Row((f"{'folder/' * 12}test_sort.py::test_sort (items/s)",))
    line = lines_of([where, ROW], 80)[1]
    assert len(line) == 79 and line.endswith("/test_sort.py::test_sort (items/s)")


@given(st.integers(20, 200), st.text("abcdefgh-", min_size=1, max_size=120))
def test_a_long_name_is_cut_in_the_middle(width: int, name: str) -> None:
    line = lines_of([Row((name, *COMPARED.cells[1:]))], width)[1]
    shown = line.split()[0]
    assert shown[:3] == name[:3] and shown[-3:] == name[-3:]
    assert "207.3" in line and "-9.1%" in line
    if width >= 40:
        assert len(line) < width


def test_functions_and_cases_with_one_name_are_distinguished() -> None:
    cases = [
        changed(benchmark(name, "a[1]/test_a.py::test_op"), {"record.name": "test_op"})
        for name in ("+", "<=")
    ]
    cases += [benchmark("c", f"test_b.py::{name}") for name in ("A::test_op", "test_sort")]
    rows = table_rows(report_on(cases).rows())
    assert [row.cells[0].strip() for row in rows] == [
        "a[1]/test_a.py::test_op (images/s)", "test_op[+]", "test_op[<=]",
        "test_b.py::A::test_op (images/s)", "c", "test_sort (images/s)", "c",
    ]  # fmt: skip


def test_a_heading_that_its_only_row_would_repeat_replaces_the_row() -> None:
    sort = benchmark("test_sort", "test_b.py::test_sort", unit="calls/s")
    case = changed(sort, {"fullname": "test_b.py::test_sort"})
    (row,) = table_rows(report_on([case]).rows())
    assert row.cells[0] == "test_sort (calls/s)" and len(row.cells) == len(HEADINGS)


def test_regressions_come_first_in_a_compared_table() -> None:
    changes = {"a": 0.001, "b": -0.06, "c": -0.02, "d": -0.2, "e": 0.3, "f": -0.04}
    kinds = {"b": "regressed", "d": "regressed", "e": "improved", "f": "inconclusive"}
    cases = [benchmark(name) for name in changes]
    other = benchmark("z", "bench_kernels/bench_dense.py::bench_dense", unit="items/s")
    found = {
        case.fullname: verdict(kinds.get(name, "pass"), 100, changes[name])
        for name, case in zip(changes, cases)
    }
    found[other.fullname] = verdict("pass", 100, -0.04)
    rows = table_rows(reported([other, *cases], found).rows())
    assert [row.cells[0].strip() for row in rows] == [
        "bench_cnn_torch (images/s)", "d", "b", "f", "e", "c", "a", "bench_dense (items/s)", "z",
    ]  # fmt: skip
    assert rows[1].kind == "regressed"
    assert rows[1].cells[HEADINGS.index("peak")] == "38%"
    unjudged = table_rows(report_on([benchmark(name) for name in "cab"]).rows())
    assert [row.cells[0].strip() for row in unjudged[1:]] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (98.7654, "98.77"),
        (4000.0, "4,000"),
        (0.012344, "0.01234"),
        (999.96, "1,000"),
        (123456.7, "123,500"),
        (float("nan"), "-"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert short_number(value) == text


@given(st.floats(1e-9, 1e12))
def test_a_short_number_is_exact_to_its_last_digit(value: float) -> None:
    assert float(short_number(value).replace(",", "")) == pytest.approx(value, rel=6e-4)


def test_percentages() -> None:
    assert percent(0.0512) == "5.1%"
    assert percent(-0.0512, sign=True) == "-5.1%"
    assert percent(0.5, 0) == "50%"
    assert percent(float("inf")) == "-"


def test_a_verdict_has_its_numbers_and_its_reasons() -> None:
    text = verdict_text(verdict("inconclusive", 100, -0.04))
    assert text.startswith("-4.0% (-5.2% to -2.5%) in 5 processes; ±6.1% ")
    latency = JudgedMetric("latency_p99", "regressed", change=0.2, low=0.1, high=0.3)
    memory = JudgedMetric("peak_memory", "pass", change=0.2)
    slower = Verdict("regressed", change=-0.01, also=[memory, latency])
    assert verdict_text(slower) == "-1.0%; latency_p99: +20.0% (+10.0% to +30.0%)"
    assert verdict_text(Verdict("missing")) == ""


@pytest.mark.entry_point
@pytest.mark.slow
def test_the_end_of_a_compared_run(project: Project) -> None:
    """A regression is coloured; no line is wider than the terminal; -qq keeps the verdicts."""
    project.run("-k", "bs8 or beta", "--baseline-save=main", "--processes=2").assert_code(0)
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "1.2"}
    words = ["-k", "beta-synthetic", "--baseline=main", "--gate=5%", "--gate-cap=3"]
    line = project.run(*words, "--color=yes", env=slow).assert_code(1).line(f"  regressed: {BETA}")
    assert line.startswith("\x1b[31m  regressed: ")
    assert re.search(r": -1\d\.\d% \(-\d+\.\d% to -\d+\.\d%\)", line)
    quiet = {"NO_COLOR": "1", "COLUMNS": "60", "IPUBENCH_FAKE_SLOWDOWN": "0.5"}
    outcome = project.run("-k", "bs8", "--baseline=main", "-q", env=quiet).assert_code(0)
    assert "\x1b[" not in outcome.text
    table = [line for line in outcome.lines if line.startswith(("case ", "  alpha"))]
    assert len(table) == 3 and max(map(len, table)) < 60
    assert table[1].split()[1:3] == ["800.0", "1,600"]
    quieter = project.run("-k", "beta", "--baseline=main", "-qq").assert_code(0)
    quieter.line("(no gate): 2 not judged")
    assert "beta-synthetic" not in quieter.text


def test_cases_that_their_own_noise_allows_more_are_named() -> None:
    noisy = verdict("pass", 100, allowed=0.081)
    quiet = verdict("pass", 100, allowed=0.05)
    unjudged = verdict("not judged", 100, threshold=None, allowed=None)
    cases = [("b", noisy), ("c", quiet), ("d", unjudged), ("e", Verdict("missing"))]
    assert own_noise(cases[1:]) == ""
    assert own_noise(cases).endswith(": b 8.1%")
    many = [(f"n{number}", verdict("pass", 100, allowed=0.1 + number / 100)) for number in range(7)]
    assert own_noise(many).endswith(": n6 16.0%, n5 15.0%, n4 14.0%, n3 13.0%, n2 12.0% and 2 more")


@pytest.mark.parametrize(
    ("source", "times", "said"),
    [("single-batch calls", 4, True), ("single-batch calls", 1, False), ("rounds", 4, False)],
)
def test_the_notes_name_cases_whose_latency_is_mostly_call_overhead(
    source: str, times: float, said: bool
) -> None:
    one = benchmark("alpha")
    p50 = times * one.record.latency.p50_ms
    one = changed(one, {"record.latency.source": source, "record.latency.p50_ms": p50})
    lines = [row.cells[0] for row in summary(report_on([one]), RunResults(), 80)]
    assert any(line.startswith("alpha: p50") and "25%" in line for line in lines) is said


def test_the_notes_distinguish_cases_with_one_name() -> None:
    training = "bench_training/bench_cnn_torch.py::bench_train"
    first, second = benchmark("a"), benchmark("a", training)
    cases = {one.fullname: one for one in (first, second)}
    cases[first.fullname] = changed(first, {"record.rounds.shortened": 0.1})
    assert notes_of(cases)[-1].startswith("bench_cnn_torch[a]: a round has 10% of")
    half = {"record.rounds.shortened": 0.5}
    cases[second.fullname] = changed(second, half)
    assert re.match("2 cases: .* 10% to 50% ", notes_of(cases)[-1])
    cases[second.fullname] = changed(second, {**half, "record.implausible": True})
    found = [line for line in notes_of(cases) if "implausible" in line]
    assert [line.split(":")[0] for line in found] == ["bench_train[a]"]


def test_the_notes_name_imprecise_and_disturbed_cases_and_input_limits() -> None:
    cases = {}
    for number in range(8):
        limit = "loader" if number < 3 else "model"
        lost = Contention(enough=False, lost=[0.05 * number**2], limit=0.02)
        cases[f"c{number}"] = changed(
            benchmark(f"c{number}"),
            {
                "record.rounds.stopped_by": "budget",
                "record.throughput.spread": 0.05 + 0.01 * (number == 0),
                "record.effective": {"instances": {"asked": 4, "ran": 4 - (number == 0)}},
                "record.input": InputRates("images/s", 90.0, 80.0, limit),
                "record.contention": lost if number in (1, 2) else Contention(),
            },
        )
    kept = {"record.compile": "cached", "record.compile_saved_seconds": 3.5}
    cases["c0"] = changed(cases["c0"], kept)
    alone = "loader 90.00, model 80.00 images/s alone: the"
    starts = [
        "c0: 3 of 4 instances ran",
        *(f"c{n}: {alone} {'loader' if n < 3 else 'model'} limits" for n in range(6)),
        "2 more read from disk; of all 8 the loader limits 3, the model 5",
        "1 compiled model was kept from earlier: 3.5 s saved",
        "c0: ±6.0% after 25 rounds is not precise; ",
        "2 cases: disturbed, other programs took 5% to 20% of a CPU",
    ]
    found = notes_of(cases)[-len(starts) :]
    assert [line[: len(start)] for line, start in zip(found, starts)] == starts


def test_diverged_training_names_its_learning_rate_option() -> None:
    cases = {}
    for name, option, loss in (
        ("classifier", "abs_learning_rate", None),
        ("application", "lr_schedule_params", None),
        ("fine", "abs_learning_rate", 2.5),
    ):
        facts = {"record.config": {option: "as given"}, "record.counters": {"loss": loss}}
        cases[name] = changed(benchmark(name), facts)
    found = [line for line in notes_of(cases) if "training diverged" in line]
    options = [re.findall(r"--set=(\w+)=", line) for line in found]
    assert options == [["abs_learning_rate"], ["lr_schedule_params"]]
    assert [line.split(":")[0] for line in found] == ["classifier", "application"]


def test_the_table_shows_how_a_case_ended_as_the_report_does() -> None:
    wrong, right = benchmark("wrong"), benchmark("right")
    report = reported([right, wrong], outcomes={wrong.fullname: "failed"})
    rows = [row for row in table_rows(report.rows()) if len(row.cells) > 1]
    at = HEADINGS.index("verdict")
    assert [(row.cells[0].strip(), row.cells[at]) for row in rows] == [
        ("wrong", "failed"),
        ("right", "-"),
    ]
    lines = markdown(report).splitlines()
    assert any("right" in line and line.endswith("|  |") for line in lines)
