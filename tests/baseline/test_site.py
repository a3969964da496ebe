"""The history as web pages: content, escaping, and layout in a browser."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from ipubench.plugins.baseline import history
from ipubench.plugins.baseline import site as site_module
from ipubench.plugins.baseline.__main__ import main
from ipubench.plugins.baseline.site import anchor_of, file_of
from ipubench.plugins.baseline.store import save
from ipubench.plugins.baseline.trends import trends_of
from ipubench.plugins.record.structs import Accepted
from tests.support.baselines import A, Shell, document, entry
from tests.support.browser import Tab, chromium
from tests.support.harness import Project
from tests.support.stored import changed

# It runs the suite, although none of its tests uses a project fixture.
pytestmark = pytest.mark.suite

NASTY = "<img src=x onerror=alert(1)>"
REASON = "accepted because </td> & 'so'"


@pytest.fixture(scope="module", autouse=True)
def needs_the_report() -> None:
    """Skip without the report's packages. Importing them here delays only these tests."""
    for name in ("jinja2", "ruptures"):
        pytest.importorskip(name, reason=f"pip install {name}")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Twelve runs of three cases on two machines; one case became 10% slower on both.

    On the first machine it happened one run earlier.
    """
    project = Project(tmp_path_factory.mktemp("kept"))
    generator = random.Random(7)
    for machine, first in (("cpu/x", 6), (NASTY, 7)):
        for number in range(12):
            time = f"2026-02-{number + 1:02}T00:00:00Z"
            noisy = [math.exp(generator.gauss(0, 0.01)) for _ in range(3)]
            slower = 1.1 if number >= first else 1.0
            revision = f"{number:07x}abc" + ("-dirty" if number == 10 else "")
            where: Dict[str, Any] = {"machine": machine, "time": time, "git": revision}
            a = entry("a", slower=noisy[0] * slower, processes=3, **where)
            if number == first:
                accepted = [Accepted("an older one"), Accepted(REASON)]
                a = changed(a, {"record.accepted": accepted, "record.promoted": "main"})
            where["time"] = time.replace("T00:00", "T00:01")  # a run measures its cases in turn
            others = [entry(case, slower=noisy[1], **where) for case in ("b", NASTY)]
            folder = project.folder / history.FOLDER / history.slug(machine)
            save(folder / f"202602{number + 1:02}T000000Z-x.json", document(a, *others))
    return Shell(project)


@pytest.fixture(scope="module")
def site(kept: Shell) -> Path:
    outcome = kept.alone("site", "pages", "--commits=https://example.org/p/commit/{}")
    outcome.assert_code(0).line("6 trends written to ")
    return kept.folder / "pages"


@pytest.mark.entry_point
def test_the_front_page_lists_every_trend_and_what_changed(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert text.count("<tr data-row=") == 6
    assert text.count('<span class="moment">') == 2  # one case's change on two machines
    (change, _) = re.findall(r'<b class="kind slower">(.*?)</b>', text)
    assert -0.12 < float(change.rstrip("%")) / 100 < -0.06
    newest_first = re.findall(r'href="https://example.org/p/commit/(.*?)"', text)
    assert newest_first == ["0000007", "0000006"]
    assert text.count(">bench_x[a]</a>") == 2
    for fact, value in (("runs", "24"), ("newest run", "2026-02-12 00:01 UTC")):
        assert f"<dt>{fact}</dt><dd>{value}</dd>" in re.sub("</?span>", "", text)
    assert text.count(">0000006 2026-02-07 00:00</td>") == 1
    # The level shown is the last one.
    level = '>{}</a>.*?<td data-value="(.*?)"'
    now, whole = (re.findall(level.format(name), text, re.DOTALL)[-2:] for name in "ab")
    assert all(float(a) < 0.95 * float(b) for a, b in zip(now, whole))
    for name in re.findall(r'href="(case-[^"#]*)#', text):
        assert (site / name).is_file()


def test_a_case_page_has_its_runs_on_each_machine_and_their_verdicts(site: Path) -> None:
    text = (site / file_of(A)).read_text(encoding="utf-8")
    assert text.count('<section class="trend"') == 2
    assert text.count("<tr><td>2026-02-") == 24
    assert text.count("baseline main") == 2
    assert text.count('/commit/000000a">000000a-dirty</a>') == 2
    assert text.count("accepted: accepted because &lt;/td&gt; &amp; &#39;so&#39;") == 2


def test_times_that_repeat_have_seconds(shell: Shell) -> None:
    for number, time in enumerate(("2026-01-01T00:00:05Z", "2026-01-01T00:00:45Z")):
        path = shell.folder / history.FOLDER / "machine" / f"2026010{number + 1}T000000Z-x.json"
        save(path, document(entry("a", time=time)))
    save(
        path.with_name("20260103T000000Z-x.json"), document(entry("a", time="2026-01-02T00:00:00Z"))
    )
    shell("site", "pages").assert_code(0)
    text = (shell.folder / "pages" / file_of(A)).read_text(encoding="utf-8")
    found = re.findall("<tr><td>(2026[^<]*)", text)
    assert found == ["2026-01-02 00:00", "2026-01-01 00:00:45", "2026-01-01 00:00:05"]
    # One case on one machine has no filters.
    front = (shell.folder / "pages" / "index.html").read_text(encoding="utf-8")
    assert re.findall('<th scope="col" data-key="(.*?)"', front) == [
        "name",
        "level",
        "change",
        "runs",
    ]
    assert "about 6 are needed" in front and "about 6 are needed" in text
    assert "<select" not in front and '<a href="index.html#trends">' in text


def test_runs_in_another_unit_form_another_trend() -> None:
    runs = [entry(time=f"2026-01-0{day}T00:00:00Z") for day in (1, 2, 3)]
    runs[1] = changed(runs[1], {"record.throughput.unit": "batches/s"})
    found = trends_of(runs)
    assert [(one.unit, len(one.points)) for one in found] == [("batches/s", 1), ("items/s", 2)]
    assert len(set(map(anchor_of, found))) == 2


def test_cases_with_one_name_in_two_files_are_distinguished(shell: Shell) -> None:
    runs = [entry("a"), entry("a"), entry("b")]
    runs[1] = changed(runs[1], {"fullname": A.replace("bench_x.py", "other.py")})
    save(shell.folder / history.FOLDER / "machine" / "20260201T000000Z-x.json", document(*runs))
    shown = shell("history").assert_code(0)
    assert [line.split()[0] for line in shown.lines[2:5]] == [A, "bench_x[b]", runs[1].fullname]
    shell("site", "pages").assert_code(0)
    text = (shell.folder / "pages" / "index.html").read_text(encoding="utf-8")
    found = re.findall("<small>([^<]*) · configuration", text)
    assert found == ["bench_x.py::bench_x", "bench_x", "other.py::bench_x"]
    page = (shell.folder / "pages" / file_of(runs[1].fullname)).read_text(encoding="utf-8")
    assert "<p>other.py::bench_x</p>" in page


def test_names_are_escaped(site: Path) -> None:
    for path in site.glob("*.html"):
        assert "<img" not in path.read_text(encoding="utf-8")


def test_without_the_charting_library_the_message_names_the_extra(
    kept: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site_module, "is_installed", lambda: False)
    folder = str(kept.folder / history.FOLDER)
    assert main(["site", str(kept.folder / "none"), f"--folder={folder}"]) == 4
    assert "pip install jinja2" in capsys.readouterr().err
    assert not (kept.folder / "none").exists()


def test_without_commit_links_a_page_names_the_revisions(
    kept: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front page has the largest changes and counts the rest."""
    monkeypatch.setattr(site_module, "MOST_EVENTS", 1)
    kept("site", "unlinked", "--last=9").assert_code(0)
    front = (kept.folder / "unlinked" / "index.html").read_text(encoding="utf-8")
    assert front.count('<span class="moment">') == 1
    assert "1 older one" in front
    text = (kept.folder / "unlinked" / file_of(A)).read_text(encoding="utf-8")
    assert "<td>000000b</td>" in text and "commit/" not in text
    assert text.count("<tr><td>2026-02-") == 18


@pytest.fixture
def tab() -> Iterator[Tab]:
    with chromium() as browser:
        yield Tab(browser)


@pytest.mark.slow
def test_in_a_browser_it_filters_and_draws_and_fits_a_phone(tab: Tab, site: Path) -> None:
    front = (site / "index.html").as_uri()
    shown = tab.open(f"{front}#kind=slower&machine=cpu/x")
    assert shown.locator("#table tbody tr:visible").count() == 1
    assert shown.inner_text("#shown") == "1 of 6 trends"
    wide = "document.documentElement.scrollWidth <= window.innerWidth"
    for width, dark in ((1280, False), (390, True)):
        shown = tab.open((site / file_of(A)).as_uri(), width=width, dark=dark)
        assert shown.locator(".trend .trace .point").count() == 2 * (12 + 1)
        assert shown.locator(".trend .trace .interval").count() == 24
        plot = "document.querySelector('.trend .plot')"
        levels, _, marked = shown.evaluate(f"{plot}.chart.traces.map(trace => [trace.x, trace.y])")
        (step,) = shown.evaluate(f"{plot}.chart.marks.map(one => one.text)")
        before, _, _, after, _, _ = levels[1]
        assert levels[0] == [-0.4, 6.4, None, 6.6, 11.4, None]
        change = (site / file_of(A)).read_text().split('<span class="kind slower">')[1]
        assert step == change.partition("<")[0]
        assert float(step.rstrip("%")) == round(100 * (after / before - 1), 1)
        assert marked[0] == [7]
        assert shown.evaluate(wide)
    shown = tab.open(front, width=390)
    assert shown.evaluate(wide)
    # A phone has all figures of a row.
    right = "every => Math.max(...every.map(e => e.getBoundingClientRect().right))"
    assert shown.locator("#table tr:first-child td").evaluate_all(right) <= 390
    assert tab.complaints == []
