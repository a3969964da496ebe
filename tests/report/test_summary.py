"""The Markdown summary: its first line, its size limit, and escaping."""

from __future__ import annotations

import html
import re

from ipubench.plugins.report.markdown import LARGEST, markdown
from ipubench.plugins.results.rows import Report, exit_code
from ipubench.plugins.results.run_facts import RunFacts
from ipubench.plugins.web.templates import escape_markdown
from tests.support.reports import benchmark, nasty, report_on, reported, verdict
from tests.support.stored import changed


def test_the_summary_begins_with_the_outcome_of_the_run(report: Report) -> None:
    text = markdown(report)
    first, *rest = text.splitlines()
    assert first.startswith("**🔴 62 cases: 6 regressed, 1 failed")
    table = [line for line in rest if line.startswith("|")]
    assert "regressed" in table[2] and "<code>efficientnet-b0-bs" in table[2]
    assert re.search(r"\| -9\.\d% \(-1\d\.\d% to -\d\.\d%\) \|", table[2])
    assert text.count("<details>") == text.count("</details>") == 2
    assert "- torch: 2.13.0" in text
    assert re.search(r"^Geometric mean of \d+ cases: [-+]\d\.\d% \(.*\)$", text, re.MULTILINE)


def test_the_summary_of_one_uncompared_case() -> None:
    case = benchmark("a")
    text = markdown(reported([case], outcomes={case.fullname: "failed"}))
    assert "<details><summary>The case</summary>" in text
    assert re.search(r"\| 🔴 failed \| <code>a</code> \|  \| \d+(\.\d+)? images/s \|", text)
    assert "Change is" not in text and "started" not in text
    text = markdown(reported([], outcomes={"x.py::test_x[1]": "failed"}))
    assert html.unescape(text).count("<code>test_x[1]</code>") == 2


def test_a_run_interrupted_after_its_last_case_is_not_a_success() -> None:
    case = benchmark("a")
    name = case.fullname
    run = RunFacts(selected=[name], outcomes={name: "passed"}, exit_code=2)
    report = report_on([case], [run])
    assert exit_code(report, report.rows()) == 1
    line = markdown(report).splitlines()[0]
    assert line.startswith("**🔴 1 case: 1 measured; ") and "interrupted" in line


def test_the_summary_of_any_run_fits_a_comment() -> None:
    cases = [benchmark(f"case-{number}-" + 80 * "x", rounds=5) for number in range(1500)]
    verdicts = {case.fullname: verdict("incomparable", 100, reasons=[200 * "y"]) for case in cases}
    versions = {f"package-{number}": "1.0" for number in range(5000)}
    cases[0] = changed(cases[0], {"record.versions": versions})
    text = markdown(reported(cases, verdicts=verdicts))
    assert 30_000 < len(text.encode()) <= LARGEST
    shown = [text.count(f"\n| {mark}<code>case-") for mark in ("🟡 incomparable | ", "")]
    left = re.findall(r"(\d+) more are in results.csv and report.html", text)
    assert [int(count) for count in left] == [len(cases) - count for count in shown]
    assert text.count("<details>") == text.count("</details>")


def test_the_summary_shows_changes_despite_a_long_command_line_and_many_baselines() -> None:
    case = benchmark("a")
    report = reported(
        [case],
        {case.fullname: verdict("regressed", 100, -0.2)},
        command="pytest " + " ".join(f"bench_x.py::bench_x[case-{n:04d}]" for n in range(3000)),
        baseline=" | ".join(f"shards/{n:04d}/baselines/main.json" for n in range(3000)),
        gate=" | ".join(f"gate {n}.0%" for n in range(3000)),
    )
    text = markdown(report)
    assert len(text.encode()) <= 10_000
    assert text.count("<code>a</code>") == 2  # in the table of changes and in that of all cases
    assert "- command: <code>pytest bench" in text and "case-2999" in text
    assert "shards/0000" in text and "2999/baselines/main.json" in text
    assert "| <code>a</code> | 125.0 images/s | 100.0 images/s | -20.0% (" in text


def test_the_summary_names_the_function_of_cases_with_one_name() -> None:
    training = "bench_training/bench_cnn_torch.py::bench_cnn_torch"
    cases = [
        benchmark("a"),
        benchmark("b"),
        benchmark("b", "bench_inference/bench_cnn_tensorflow.py::bench_cnn_tensorflow"),
        benchmark("c"),
        benchmark("c", training),
    ]
    found = {case.fullname: verdict("regressed", 100, -0.2) for case in cases}
    text = html.unescape(markdown(reported(cases, found)))
    assert re.findall("regressed [|] <code>(.*?)</code>", text) == [
        "a",
        "bench_cnn_torch[b]",
        "bench_cnn_tensorflow[b]",
        cases[3].fullname,
        f"{training}[c]",
    ]
    assert text.count("<code>bench_cnn_torch[b]</code>") == 2


def test_markdown_of_a_nasty_name_is_inert() -> None:
    text = markdown(nasty())
    assert "<script" not in text and "@someone" not in text and "`" not in text
    rows = [line for line in text.splitlines() if line.startswith("| 🟡")]
    assert len(rows) == 1 and rows[0].count("|") == 7


def test_markdown_of_underscores_is_text() -> None:
    assert escape_markdown("aten::_foreach_add_") == "aten::&#95;foreach&#95;add&#95;"
    case = benchmark("_x_-bs1")
    assert "<code>&#95;x&#95;-bs1</code>" in markdown(report_on([case]))
