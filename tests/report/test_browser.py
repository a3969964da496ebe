"""report.html in a real browser: charts, filters, on a phone, on paper, in the dark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List

import pytest

from ipubench.plugins.record.record import with_processes
from ipubench.plugins.record.structs import Contention
from ipubench.plugins.report.page import page
from ipubench.plugins.results.rows import Report
from ipubench.plugins.results.run_facts import KINDS
from tests.support.browser import Tab, chromium
from tests.support.reports import benchmark, large_report, report_on, reported, verdict
from tests.support.stored import changed

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest.importorskip("jinja2", reason="pip install jinja2")
pytestmark = pytest.mark.slow

NASTY = '<img src=x onerror="document.title=1">'


def written(path: Path, report: Report) -> str:
    path.write_bytes(page(report).encode("utf-8"))
    return path.as_uri()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of 60 cases with every verdict; the first case has three fresh processes."""
    report = large_report()
    cases = list(report.benchmarks)
    rate = cases[0].record.throughput.median
    fresh = [benchmark("a", rate=rate * (1 + seed / 100), seed=seed) for seed in range(3)]
    cases[0] = with_processes(cases[0], fresh)
    report.benchmarks = cases
    return written(tmp_path_factory.mktemp("report") / "report.html", report)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of 17 cases."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    return written(path, large_report(["resnet50"], [1, 16]))


@pytest.fixture(scope="module")
def opened() -> Iterator[Tab]:
    with chromium() as browser:
        yield Tab(browser)


@pytest.fixture
def tab(opened: Tab) -> Iterator[Tab]:
    """A tab; an error of a page in it fails the test."""
    opened.complaints.clear()
    yield opened
    assert opened.complaints == []


def rows(shown: Page) -> Locator:
    return shown.locator("#table tbody tr:not([hidden])")


def names(shown: Page) -> List[str]:
    texts = rows(shown).locator("td.name").all_inner_texts()
    return [text.splitlines()[0] for text in texts]


def values(shown: Page, column: int) -> List[str]:
    cell = f"rows => rows.map(row => row.cells[{column}].dataset.value)"
    found: List[str] = rows(shown).evaluate_all(cell)
    return found


def data(shown: Page, chart: str, figure: str) -> Any:
    """Return one value of each trace of a chart, as a JavaScript expression of the trace ``t``."""
    traces = f"document.querySelector('{chart}').chart.traces.filter(t => t.line || t.marker)"
    return shown.evaluate(f"{traces}.map(t => {figure})")


def layout(shown: Page, chart: str, figure: str) -> Any:
    return shown.evaluate(f"document.querySelector('{chart}').chart.{figure}")


def go_to(shown: Page, fragment: str) -> None:
    """Change the page's address and wait until the page has read it."""
    change = "addEventListener('hashchange', () => done(0), {once: true}); location.hash = "
    shown.evaluate(f"new Promise(done => {{ {change}'{fragment}' }})")


def light(shown: Page, selector: str, colour: str) -> float:
    found = shown.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{colour}")
    return sum(int(part) for part in found.strip("rgb()").split(",")[:3]) / 3


def test_charts_show_the_values_of_the_cases(tab: Tab, url: str) -> None:
    shown = tab.open(url)
    for marks, count in {
        "#change .trace .point": 30,
        "#change .trace .interval": 30,
        "#batch .trace .line": 9,
        "#latency .trace .point": 90,
        "#roofline .trace .point": 60,
        "#rounds .trace .line": 2,
    }.items():
        assert shown.locator(marks).count() == count, marks
    # The cases that changed most, the slowest first; the gate allows 5% more time.
    changes = shown.evaluate("report.data.rows.map(row => row.change)")
    every = "t.x.map((x, i) => [t.y[i], x, t.x_high[i] - x, x - t.x_low[i]])"
    points = [point for trace in data(shown, "#change .plot", every) for point in trace]
    drawn = [change for _, change, _, _ in sorted(points, reverse=True)]
    known = [change for change in changes if change is not None]
    assert drawn == sorted(drawn) and set(drawn) == set(sorted(known, key=abs)[-30:])
    assert {(round(high, 9), round(low, 9)) for _, _, high, low in points} == {(0.015, 0.012)}
    assert layout(shown, "#change .plot", "marks[1].x") == pytest.approx(-0.05 / 1.05)
    assert dict(data(shown, "#change .plot", "[t.name, t.marker.symbol]")) == {
        "regressed": "left",
        "inconclusive": "diamond",
        "pass": "circle",
        "improved": "right",
    }
    # The roofline rises with the bytes of the copy until the matrix products limit it.
    roof, cases = data(shown, "#roofline .plot", "[t.x, t.y]")[:2]
    assert roof[1] == [min(2.1e12, 3e10 * x) for x in roof[0]]
    assert roof[1][0] < roof[1][1] == roof[1][2]
    assert 50 in cases[0]  # 1e12 / 200 FLOP over 1e8 bytes
    assert data(shown, "#batch .plot", "t.x") == [[1, 2, 4, 8, 16]] * 9
    assert data(shown, "#batch .plot", "t.line.dash") == [""] * 8 + ["2 4"]  # eight colours
    spans, p50, _, p99 = data(shown, "#latency .plot", "t.x")
    assert spans[:2] == [p50[0], p99[0]]
    shown.click("#latency button")
    assert shown.locator("#latency .trace .point").count() == 180


def test_the_page_is_described_for_screen_readers(tab: Tab, small: str) -> None:
    shown = tab.open(small)
    labelled = "every => every.every(e => e.labels.length === 1)"
    assert shown.locator("input, select").evaluate_all(labelled)
    assert shown.locator(".plot[role]").evaluate_all("all => all.every(e => e.ariaLabel)")
    assert shown.locator("h1, h2, h3").evaluate_all("all => all.map(e => e.tagName)")[:2] == [
        "H1",
        "H2",
    ]
    # A heading does not cover the focused link.
    covered = (
        "(() => { const link = document.querySelectorAll('td.name a')[9];"
        " const scroll = document.querySelector('.scroll');"
        " const top = element => element.getBoundingClientRect().top;"
        " scroll.scrollTop += top(link) - top(scroll) - 2; link.focus();"
        " const headings = document.querySelector('#table th').getBoundingClientRect();"
        " return top(link) < headings.bottom; })()"
    )
    assert shown.evaluate(covered) is False


def test_a_column_sorts(tab: Tab, url: str) -> None:
    shown = tab.open(url)
    for sign, word in ((1, "ascending"), (-1, "descending")):
        shown.click("th[data-key=throughput] button")
        assert shown.get_attribute("th[data-key=throughput]", "aria-sort") == word
        *found, one, other = values(shown, 3)
        numbers = [sign * float(value) for value in found]
        assert numbers == sorted(numbers) and one == other == ""  # empty cells come last
    shown.click("th[data-key=kind] button")
    kinds = [text.splitlines()[0] for text in rows(shown).locator(".kind").all_inner_texts()]
    assert list(dict.fromkeys(kinds)) == [kind for kind in KINDS if kind in kinds]
    assert shown.get_attribute("th[data-key=throughput]", "aria-sort") is None
    shown.click("th[data-key=name] button")
    in_order = "v => v.every((one, i) => i === 0 || v[i - 1].localeCompare(one) <= 0)"
    assert shown.evaluate(in_order, values(shown, 0))


def test_a_link_chooses_a_case_and_shows_its_processes(tab: Tab, url: str) -> None:
    shown = tab.open(url)
    shown.locator("td.name a", has_text="resnet50-bs1-synthetic").press("Enter")
    assert shown.input_value("#chosen").endswith("[resnet50-bs1-synthetic]")
    assert shown.evaluate("document.activeElement.id") == "chosen"
    lines = shown.locator("#processes tbody tr").all_inner_texts()
    cells = [line.split("\t") for line in lines]
    assert [cell[0] for cell in cells] == ["1, this run", *(f"{n}, fresh" for n in (2, 3, 4))]
    assert cells[3][2].startswith("+") and float(cells[3][2].rstrip("%")) > 0  # 2% faster
    assert (cells[0][2], cells[0][6]) == ("", "1,024")
    called = data(shown, "#rounds", "t.name")
    assert called[::2] == ["this run", "process 2", "process 3", "process 4"]


def test_rounds_are_shown_with_the_baselines_and_disturbed_ones_do_not_count(
    tab: Tab, tmp_path: Path
) -> None:
    def disturbed(kept: List[bool]) -> Contention:
        lost = [0.0 if one else 0.5 for one in kept]
        return Contention(limit=0.02, lost=lost, kept=kept, enough=True)

    before = with_processes(benchmark("a", rate=120, seed=5), [benchmark("a", rate=118, seed=6)])
    second = {"lost": 0.5, "clean": False, "latency_p99_ms": 2.5}
    before = changed(before, {f"record.processes.1.{name}": second[name] for name in second})
    few = disturbed([number not in (3, 4) for number in range(25)])
    now = changed(
        benchmark("a", rate=100),
        {"record.latency.p99_ms": 0.00002346, "record.contention": few},
    )
    most = disturbed([number % 5 > 1 for number in range(1000)])
    many = changed(benchmark("b", rounds=1000), {"record.contention": most})
    verdicts = {
        now.fullname: verdict("regressed", 100, -0.16),
        many.fullname: verdict("pass", 100, 0.01, threshold=0.1),
    }
    report = reported([now, many], verdicts)
    report.keep_compared(lambda one: before if one is now else None)
    shown = tab.open(written(tmp_path / "report.html", report))
    assert shown.locator("#rounds .trace .point").count() == 23 + 23 + 2 + 25 + 25
    assert shown.inner_text("#rounds-note").startswith("2 of 25 rounds")
    # Each round is drawn at its position in the run.
    counted = data(shown, "#rounds", "t.x")[-2:]
    assert counted == [[number for number in range(1, 26) if number not in (4, 5)]] * 2
    lines = [line.split("\t") for line in shown.locator("#processes tbody tr").all_inner_texts()]
    assert [line[0] for line in lines] == ["1, this run", "1, baseline", "2, baseline, disturbed"]
    assert [lines[0][3], lines[2][3]] == ["23.5 ns", "2.5 ms"]
    shown.select_option("#chosen", index=1)
    assert "case=" in shown.evaluate("location.hash")
    assert shown.inner_text("#rounds-note").startswith("400 of 1000 rounds")
    assert shown.locator("#rounds .trace .point").count() == 200 + 300 + 300  # every second
    # The dashed line is the gate of all visible cases, if they have one.
    for kind, gated in (("", False), ("regressed", True)):
        shown.select_option("select[name=kind]", kind)
        assert shown.is_visible("#gated") is gated


def test_the_filter_is_in_the_address(tab: Tab, small: str) -> None:
    shown = tab.open(f"{small}#q=resnet50+bs16&data=real")
    assert names(shown) == ["resnet50-bs16-real"]
    assert shown.inner_text("#shown") == "1 of 17 cases"
    assert shown.input_value("#q") == "resnet50 bs16"
    assert shown.locator("#latency .trace .point").count() == 3
    go_to(shown, "#q=Bench_Dense")
    assert len(names(shown)) == 6
    # Neither the link to the cases nor the Enter key changes what is visible.
    go_to(shown, "#cases")
    shown.press("#q", "Enter")
    assert len(names(shown)) == 6


def test_back_undoes_the_last_choice(tab: Tab, small: str) -> None:
    shown = tab.open(small)
    shown.select_option("select[name=kind]", "improved")
    shown.locator("#q").press_sequentially("den")
    shown.locator("td.name a:visible").first.click()
    assert "case=" in shown.evaluate("location.hash")
    for address, count in (("#kind=improved&q=den", None), ("#kind=improved", 2), ("", 17)):
        shown.go_back()
        shown.wait_for_url(f"{small}{address}")
        assert count in (None, len(names(shown)))
    shown.fill("#q", "dense-wide-bs32")
    assert names(shown) == ["dense-wide-bs32"]
    assert shown.evaluate("location.hash") == "#q=dense-wide-bs32"


def test_the_table_works_if_a_chart_cannot_be_drawn(tab: Tab, tmp_path: Path) -> None:
    whole = page(report_on([benchmark("one"), benchmark("two")]))
    path = tmp_path / "broken.html"
    path.write_text(whole.replace("function drawCharts() {", "function drawCharts() { no.x = 1;"))
    shown = tab.open(f"{path.as_uri()}#q=two")
    assert names(shown) == ["two"]
    assert ["no is not defined" in complaint for complaint in tab.complaints] == [True]
    tab.complaints.clear()


def test_a_phone_in_the_dark(tab: Tab, small: str) -> None:
    shown = tab.open(small, 375, 812, dark=True)
    assert shown.evaluate("document.documentElement.scrollWidth") == 375
    right = "every => Math.max(...every.map(e => e.getBoundingClientRect().right))"
    for outside in ("h1, h2, label, .counts li, .plot, .plot svg", "#overview dd"):
        assert shown.locator(outside).evaluate_all(right) <= 375
    # A case's figures are all there, its change before its throughput.
    assert shown.locator("#table tr:first-child td, #table th").evaluate_all(right) < 375
    first = shown.locator("#table tbody tr").first.inner_text()
    assert first.index("%") < first.index("/s")
    assert light(shown, "body", "backgroundColor") < 40
    assert light(shown, "#latency .xtick", "fill") > 200
    assert max(map(len, layout(shown, "#latency .plot", "y.labels"))) <= 30


def test_paper_has_all_cases_in_dark_ink_and_no_controls(tab: Tab, small: str) -> None:
    shown = tab.open(small, 680, 1000, dark=True)
    assert shown.pdf().startswith(b"%PDF")
    shown.emulate_media(media="print")
    shown.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert shown.evaluate("document.documentElement.scrollWidth") <= 680
    assert shown.is_hidden("#controls") and shown.is_visible("#chosen")
    scroll = "document.querySelector('.scroll')"
    assert shown.evaluate(f"{scroll}.scrollHeight <= {scroll}.clientHeight")
    assert light(shown, "#latency .xtick", "fill") < 60
    shown.evaluate("window.dispatchEvent(new Event('afterprint'))")
    shown.emulate_media(media="screen")


def test_a_nasty_name_runs_nothing(tab: Tab, tmp_path: Path) -> None:
    cases = [benchmark(f"{NASTY}-bs{size}", batch_size=size, unit=NASTY) for size in (1, 2)]
    found = verdict("regressed", 100, -0.1, reasons=[NASTY])
    report = reported(cases, {one.fullname: found for one in cases}, baseline=NASTY)
    shown = tab.open(written(tmp_path / "nasty.html", report))
    assert shown.title().startswith("ipubench")
    assert shown.locator("img").count() == 0
    assert shown.locator("#batch .trace .line").count() == 1


def test_functions_and_units_have_separate_panels(tab: Tab, tmp_path: Path) -> None:
    long = "panel-with-a-long-{}-name-that-is-cut-in-its-middle"
    curves = [
        *(("panel", function, mode, "images/s")
          for function, mode in (("a", "inference"), ("b", "inference"), ("b", "training"))),
        *((long.format(kind), "a", "inference", "images/s") for kind in ("8k", "16k", "32k")),
        ("panel", "d", "inference", "images/s"),
        ("panel", "d", "inference", "tokens/s"),
    ]  # fmt: skip
    cases = [
        benchmark(f"{name}-{unit[0]}-bs{size}", f"bench_{mode}/bench_{function}.py::{function}",
                  batch_size=size, mode=mode, unit=unit, rate=80.0 + size)
        for name, function, mode, unit in curves
        for size in (1, 16)
    ]  # fmt: skip
    whole = page(report_on(cases)).replace("MOST_SERIES = 12", "MOST_SERIES = 3")
    path = tmp_path / "panels.html"
    path.write_text(whole, encoding="utf-8")
    shown = tab.open(path.as_uri())
    assert shown.locator("#batch h3").all_inner_texts() == [
        *("a, inference", "b, inference", "b, training", "d, inference", "d, inference")
    ]
    assert shown.inner_text("#batch .note").startswith("1 more line")
    # Names that are cut still differ.
    series = data(shown, "#batch .plot", "t.name")
    assert len(set(series)) == len(series) and any("…" in name for name in series)


def test_the_latency_under_load_is_drawn(tab: Tab, tmp_path: Path) -> None:
    rates = [(60.0, 80.0, 4000.0, False), (10.0, 30.0, 50.0, True), (30.0, 40.0, 90.0, True)]
    served = [
        changed(
            benchmark(f"served-server-target_qps{rate:g}"),
            {
                "record.finish": {
                    "load": {
                        "target_qps": rate,
                        "latency_ms": {"p50": p50, "p99": p99},
                        "valid": held,
                    }
                }
            },
        )
        for rate, p50, p99, held in rates
    ]
    shown = tab.open(written(tmp_path / "load.html", report_on(served)))
    assert data(shown, "#load .plot", "[t.x, t.y, t.marker.symbol]") == [
        [[10, 30, 60], [50, 90, 4000], ["circle", "circle", "cross"]]
    ]


def test_a_run_without_a_baseline_has_no_empty_charts(tab: Tab, tmp_path: Path) -> None:
    cases = [benchmark(how, compile=how, flops=8e8) for how in ("reused", "none")]
    cases[0] = changed(cases[0], {"record.compute.copy_peak_bytes_per_s": None})
    cases = [
        changed(case, {f"record.latency.{p}_ms": time for p in ("p50", "p90", "p99")})
        for case, time in zip(cases, (3.0, 3.001))
    ]
    shown = tab.open(written(tmp_path / "plain.html", report_on(cases)))
    visible = shown.locator(".chart:visible").evaluate_all("all => all.map(e => e.id)")
    assert visible == ["latency", "roofline"]
    # Nearly equal values have different axis labels.
    texts = layout(shown, "#latency .plot", "x.labels")
    assert len(set(texts)) == len(texts) >= 3 and texts[0] < "3 ms" < texts[-1]
    assert shown.locator("th[data-key=change]").count() == 0
    assert values(shown, 5) == ["", ""]  # the time to compile
    assert layout(shown, "#rounds", "legend") is False
    options = shown.locator("#options dd").all_text_contents()
    assert options == ["reused", "inference", "synthetic", "1"]


def test_no_name_breaks_charts_and_filters(tab: Tab, tmp_path: Path) -> None:
    odd = ["a\rb", "a\x00b", "constructor", "__proto__", "a b&c=d#e", "\N{ROCKET}" * 60]
    cases = [benchmark(name) for name in (*odd, "other")]
    url = written(tmp_path / "report.html", report_on(cases))
    shown = tab.open(f"{url}#case=constructor")
    for address, count in (("#case=__proto__&q=other", 1), ("#kind=nothing", len(cases))):
        go_to(shown, address)
        assert len(names(shown)) == count
        assert shown.locator("#latency .trace .point").count() == 3 * count
    chosen = set()
    for number in range(len(cases)):
        shown.locator("#table td.name a").nth(number).click()
        assert shown.locator("#rounds .trace .line").count() == 2
        chosen.add(shown.input_value("#chosen"))
    assert len(chosen) == len(cases)


def test_a_report_of_one_case_has_no_choices_and_the_terminals_units(
    tab: Tab, tmp_path: Path
) -> None:
    case = benchmark("test_caesar", "test_text.py::test_caesar", rate=2.3e6, rounds=5)
    case = changed(case, {"record.compute": None, "record.latency.p50_ms": 0.00022})
    verdicts = {case.fullname: verdict("regressed", 2.3e6, -0.25)}
    shown = tab.open(written(tmp_path / "report.html", reported([case], verdicts)))
    assert shown.inner_text(".headline") == "test_caesar is 25% slower"
    assert shown.is_hidden("#controls") and shown.is_hidden("#chosen")
    keys = shown.locator("#table th").evaluate_all("all => all.map(e => e.dataset.key)")
    assert keys[:5] == ["name", "change", "before", "throughput", "kind"]
    assert "share" not in keys
    cells = rows(shown).locator("td").all_inner_texts()
    assert [cells[keys.index("before")], cells[keys.index("p50_ms")]] == ["3.067 M", "220 ns"]


def test_on_a_phone_options_are_whole_and_axes_have_labels(tab: Tab, small: str) -> None:
    shown = tab.open(small, width=380)
    words = shown.locator("#overview dd span")
    broken = "words => words.filter(word => word.getClientRects().length > 1).length"
    assert words.count() > 5 and words.evaluate_all(broken) == 0
    assert shown.locator("#change .xtick").count() >= 3
    zero = shown.evaluate("[plotting.duration(0), plotting.duration(-2), plotting.duration(0.002)]")
    assert zero == ["0", "-2 ms", "2 µs"]
