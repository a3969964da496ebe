"""The line of each case, and what the rest of a run will take."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.run.progress import NARROWEST_NAME, Remaining, fitting, in_words
from tests.support.harness import QUIETLY, Project, SuiteServer


def test_before_a_case_has_ended_nothing_is_known() -> None:
    remaining = Remaining({"a": "f", "b": "f"})
    remaining.begin("a", 0.0)
    assert remaining.left(5.0) is None


def test_the_rest_takes_what_the_functions_cases_took() -> None:
    remaining = Remaining({"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b", "c1": "c"})
    remaining.begin("a1", 100.0)
    assert remaining.finish("a1", 110.0) == 10.0
    # Nothing is known of b and c, so a stands for all: five times 10 s.
    assert remaining.left(110.0) == pytest.approx(50.0)
    remaining.begin("b1", 110.0)
    remaining.finish("b1", 140.0)
    # a2 like a1, b2 and b3 like b1, and c1 like the mean of all.
    assert remaining.left(140.0) == pytest.approx(10.0 + 2 * 30.0 + 20.0)


def test_what_only_the_first_case_needs_is_not_expected_of_the_others() -> None:
    remaining = Remaining(dict.fromkeys("abc", "f"))
    remaining.begin("a", 100.0)
    # 340 s for a device that another run held, and for an import.
    assert remaining.finish("a", 446.0, once=340.0) == 346.0
    assert remaining.left(446.0) == pytest.approx(2 * 6.0)
    remaining.begin("b", 446.0)
    remaining.finish("b", 450.0)
    assert remaining.left(450.0) == pytest.approx(5.0)


def test_a_running_case_counts_what_it_has_done() -> None:
    remaining = Remaining({"a": "f", "b": "f"})
    remaining.begin("a", 0.0)
    remaining.finish("a", 10.0)
    remaining.begin("b", 10.0)
    assert remaining.left(14.0) == pytest.approx(6.0)
    assert remaining.left(50.0) == 0.0


def test_cases_at_the_same_time_share_the_rest() -> None:
    remaining = Remaining(dict.fromkeys("abcdef", "f"))
    for pair in ("ab", "cd"):
        start = 0.0 if pair == "ab" else 10.0
        for case in pair:
            remaining.begin(case, start)
        for case in pair:
            remaining.finish(case, start + 10.0)
    assert remaining.left(20.0) == pytest.approx(10.0)


def test_the_end_has_no_rest_and_a_case_ends_once() -> None:
    remaining = Remaining({"a": "f"})
    remaining.begin("a", 0.0)
    remaining.finish("a", 10.0)
    remaining.finish("a", 30.0)
    assert remaining.left(30.0) is None


@given(st.lists(st.floats(0.1, 1e4), min_size=2, max_size=20), st.floats(1.5, 10.0))
def test_an_estimate_scales_with_the_times(times: List[float], factor: float) -> None:
    def left(scale: float) -> float:
        remaining = Remaining({str(n): "f" for n in range(len(times))})
        now = 0.0
        for number, seconds in enumerate(times[:-1]):
            remaining.begin(str(number), now)
            now += seconds * scale
            remaining.finish(str(number), now)
        found = remaining.left(now)
        assert found is not None
        return found

    assert left(factor) == pytest.approx(factor * left(1.0))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "a few seconds"),
        (9.9, "a few seconds"),
        (10, "about 10 s"),
        (14, "about 10 s"),
        (94, "about 90 s"),
        (95, "about 2 min"),
        (240, "about 4 min"),
        (5300, "about 88 min"),
        (5400, "about 1.5 h"),
    ],
)
def test_an_estimate_has_few_digits(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


TAILS = [" 212.1 images/s ±1.4% (26 s, about 4 min left)", " 212.1 images/s ±1.4% (26 s)"]


@given(st.text("abcdefgh-", min_size=1, max_size=120), st.integers(20, 200))
def test_the_name_is_cut_and_the_figures_never(name: str, width: int) -> None:
    line = fitting("[3/23] ", name, TAILS, width)
    assert line.startswith(f"[3/23] {name[:3]}")
    assert "212.1 images/s ±1.4% (26 s" in line
    if width >= len("[3/23] ") + NARROWEST_NAME + len(TAILS[1]):
        assert len(line) <= width
    if len("[3/23] ") + len(name) + len(TAILS[0]) <= width:
        assert line == f"[3/23] {name}{TAILS[0]}"


def test_the_estimate_goes_before_the_name_becomes_unreadable() -> None:
    assert fitting("[3/23] ", "a" * 60, TAILS, 60).endswith("(26 s)")


def test_a_file_gets_whole_lines_with_what_is_left(project: Project) -> None:
    outcome = project.run("-k", "bs8", env={"COLUMNS": "50"}).assert_code(0)
    first = outcome.line("[1/2] bench_fake[alpha-bs8-synthetic] 800.0 items/s ±0.0% (")
    assert first.endswith("(0 s, a few seconds left)")
    assert outcome.line("[2/2] ").endswith("(0 s)")
    assert "\x1b" not in outcome.text


ORDINARY = "def test_bs8_one(): pass\ndef test_bs8_two(): pass\n"


def test_ordinary_tests_have_their_line_and_each_case_its_own(project: Project) -> None:
    (project.folder / "test_ordinary.py").write_text(ORDINARY, encoding="ascii")
    outcome = project.run("-k", "bs8", "test_ordinary.py").assert_code(0)
    lines = outcome.text.splitlines()
    case = next(number for number, line in enumerate(lines) if line.startswith("[1/2] "))
    assert lines[case + 1].startswith("[2/2] ")
    assert "test_ordinary.py .." in lines
    assert "bench_fake.py" not in "".join(line for line in lines if "::" not in line)


OPTIONS = (*QUIETLY, "-k", "bs8")


def on_a_terminal(project: Project, columns: int, *words: str) -> str:
    """Return what a run writes to a terminal."""
    master, slave = pty.openpty()
    python = project.folder / "python"
    SuiteServer.python(python)
    process = subprocess.Popen(
        [str(python), "-m", "pytest", *OPTIONS, "bench_fake.py", "--device=fake", *words],
        cwd=str(project.folder),
        env={**project.environment, "COLUMNS": str(columns), "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the last process that had the terminal is gone
            break
        if not part:
            break
        written += part
    os.close(master)
    assert process.wait() == 0, written
    return written.decode()


@pytest.mark.parametrize("words", [(), ("-n", "2")])
def test_a_narrow_terminal_stays_readable(project: Project, words: List[str]) -> None:
    if words:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    written = on_a_terminal(project, 60, *words)
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written)
    progress = [line for line in re.split(r"[\r\n]+", plain) if re.match(r"\[\d/2\] ", line)]
    assert any("items/s ±0.0% (0 s" in line for line in progress)
    assert all(len(line.rstrip()) < 60 for line in progress)
    assert any(".." in line for line in progress)


@pytest.mark.entry_point
def test_a_terminal_shows_what_a_case_is_doing(project: Project) -> None:
    written = on_a_terminal(project, 100)
    assert "] starting" in written and "] measuring (5 s at most)" in written


def test_a_terminal_keeps_the_line_of_ordinary_tests(project: Project) -> None:
    (project.folder / "test_ordinary.py").write_text(ORDINARY, encoding="ascii")
    written = on_a_terminal(project, 100, "test_ordinary.py")
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written)
    # Only a carriage return begins a line anew: what it follows is lost.
    kept = [line.rstrip("\r").split("\r")[-1].strip() for line in plain.split("\n")]
    assert "test_ordinary.py .." in kept
    assert not any(line.endswith("starting") for line in kept)


def test_one_round_has_no_interval(project: Project) -> None:
    outcome = project.run("-k", "alpha-bs8-synthetic", "--steps=1").assert_code(0)
    outcome.line("[1/1] bench_fake[alpha-bs8-synthetic] 800.0 items/s (")
    assert "±" not in outcome.text
