"""The history of runs and the trend of each case."""

from __future__ import annotations

import builtins
import math
import random
import shutil
from pathlib import Path
from typing import Any, List

import pytest

from ipubench.plugins.baseline import history, trends
from ipubench.plugins.baseline.history import slug
from ipubench.plugins.baseline.renamed import name_now
from ipubench.plugins.baseline.store import save
from ipubench.plugins.gate.shown_throughput import throughput_of
from ipubench.plugins.record.host_process import short_revision
from tests.support.baselines import A, B, Shell, document, entry
from tests.support.harness import Project
from tests.support.stored import changed


def all_close(path: Path) -> List[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.json"))


def needs_ruptures() -> None:
    pytest.importorskip("ruptures", reason="pip install ruptures")


def without_ruptures(monkeypatch: pytest.MonkeyPatch) -> None:
    really_import = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "ruptures":
            raise ImportError(name)
        return really_import(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)


# Trends.


def test_cases_with_equal_configuration_and_machine_form_one_trend_in_order_of_time() -> None:
    runs = [
        entry(time="2026-01-03T00:00:00Z", slower=2),
        entry(time="2026-01-01T00:00:00Z", processes=3),
        entry(time="2026-01-02T00:00:00Z", machine="cpu/y"),
        entry(time="2026-01-02T00:00:00Z", config_hash="g"),
        entry("b", time="2026-01-02T00:00:00Z"),
    ]
    found = trends.trends_of(runs)
    assert len(found) == 4
    (both,) = [trend for trend in found if len(trend.points) == 2]
    assert both.key == (A, "h", "cpu/x")
    assert [point.time[:10] for point in both.points] == ["2026-01-01", "2026-01-03"]
    assert [point.processes for point in both.points] == [3, 1]
    assert both.points[1].throughput == pytest.approx(both.points[0].throughput / 2)
    assert both.points[0].revision == "0123456"


def test_a_run_counts_with_the_processes_that_decided() -> None:
    seconds = (0.5, 0.5, 0.1, 0.11, 0.12)
    each = {f"record.processes.{n}.seconds": [value] * 5 for n, value in enumerate(seconds)}
    disturbed = {"record.processes.1.lost": 0.5, "record.processes.1.clean": False}
    run = changed(entry(processes=5), {**each, **disturbed})
    (point,) = trends.trends_of([run])[0].points
    assert point.throughput == throughput_of(run).median == pytest.approx(80 / 0.11, rel=0.01)
    assert (point.low, point.high) == pytest.approx((80 / 0.12, 80 / 0.1))


def test_file_names_are_valid_and_distinct() -> None:
    assert slug("cpu/Intel(R) Xeon(R)/amx/2 threads").startswith(
        "cpu-intel-r-xeon-r-amx-2-threads-"
    )
    assert slug("cpu/a b") != slug("cpu/a-b")
    assert len(slug("x" * 500)) < 80 and "/" not in slug("../../etc\ud800")
    assert short_revision("0123456789abcdef-dirty") == "0123456-dirty"
    assert short_revision(None) == short_revision("abc-/../../evil") == short_revision("../x") == ""


# Whole runs.


@pytest.mark.entry_point
def test_a_run_is_kept_and_shown(project: Project) -> None:
    shell = Shell(project)
    folder = project.folder / "baselines"
    outcome = project.run("-k", "beta", "--budget=0.3", "--history").assert_code(0)
    (name,) = all_close(folder)
    assert name.startswith(f"history/{slug('fake/fake device')}/2")
    assert "unversioned" in name
    outcome.line("for the history")
    other = {"IPUBENCH_FAKE_NAME": "other"}
    project.run("-k", "beta-synthetic", "--budget=0.3", "--history", env=other)
    assert len({Path(name).parent for name in all_close(folder)}) == 2
    shown = shell("history").assert_code(0)
    shown.line("fake/fake device (2 trends)")
    shown.line("fake/other (1 trend)")
    assert shown.line("beta-synthetic").split()[1:4] == ["1", "4,000", "items/s"]
    shell("list").assert_code(0).line("no baselines in")
    # It is a baseline like any other.
    shell("show", f"./baselines/{name}").assert_code(0)


def test_an_interrupted_run_is_not_in_a_trend(project: Project) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    interrupted = source.replace(
        'if config.trouble == "error":\n        raise CaseError(',
        'if "beta-generated" in str(meter.case):\n        raise KeyboardInterrupt(',
    )
    (project.folder / "bench_fake.py").write_text(interrupted)
    project.run("-k", "beta", "--history").assert_code(2)
    assert all_close(project.folder / "baselines") == []


def test_an_unwritable_history_does_not_lose_results(project: Project) -> None:
    (project.folder / "baselines").mkdir()
    (project.folder / "baselines" / "history").write_text("in the way")
    outcome = project.run("-k", "beta", "--budget=0.3", "--history").assert_code(4)
    outcome.line("cannot be written")
    assert "Traceback" not in outcome.text and len(project.records()) == 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs of two cases; one case became 10% slower with the seventh run."""
    folder = tmp_path_factory.mktemp("runs")
    generator = random.Random(7)
    for number in range(12):
        stamp = f"2026-02-{number + 1:02}T00:00:00Z"
        noisy = [math.exp(generator.gauss(0, 0.01)) for _ in range(2)]
        revision = f"{number:07x}abc"
        a = entry("a", time=stamp, git=revision, slower=noisy[0] * (1.1 if number >= 6 else 1))
        b = entry("b", time=stamp, git=revision, slower=noisy[1])
        save(folder / f"202602{number + 1:02}T000000Z-x.json", document(a, b))
    return folder


@pytest.fixture
def kept(project: Project, runs: Path) -> Shell:
    """A project with these runs in its history."""
    shutil.copytree(runs, project.folder / history.FOLDER / "machine")
    return Shell(project)


@pytest.mark.entry_point
def test_the_trend_of_a_case_marks_its_change(kept: Shell) -> None:
    needs_ruptures()
    outcome = kept("history", "bench_x[a]").assert_code(0)
    assert all(len(line) <= 80 for line in outcome.lines)
    (marked,) = [line for line in outcome.lines if "<--" in line]
    assert marked.split()[:3] == ["2026-02-07", "00:00", "0000006"]
    (trend,) = kept.json("history", "bench_x[a]")
    (change,) = trend["changes"]
    assert change["run"] == 6 and change["change"] == pytest.approx(-0.09, abs=0.02)
    assert -0.14 < change["low"] < change["change"] < change["high"] < -0.05
    assert change["sure"] > 0.95 and change["likely"][0]["revision"] == "0000006"
    assert len(trend["runs"]) == 12
    assert kept("history").assert_code(0).line("bench_x[a]").split()[-2] == "0000006"
    assert trend["runs_needed"] == 0
    few, _ = kept.json("history", "--last=5")
    assert len(few["runs"]) == 5 and few["runs_needed"] == 6
    assert kept("history", "--last=5").line("bench_x[a]").split()[-2:] == ["6", "runs"]
    kept("history", "bench_x[a]", "--last=5").assert_code(0).line("about 6 are needed")
    kept("history", "zzz").assert_code(4).line("'zzz'")


def test_trends_have_full_names_with_their_configurations(kept: Shell) -> None:
    """Covers identifiers with colons and cases with several configurations."""
    others = entry("std::sort"), entry("b", config_hash=f"other{8 * '0'}")
    save(kept.folder / history.FOLDER / "machine" / "1.json", document(*others))
    outcome = kept("history", "--last=20").assert_code(0)
    names = [line.split(" items/s")[0].rsplit(maxsplit=2)[0] for line in outcome.lines[2:6]]
    assert names == [
        "  bench_x[a]",
        "  bench_x[b] h",
        "  bench_x[b] other000",
        "  bench_x[std::sort]",
    ]


def test_a_damaged_run_is_skipped_and_named(kept: Shell) -> None:
    broken = kept.folder / history.FOLDER / "machine" / "20260201T000000Z-x.json"
    broken.write_text("{")
    outcome = kept("history", "bench_x[b]").assert_code(0)
    outcome.line("left out: the baseline")
    assert len([line for line in outcome.lines if line.startswith("  2026-02")]) == 11
    # The history holds others.
    broken.rename(broken.with_name("20260213T000000Z-x.json"))
    for words in (["history"], ["site", "out"]):
        outcome = kept(*words, "--last=1").assert_code(4)
        outcome.line("last 1 runs")


def test_trends_are_shown_without_the_library(
    kept: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ipubench.plugins.baseline.__main__ import main

    without_ruptures(monkeypatch)
    monkeypatch.chdir(kept.folder)
    assert main(["history", "bench_x[a]"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("pip install ruptures") == 1
    assert "2026-02-12" in printed.out and "<--" not in printed.out


def test_a_renamed_case_keeps_its_history_and_its_entry(shell: Shell) -> None:
    times = [f"2026-01-0{day}T00:00:00Z" for day in range(1, 5)]
    old, new = ({"record.effective_options": {"size": 3, "name": name}} for name in "ab")
    benches = [changed(entry("a", time=time, config_hash="g"), old) for time in times[:2]]
    benches += [changed(entry("b", time=time), new) for time in times[2:]]
    for number, one in enumerate(benches):
        save(shell.folder / history.FOLDER / "machine" / f"{number}.json", document(one))
    shell.store("before", benches[0])
    shell.store("now", benches[-1])
    assert {one["kind"] for one in shell.json("diff", "before", "now")} == {"missing", "new"}
    (shell.folder / "gate.yml").write_text(f"renamed: {{'{A}': '{B}'}}")
    (trend,) = shell.json("history")
    assert (trend["case"], len(trend["runs"])) == (B, 4)
    assert len(shell.json("history", "bench_x[b]")[0]["runs"]) == 4
    assert [one["kind"] for one in shell.json("diff", "before", "now")] == ["not judged"]


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        ("a.py::old[1]", "b.py::C::new[1]"),
        ("a.py::old", "b.py::C::new"),
        ("a.py::older", "a.py::older"),
        ("x.py::K::test[1]", "y.py::K::test[1]"),
        ("a.py::exact[1]", "a.py::exact[1-2]"),
        ("a.py::exact[10]", "a.py::exact[10]"),
    ],
)
def test_a_new_name_is_that_of_the_case_or_of_what_holds_it(stored: str, now: str) -> None:
    names = {"a.py::old": "b.py::C::new", "x.py": "y.py", "a.py::exact[1]": "a.py::exact[1-2]"}
    assert name_now(stored, names) == now
