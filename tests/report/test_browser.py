"""report.html in a real browser: charts, filters, a phone, paper, the dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.baseline.run_facts import KINDS
from ipubench.plugins.record.record import record_of, with_processes
from ipubench.plugins.report.page import page
from tests.support.browser import Browser, BrowserError, chromium
from tests.support.reports import benchmark, document, large_report, verdict

pytest.importorskip("plotly", reason="pip install plotly")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="apt-get install chromium"),
]

NASTY = '<img src=x onerror="document.title=1">'
VISIBLE_ROWS = "Array.from(document.querySelectorAll('#table tbody tr')).filter(r => !r.hidden)"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    report = large_report()
    cases = report.document["benchmarks"]
    rate = cases[0]["extra_info"]["ipubench"]["throughput"]["median"]
    fresh = [benchmark("a", rate=rate * (1 + seed / 100), seed=seed) for seed in range(3)]
    cases[0] = with_processes(cases[0], fresh)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(report), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of 15 cases, for what has every chart drawn again and again."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(large_report(["resnet50"], [1, 16])), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Iterator[Browser]:
    """The browser; what a page complains of fails the test."""
    opened.complaints.clear()
    yield opened
    assert opened.complaints == []


def names(browser: Browser) -> List[str]:
    found: Any = browser.evaluate(f"{VISIBLE_ROWS}.map(r => r.querySelector('a, td').innerText)")
    return [str(name).splitlines()[0] for name in found]


def marks(browser: Browser, where: str) -> int:
    return int(browser.evaluate(f"document.querySelectorAll('{where}').length"))


def go_to(browser: Browser, fragment: str) -> None:
    """Give the page another address, which it takes over as the one that it was opened with."""
    other = "addEventListener('hashchange', () => done(0), {once: true}); location.hash = "
    browser.evaluate(f"new Promise(done => {{ {other}'{fragment}' }})")


def light(browser: Browser, expression: str) -> float:
    colour = browser.evaluate(f"getComputedStyle({expression}")
    return sum(int(part) for part in str(colour).strip("rgb()").split(",")[:3]) / 3


def test_charts_are_drawn_and_described_and_a_column_sorts_and_a_link_chooses_a_case(
    browser: Browser, url: str
) -> None:
    """The latter with the keyboard; the page is that of all cases."""
    browser.open(url)
    assert marks(browser, "#change .points path.point") == 30
    assert marks(browser, "#change .errorbars path.xerror") == 30
    assert marks(browser, "#batch .lines path.js-line") == 9
    assert marks(browser, "#latency .points path.point") == 90
    assert marks(browser, "#share .points .point") == 30
    assert marks(browser, "#roofline .points path.point") == 60
    assert marks(browser, "#roofline .lines path.js-line") == 1
    assert marks(browser, "#compile .points .point") == 60
    assert marks(browser, "#rounds .lines path.js-line") == 2
    drawn = "document.querySelector('#{} .plot').data"
    # The cases that changed most, the slowest first; the gate allows 5% more time.
    changes: Any = browser.evaluate("report.data.rows.map(row => row.change)")
    points: Any = browser.evaluate(
        "document.querySelector('#change .plot').data.flatMap(t => t.x.map((x, i) =>"
        " [t.y[i], x, t.error_x.array[i], t.error_x.arrayminus[i]]))"
    )
    shown = [change for _, change, _, _ in sorted(points, reverse=True)]
    assert shown == sorted(shown)
    known = [change for change in changes if change is not None]
    assert set(shown) == set(sorted(known, key=abs)[-30:])
    assert {(round(high, 9), round(low, 9)) for _, _, high, low in points} == {(0.015, 0.012)}
    told: Any = browser.evaluate(f"{drawn.format('change')}.flatMap(trace => trace.text)")
    change = r"[-+]\d+\.\d% \([-+]\d+\.\d% to [-+]\d+\.\d%\)"
    assert all(re.search(f"<br>{change}, ", text) for text in told)
    symbols = browser.evaluate(f"{drawn.format('change')}.map(t => [t.name, t.marker.symbol])")
    assert dict(symbols) == {
        "regressed": "triangle-left",
        "inconclusive": "diamond",
        "pass": "circle",
        "improved": "triangle-right",
    }
    gate = browser.evaluate("document.querySelector('#change .plot').layout.shapes[1].x0")
    assert gate == pytest.approx(-0.05 / 1.05)
    # A roof rises with the bytes of the copy, and is flat from where the products are the limit.
    roof: Any = browser.evaluate(f"{drawn.format('roofline')}[0]")
    assert roof["y"] == [min(2.1e12, 3e10 * x) for x in roof["x"]]
    assert roof["y"][0] < roof["y"][1] == roof["y"][2]
    assert roof["name"] == "2.1 TFLOP/s, 30 GB/s"
    cases: Any = browser.evaluate(f"{drawn.format('roofline')}[1]")
    assert 50 in cases["x"]  # 1e12 / 200 FLOP over 1e8 bytes: resnet50 of one image
    sizes: Any = browser.evaluate(f"{drawn.format('batch')}.map(trace => trace.x)")
    assert sizes == [[1, 2, 4, 8, 16]] * 9
    dashes: Any = browser.evaluate(f"{drawn.format('batch')}.map(trace => trace.line.dash)")
    assert dashes == ["solid"] * 8 + ["dot"]  # there are eight colours
    ends = f"{drawn.format('batch')}.flatMap(t => [...t.error_y.array, ...t.error_y.arrayminus])"
    assert min(browser.evaluate(ends)) > 0
    shares: Any = browser.evaluate(f"{drawn.format('share')}[0].x")
    assert shares == sorted(shares, reverse=True)
    build, compiled = browser.evaluate(f"{drawn.format('compile')}.map(trace => trace.x)")
    totals = list(map(sum, zip(build, compiled)))
    assert totals == sorted(totals, reverse=True) and min(build) >= 0.5
    latencies: Any = browser.evaluate(drawn.format("latency"))
    assert latencies[0]["x"][:2] == [latencies[1]["x"][0], latencies[3]["x"][0]]  # p50 to p99
    assert light(browser, "document.body).backgroundColor") > 240
    assert light(browser, "document.querySelector('#latency .xtick text')).fill") < 60
    assert browser.evaluate(
        "Array.from(document.querySelectorAll('input, select')).every(e => e.labels.length === 1)"
    )
    assert browser.evaluate(
        "Array.from(document.querySelectorAll('.js-plotly-plot')).every(e => e.ariaLabel)"
    )
    levels = "Array.from(document.querySelectorAll('h1, h2, h3'), e => e.tagName)"
    assert browser.evaluate(levels)[:2] == ["H1", "H2"]
    assert browser.evaluate("document.documentElement.lang") == "en"
    browser.evaluate("document.querySelector('#latency button').click()")
    assert marks(browser, "#latency .points path.point") == 180
    more = "document.querySelector('#latency button').innerText"
    assert browser.evaluate(more) == "Show 30 cases"
    values = f"{VISIBLE_ROWS}.map(r => r.cells[1].dataset.value)"
    click = "document.querySelector('th[data-key=throughput] button').click()"
    for sign, word in ((1, "ascending"), (-1, "descending")):
        browser.evaluate(click)
        found = browser.evaluate(values)
        numbers = [sign * float(value) for value in found[:60]]
        assert numbers == sorted(numbers)
        assert found[60:] == ["", ""]  # what is empty comes last
        head = "document.querySelector('th[data-key=throughput]').ariaSort"
        assert browser.evaluate(head) == word
    browser.evaluate(click.replace("throughput", "name"))
    in_order = "values.every((v, i) => i === 0 || values[i - 1].localeCompare(v) <= 0)"
    found = f"{VISIBLE_ROWS}.map(r => r.cells[0].dataset.value)"
    assert browser.evaluate(f"(values => {in_order})({found})")
    assert browser.evaluate(head) is None
    browser.evaluate(click.replace("throughput", "kind"))
    kinds: Any = browser.evaluate(f"{VISIBLE_ROWS}.map(r => r.cells[2].innerText.split('\\n')[0])")
    assert list(dict.fromkeys(kinds)) == [kind for kind in KINDS if kind in kinds]
    # What has the focus is not under the headings, which stay where they are.
    under = (
        "(() => { const link = document.querySelectorAll('td.name a')[20];"
        " const scroll = document.querySelector('.scroll');"
        " const top = element => element.getBoundingClientRect().top;"
        " scroll.scrollTop += top(link) - top(scroll) - 2; link.focus();"
        " const headings = document.querySelector('#table th').getBoundingClientRect();"
        " return top(link) < headings.bottom; })()"
    )
    assert browser.evaluate(under) is False
    browser.evaluate(
        "Array.from(document.querySelectorAll('td.name a'))"
        ".find(a => a.textContent === 'resnet50-bs1-synthetic').focus()"
    )
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", code="Enter",
                     windowsVirtualKeyCode=13)  # fmt: skip
    chosen = browser.evaluate("document.getElementById('chosen').value")
    assert chosen.endswith("[resnet50-bs1-synthetic]")
    assert browser.evaluate("document.activeElement.id") == "chosen"
    cells: Any = browser.evaluate(
        "Array.from(document.querySelectorAll('#processes tbody tr'), row =>"
        " [0, 2, 6].map(column => row.cells[column].innerText))"
    )
    assert [name for name, _, _ in cells] == ["1, this run", *(f"{n}, fresh" for n in (2, 3, 4))]
    assert cells[3][1].startswith("+") and float(cells[3][1].rstrip("%")) > 0  # 2% faster
    assert cells[0][1:] == ["", "1,024"]
    assert marks(browser, "#rounds .lines path.js-line") == 8
    called = browser.evaluate("document.getElementById('rounds').data.map(trace => trace.name)")
    assert called[::2] == ["this run", "process 2", "process 3", "process 4"]


def test_rounds_stand_beside_the_baselines_and_disturbed_ones_count_for_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    """Of many rounds all that count for nothing are counted."""
    before = with_processes(benchmark("a", rate=120, seed=5), [benchmark("a", rate=118, seed=6)])
    before["extra_info"]["ipubench"]["processes"][1].update(clean=False, latency_p99_ms=2.5)
    now = benchmark("a", rate=100)
    record = now["extra_info"]["ipubench"]
    record["latency"]["p99_ms"] = 0.00002345
    kept = [number not in (3, 4) for number in range(25)]
    lost = [0.0 if one else 0.5 for one in kept]
    record["contention"] = {"limit": 0.02, "lost": lost, "kept": kept, "enough": True}
    many = benchmark("b", rounds=1000)
    some = [number % 5 > 1 for number in range(1000)]
    share = [0.0 if one else 0.5 for one in some]
    contention = {"limit": 0.02, "lost": share, "kept": some, "enough": True}
    many["extra_info"]["ipubench"]["contention"] = contention
    free = benchmark("ca")
    one = [number != 3 for number in range(25)]
    free["extra_info"]["ipubench"]["contention"] = {**contention, "lost": lost, "kept": one}
    cases = document([now, many, free])
    verdicts = {
        now["fullname"]: verdict("regressed", 100, -0.16),
        many["fullname"]: {**verdict("pass", 100, 0.01), "threshold": 0.1},
        free["fullname"]: {**verdict("not judged", 100, 0.01), "threshold": None},
    }
    report = Report(cases, verdicts)
    report.keep_compared(lambda one: before if one is now else None)
    path = tmp_path / "report.html"
    path.write_text(page(report), encoding="utf-8")
    browser.open(path.as_uri())
    assert marks(browser, "#rounds .lines path.js-line") == 2 + 2  # rounds and canaries; before
    assert marks(browser, "#rounds .points path.point") == 23 + 23 + 2 + 25 + 25
    said = "2 of 25 rounds of this run count for nothing: other programs took a part of them."
    assert browser.evaluate("document.getElementById('rounds-note').textContent") == said
    # Both are where they were in the run.
    counted: Any = browser.evaluate(
        "document.getElementById('rounds').data.slice(-2).map(trace => trace.x)"
    )
    assert counted == [[number for number in range(1, 26) if number not in (4, 5)]] * 2
    lines = "Array.from(document.querySelectorAll('#processes tbody tr'))"
    names = browser.evaluate(f"{lines}.map(r => r.cells[0].innerText)")
    assert names == ["1, this run", "1, baseline", "2, baseline, disturbed"]
    # Of nanoseconds too there are four digits, and of a round number.
    times = browser.evaluate(f"{lines}.map(r => r.cells[4].innerText)")
    assert [times[0], times[2]] == ["0.00002345", "2.500"]
    assert browser.evaluate(f"{lines}.map(r => r.cells[2].innerText)") == ["", "", ""]
    legend = "document.getElementById('rounds').data.slice(0, 2).map(trace => trace.showlegend)"
    assert sorted(browser.evaluate(legend)) == [False, True]  # one name for the baseline
    choose_case = (
        "(() => {{ const chosen = document.getElementById('chosen'); chosen.selectedIndex = {};"
        " chosen.dispatchEvent(new Event('change')); }})()"
    )
    browser.evaluate(choose_case.format(2))
    note = browser.evaluate("document.getElementById('rounds-note').textContent")
    assert (
        note == "1 of 25 rounds of this run counts for nothing: other programs took a part of it."
    )
    browser.evaluate(choose_case.format(1))
    assert "case=" in browser.evaluate("location.hash")
    note = browser.evaluate("document.getElementById('rounds-note').textContent")
    assert note.startswith("400 of 1000 rounds of this run count for nothing: ")
    assert note.endswith(" One of 2 rounds is shown; baseline.json has them all.")
    assert marks(browser, "#rounds .points path.point") == 200 + 300 + 300  # every second one
    # The page says what the dashed line is where there is one: not of two gates, nor of none.
    for kind, hidden in (("", True), ("regressed", False), ("not judged", True)):
        choose(browser, kind)
        assert browser.evaluate("document.getElementById('gated').hidden") is hidden
    go_to(browser, "#q=a")  # a case with a gate, and one without
    assert browser.evaluate("document.getElementById('gated').hidden") is False


def test_what_is_not_compared_has_no_baseline_beside_it() -> None:
    now, other = benchmark("a"), benchmark("a", rate=50)
    report = Report(document([now]), verdicts={now["fullname"]: {"kind": "incomparable"}})
    report.keep_compared(lambda one: other)
    assert report.before == {}


def test_the_filter_is_in_the_address(browser: Browser, small: str) -> None:
    browser.open(f"{small}#q=resnet50+bs16&data=real")
    assert names(browser) == ["resnet50-bs16-real"]
    assert browser.evaluate("document.getElementById('shown').textContent") == "1 of 17 cases"
    assert browser.evaluate("document.getElementById('q').value") == "resnet50 bs16"
    assert marks(browser, "#latency .points path.point") == 3
    assert browser.evaluate("document.querySelector('#latency button').hidden")
    said = browser.evaluate("document.querySelector('#latency .plot').ariaLabel")
    assert said == "Latency of 1 case; the table has the numbers"
    go_to(browser, "#q=Bench_Dense")
    assert len(names(browser)) == 6
    # Neither the link to the cases nor the key Enter changes what is shown.
    go_to(browser, "#cases")
    browser.evaluate("document.getElementById('controls').requestSubmit()")
    assert len(names(browser)) == 6


def choose(browser: Browser, kind: str) -> None:
    browser.evaluate(
        f"document.querySelector('select[name=kind]').value = '{kind}';"
        "document.querySelector('select[name=kind]').dispatchEvent(new Event('change'))"
    )


def test_back_undoes_what_was_chosen_last_and_typing_filters(browser: Browser, small: str) -> None:
    browser.open(small)
    choose(browser, "improved")
    browser.evaluate("document.getElementById('q').focus()")
    for letter in "den":
        browser.call("Input.insertText", text=letter)
    browser.evaluate("document.querySelector('td.name a').click()")
    assert "case=" in browser.evaluate("location.hash")
    back = (
        "new Promise(done => {"
        "addEventListener('hashchange', () => done(location.hash), {once: true}); history.back()})"
    )
    assert browser.evaluate(back) == "#kind=improved&q=den"
    assert browser.evaluate(back) == "#kind=improved"
    assert browser.evaluate("document.getElementById('q').value") == ""
    assert len(names(browser)) == 2
    assert browser.evaluate(back) == ""
    assert len(names(browser)) == 17
    # As on a page that was opened a moment ago.
    browser.evaluate("document.getElementById('q').focus()")
    browser.call("Input.insertText", text="dense-wide-bs32")
    assert names(browser) == ["dense-wide-bs32"]
    assert browser.evaluate("location.hash") == "#q=dense-wide-bs32"
    browser.evaluate(
        "(() => { const q = document.getElementById('q'); q.value = '';"
        " q.dispatchEvent(new Event('input')); })()"
    )
    choose(browser, "improved")
    assert len(names(browser)) == 2
    assert browser.evaluate("location.hash") == "#kind=improved"


def test_a_browser_that_cannot_unpack_the_charts_has_the_table(
    browser: Browser, small: str
) -> None:
    old = "delete window.DecompressionStream"
    added = browser.call("Page.addScriptToEvaluateOnNewDocument", source=old)
    try:
        browser.open(f"{small}#q=resnet50+bs16&data=real")
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", **added)
    assert names(browser) == ["resnet50-bs16-real"]
    assert not browser.evaluate("document.getElementById('no-charts').hidden")


def test_a_phone_in_the_dark_has_light_ink_and_no_horizontal_scroll_and_paper_has_all_cases(
    browser: Browser, small: str
) -> None:
    """Paper has the charts too, in dark ink, and no controls."""
    browser.open(small, 375, 812, dark=True)
    assert browser.evaluate("document.documentElement.scrollWidth") == 375
    wide = (
        "Array.from(document.querySelectorAll('h1, h2, p, li, .plot, svg, label, dd'))"
        ".filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > 375).length"
    )
    assert browser.evaluate(wide) == 0
    for key in ("name", "throughput", "kind"):
        head = f"document.querySelector('#table th[data-key={key}]').getBoundingClientRect()"
        assert browser.evaluate(f"{head}.right") < 375, key
    assert light(browser, "document.body).backgroundColor") < 40
    assert light(browser, "document.querySelector('#latency .xtick text')).fill") > 200
    assert browser.pdf().startswith(b"%PDF")
    browser.resize(680, 1000)
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 680
    shown = "getComputedStyle(document.querySelector('{}')).display"
    assert browser.evaluate(shown.format("#controls")) == "none"
    # The rounds on paper are those of a case that has a name.
    assert browser.evaluate("document.getElementById('chosen').offsetHeight") > 0
    height = "document.querySelector('.scroll')"
    assert browser.evaluate(f"{height}.scrollHeight <= {height}.clientHeight") is True
    ink = "getComputedStyle(document.querySelector('#latency .xtick text')).fill"
    assert browser.evaluate(ink) == "rgb(22, 25, 31)"
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    # On the screen again it is dark, and wide until it is a phone's.
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="", features=[dark])
    drawn_again = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    label = "document.querySelector('#latency .plot').layout.yaxis.ticktext.includes('{}')"
    browser.evaluate(drawn_again)
    assert light(browser, "document.querySelector('#latency .xtick text')).fill") > 200
    assert browser.evaluate(label.format("dense-wide-wide-wide-bs32"))
    browser.resize(375, 812)
    browser.evaluate(drawn_again)
    assert browser.evaluate(label.format("dense-wide-<br>wide-wide-bs32"))
    # Paper is as wide as ever.
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate(label.format("dense-wide-wide-wide-bs32"))
    width = "document.querySelector('#latency .main-svg').getBoundingClientRect().width"
    assert browser.evaluate(width) == 660


def test_a_nasty_name_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    cases = [benchmark(f"{NASTY}-bs{size}", batch_size=size) for size in (1, 2)]
    for case in cases:
        case["extra_info"]["ipubench"]["throughput"]["unit"] = NASTY
    verdicts = {
        case["fullname"]: {**verdict("regressed", 100, -0.1), "reasons": [NASTY]} for case in cases
    }
    path = tmp_path / "nasty.html"
    path.write_text(page(Report(document(cases), verdicts, baseline=NASTY)), encoding="utf-8")
    browser.open(path.as_uri())
    assert str(browser.evaluate("document.title")).startswith("ipubench")
    assert marks(browser, "img") == 0
    assert marks(browser, "#batch .lines path.js-line") == 1


def test_the_table_works_where_a_chart_cannot_be_drawn(browser: Browser, tmp_path: Path) -> None:
    whole = page(Report(document([benchmark("one"), benchmark("two")])))
    broken = whole.replace("function drawCharts() {", "function drawCharts() { no.such = thing;")
    assert broken != whole
    path = tmp_path / "broken.html"
    path.write_text(broken, encoding="utf-8")
    browser.open(f"{path.as_uri()}#q=two")
    assert names(browser) == ["two"]
    assert ["no is not defined" in complaint for complaint in browser.complaints] == [True]
    browser.complaints.clear()


def test_a_page_that_is_never_ready_is_an_error_and_not_a_hang(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.browser.MOST_SECONDS", 1.0)
    path = tmp_path / "plain.html"
    path.write_text("<title>not ours</title>")
    with pytest.raises(BrowserError, match="plain.html is not ready"):
        browser.open(path.as_uri())
    with pytest.raises(BrowserError, match="no answer to Runtime.evaluate within 1 s"):
        browser.evaluate("new Promise(() => {})")


def test_panels_stand_side_by_side_and_the_load_is_drawn_and_names_are_told_apart(
    browser: Browser, tmp_path: Path
) -> None:
    """An impossible share is marked."""
    cases = [
        benchmark(
            f"panel-bs{size}",
            f"bench_{mode}/bench_{name}.py::bench_{name}",
            batch_size=size,
            mode=mode,
            rate=80.0 + size,
        )
        for name, mode in (("a", "inference"), ("b", "inference"), ("b", "training"))
        for size in (1, 16)
    ]
    cases += [
        benchmark(
            f"panel-with-a-long-{kind}-name-that-is-cut-in-its-middle-bs{size}",
            "bench_inference/bench_a.py::bench_a",
            batch_size=size,
            rate=80.0,
        )
        for kind in ("8k", "16k", "32k")
        for size in (1, 16)
    ]
    cases += [
        benchmark(
            f"panel-{unit[0]}-bs{size}", function, batch_size=size, rate=80.0 + size, unit=unit
        )
        for function, unit in (
            ("bench_inference/bench_c.py::bench_c", "images/s"),
            ("bench_kernels/bench_c.py::bench_c", "images/s"),
            ("bench_kernels/bench_d.py::bench_d", "images/s"),
            ("bench_kernels/bench_d.py::bench_d", "tokens/s"),
        )
        for size in (1, 16)
    ]
    served = benchmark("served")
    served["extra_info"]["ipubench"]["finish"] = {
        "load": {
            "target_qps": 30.0,
            "latency_ms": {"p50": 40.0, "p99": 90.0},
            "valid": True,
            "searched": [
                {"target_qps": 10.0, "p50_ms": 30.0, "p99_ms": 50.0, "held": True},
                {"target_qps": 60.0, "p50_ms": 80.0, "p99_ms": 4000.0, "held": False},
                {"target_qps": "damaged"},
            ],
        }
    }
    same = [
        benchmark("net", f"bench_inference/bench_{name}.py::bench_{name}", flops=flops)
        for name, flops in (("a", 1e10), ("b", 2.3e10))
    ]
    path = tmp_path / "panels.html"
    reused = benchmark("a", compile="reused")
    record_of(reused)["compute"] = {}
    own = {"target_qps": 20.0, "latency_ms": {"p50": 40.0, "p99": 80.0}, "valid": True}
    record_of(reused)["finish"] = {"load": own}
    cases = [*cases, served, reused, *same]
    whole = page(Report(document(cases)))
    path.write_text(whole.replace("MOST_SERIES = 12", "MOST_SERIES = 3"), encoding="utf-8")
    browser.open(path.as_uri(), 1280, 900)
    titles: Any = browser.evaluate(
        "Array.from(document.querySelectorAll('#batch h3'), e => e.innerText)"
    )
    # Rates of training are not joined with those of inference, nor those of two files or units.
    assert titles == [
        "bench_a, inference",
        "bench_b, inference",
        "bench_b, training",
        "bench_inference/bench_c.py::bench_c, inference",
        "bench_kernels/bench_c.py::bench_c, inference",
        "bench_d, inference",
        "bench_d, inference",
    ]
    wider = (
        "Array.from(document.querySelectorAll('#batch .plot')).filter(plot => "
        "plot.querySelector('svg').getBoundingClientRect().width > plot.clientWidth + 1).length"
    )
    assert browser.evaluate(wider) == 0
    # Rates between 80 and 100 are all within one power of ten.
    ticks: Any = browser.evaluate(
        "Array.from(document.querySelectorAll('#batch .plot'), "
        "plot => plot.querySelectorAll('.ytick').length)"
    )
    assert min(ticks) >= 3
    assert marks(browser, "#load .points path.point") == 3 + 1
    drawn: Any = browser.evaluate("document.querySelector('#load .plot').data[0]")
    assert drawn["x"] == [10, 30, 60]
    assert drawn["y"] == [50, 90, 4000]
    assert drawn["marker"]["symbol"] == ["circle", "circle", "x"]
    labels = "Array.from(document.querySelectorAll('#latency .ytick text'), e => e.textContent)"
    found: Any = browser.evaluate(labels)
    others = [name for name in sorted(found) if "panel" not in name]
    assert others == ["a", "bench_a[net]", "bench_b[net]", "served"]
    text: Any = browser.evaluate("document.getElementById('table').innerText")
    assert text.count("above the peak seen") == 1
    notes: Any = browser.evaluate(
        "['batch', 'roofline', 'compile']"
        ".map(id => document.querySelector(`#${id} .note`).innerText)"
    )
    assert notes == [
        "1 more line: filter the table to see it.",
        "1 case counts no FLOP or no weights.",
        "1 case ran a network that was compiled before.",
    ]
    browser.open(path.as_uri(), 375, 812)
    # What is cut stays different, in a legend and beside lines.
    series: Any = browser.evaluate("document.querySelector('#batch .plot').data.map(t => t.name)")
    lines: Any = browser.evaluate(
        "document.querySelector('#latency .plot').layout.yaxis.ticktext.slice(0, 10)"
    )
    for texts in (series, lines):
        assert len(set(texts)) == len(texts)
    assert any("…" in name for name in series)
    # The figures at the ends of bars are whole.
    beyond = (
        "Array.from(document.querySelectorAll('#share .bars text'), e => e.getBoundingClientRect()"
        ".right - document.querySelector('#share .plot').getBoundingClientRect().right)"
    )
    ends: Any = browser.evaluate(beyond)
    assert ends and max(ends) <= 0
    # Two powers of ten are too few.
    shown: Any = browser.evaluate("document.querySelector('#load .plot').layout.yaxis.tickvals")
    assert [tick for tick in shown if 50 <= tick <= 4000] == [50, 100, 200, 500, 1000, 2000]


def test_a_run_without_a_baseline_has_no_empty_charts(browser: Browser, tmp_path: Path) -> None:
    """Nor has one that compiled nothing, or took what was compiled before."""
    path = tmp_path / "plain.html"
    cases = [benchmark(how, compile=how, flops=8e8) for how in ("reused", "none")]
    record_of(cases[0])["compute"]["copy_peak_bytes_per_s"] = None
    for case, time in zip(cases, (3.0, 3.001)):
        record_of(case)["latency"].update(p50_ms=time, p90_ms=time, p99_ms=time)
    path.write_text(page(Report(document(cases))), encoding="utf-8")
    browser.open(path.as_uri())
    hidden = "Array.from(document.querySelectorAll('.chart'), e => e.hidden ? '' : e.id).join(' ')"
    assert str(browser.evaluate(hidden)).split() == ["latency", "share", "roofline"]
    # Values that hardly differ have different marks round them.
    axis = "document.querySelector('#latency .plot').layout.xaxis"
    texts: Any = browser.evaluate(f"{axis}.ticktext")
    assert len(set(texts)) == len(texts) >= 3 and float(texts[0]) < 3 < float(texts[-1])
    # One copy is known, and both cases are left of the bend: 70 FLOP for a byte.
    roofs: Any = browser.evaluate(
        "document.querySelector('#roofline .plot').data.filter(t => t.mode === 'lines')"
    )
    assert [roof["x"] for roof in roofs] == [[4, 16, 16]]
    # No column of changes, and nothing to sort by where nothing was compiled.
    assert marks(browser, "th[data-key=change]") == 0
    column = (
        "Array.from(document.querySelectorAll('th'), e => e.dataset.key).indexOf('compile_seconds')"
    )
    rows = "Array.from(document.querySelectorAll('#table tbody tr'))"
    cells: Any = browser.evaluate(
        f"{rows}.map(row => [row.cells[{column}].dataset.value, row.cells[{column}].innerText])"
    )
    assert sorted(cells) == [["", ""], ["", "reused"]]
    for how, shown in (("reused", "reused"), ("none", "")):
        go_to(browser, f"#q={how}")
        browser.evaluate(f"{VISIBLE_ROWS}[0].querySelector('td.name a').click()")
        text = "document.querySelector('#processes td:nth-child(6)').innerText"
        assert browser.evaluate(text) == shown
        # One value alone has legible marks beside it.
        ticks: Any = browser.evaluate(f"{axis}.tickvals")
        assert [tick for tick in ticks if 1 <= tick <= 10] == [1, 2, 5, 10]
    assert browser.evaluate("document.getElementById('case').hidden") is False
    # One process alone needs no name, and options are as they are written.
    assert browser.evaluate("document.getElementById('rounds').layout.showlegend") is False
    options = "Array.from(document.querySelectorAll('#options dd'), e => e.textContent)"
    assert browser.evaluate(options) == ["none", "inference", "synthetic", "1"]


def test_no_name_leaves_charts_and_filters_dead(browser: Browser, tmp_path: Path) -> None:
    odd = ["a\rb", "a\x00b", "constructor", "__proto__", "a b&c=d#e", "\N{ROCKET}" * 60]
    cases = [benchmark(name) for name in (*odd, "other")]
    path = tmp_path / "report.html"
    path.write_bytes(page(Report(document(cases))).encode("utf-8"))  # as it is
    browser.open(f"{path.as_uri()}#case=constructor")
    assert marks(browser, "#latency .points path.point") == 3 * len(cases)
    labels = "document.querySelector('#latency .plot').layout.yaxis.ticktext"
    assert browser.evaluate(f"{labels}.every(label => label.isWellFormed())")
    for address, count in (
        ("#case=__proto__&q=other", 1),
        ("#case=nothing&kind=nothing", len(cases)),
    ):
        go_to(browser, address)
        assert len(names(browser)) == count
        kind = "document.querySelector('select[name=kind]').selectedIndex"
        assert browser.evaluate(kind) == 0  # it says: all
        assert marks(browser, "#latency .points path.point") == 3 * count
    chosen = set()
    for number in range(len(cases)):
        browser.evaluate(f"document.querySelectorAll('#table td.name a')[{number}].click()")
        assert marks(browser, "#rounds .lines path.js-line") == 2
        chosen.add(browser.evaluate("document.getElementById('chosen').value"))
    assert len(chosen) == len(cases)
    browser.evaluate(
        "(() => { const q = document.getElementById('q'); q.value = 'other';"
        " q.dispatchEvent(new Event('input')); })()"
    )
    assert names(browser) == ["other"]
