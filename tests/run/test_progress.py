"""The line of each case, on a terminal and in a file, and the estimated time left."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.command_line.role import Role
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.progress import (
    NARROWEST_NAME,
    Progress,
    Remaining,
    fitting,
    rough_duration,
)
from tests.support.harness import QUIETLY, Project, SuiteServer

#: Case, its start and end in seconds, and the seconds that no other case needs.
Span = Tuple[str, float, float, float]


@pytest.mark.parametrize(
    ("cases", "ended", "running", "now", "left"),
    [
        ("a1 a2", [], [("a1", 0.0)], 5.0, None),
        # a is any case without known times
        ("a1 a2 b1 b2 b3 c1", [("a1", 100.0, 110.0, 0.0)], [], 110.0, 50.0),
        (
            "a1 a2 b1 b2 b3 c1",
            [("a1", 100.0, 110.0, 0.0), ("b1", 110.0, 140.0, 0.0)],
            [],
            140.0,
            10.0 + 2 * 30.0 + 20.0,
        ),
        ("a1 a2 a3", [("a1", 100.0, 446.0, 340.0)], [], 446.0, 2 * 6.0),
        ("a1 a2", [("a1", 0.0, 10.0, 0.0)], [("a2", 10.0)], 14.0, 6.0),
        ("a1 a2", [("a1", 0.0, 10.0, 0.0)], [("a2", 10.0)], 50.0, 0.0),
        # two at a time
        (
            "a1 a2 a3 a4 a5 a6",
            [(f"a{n}", 10.0 * (n > 2), 10.0 + 10.0 * (n > 2), 0.0) for n in (1, 2, 3, 4)],
            [],
            20.0,
            10.0,
        ),
        ("a1", [("a1", 0.0, 10.0, 0.0)], [], 30.0, None),
    ],
)
def test_the_time_left_follows_from_the_functions_cases(
    cases: str, ended: List[Span], running: List[Any], now: float, left: Optional[float]
) -> None:
    remaining = Remaining({name: name[0] for name in cases.split()})
    for name, begin, _, _ in ended:
        remaining.begin(name, begin)
    for name, begin, end, once in ended:
        assert remaining.finish(name, end, once) == end - begin
    for name, begin in running:
        remaining.begin(name, begin)
    assert remaining.left(now) == (left if left is None else pytest.approx(left))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.9, "a few seconds"), (94, "about 90 s"), (95, "about 2 min"), (5400, "about 1.5 h")],
)
def test_an_estimate_has_few_digits(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text


TAILS = [" 212.1 images/s ±1.4% (26 s, about 4 min left)", " 212.1 images/s ±1.4% (26 s)"]


@given(st.text("abcdefgh-", min_size=1, max_size=120), st.integers(20, 200))
def test_the_name_is_cut_but_the_numbers_never(name: str, width: int) -> None:
    line = fitting("[3/23] ", name, TAILS, width)
    assert line.startswith(f"[3/23] {name[:3]}")
    assert "212.1 images/s ±1.4% (26 s" in line
    if width >= len("[3/23] ") + NARROWEST_NAME + len(TAILS[1]):
        assert len(line) <= width
    if len("[3/23] ") + len(name) + len(TAILS[0]) <= width:
        assert line == f"[3/23] {name}{TAILS[0]}"


NAMES = {f"bench.py::bench_a[{name}]": f"bench_a[{name}]" for name in ("one", "two", "three")}
ONE, TWO, THREE = NAMES
CI = ("CI", "BUILD_NUMBER")


@pytest.fixture(autouse=True)
def _outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in CI:
        monkeypatch.delenv(variable, raising=False)


class Terminal:
    """Pytest's terminal, 60 columns wide, or a file."""

    def __init__(self, is_one: bool) -> None:
        self.isatty = self.hasmarkup = is_one
        self._tw = SimpleNamespace(fullwidth=60, width_of_current_line=0)
        self.written: List[str] = []

    def rewrite(self, text: str, erase: bool = False, **markup: bool) -> None:
        self.written.append(f"~{text}")

    def write_line(self, text: str, **markup: bool) -> None:
        self.written.append(text)

    def ensure_newline(self) -> None:
        pass

    def taken(self) -> List[str]:
        """Return what was written and clear it; rewritten text has a tilde."""
        written, self.written = self.written, []
        return written


def started(
    is_terminal: bool, verbose: int = 0, capture: str = "fd", role: Role = Role.MAIN
) -> Any:
    """Return the progress of a run of three cases, with a stopped clock."""
    plugins = {"terminalreporter": Terminal(is_terminal)}
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin=plugins.get),
        getoption={"verbose": verbose, "capture": capture}.get,
    )
    made = Progress(config, role)
    made.expect(NAMES)
    made._clock = lambda: 100.0
    return made


def test_a_terminal_shows_the_activity_of_a_case_until_its_line_is_final() -> None:
    made = started(is_terminal=True)
    made.begin(ONE)
    made.phase("compiling")
    made.line("x" * 100)
    made.end(ONE, "5 items/s")
    assert made.terminal.taken() == [
        "~[1/3] bench_a[one] starting",
        "~[1/3] bench_a[one] compiling",
        *("~" + "x" * 59, ""),
        *("~[1/3] bench_a[one] 5 items/s (0 s)", ""),
    ]
    made.begin(TWO)
    made.begin(THREE)
    assert made.terminal.taken()[-1] == "~[2/3] bench_a[two], bench_a[three] 2 at a time"
    made.forget(THREE)
    made.phase("measuring")
    assert made.terminal.taken() == ["~[2/3] bench_a[two] measuring"]


def test_an_estimate_is_shown_a_few_times_a_second_and_cleared_at_the_end() -> None:
    made = started(is_terminal=True)
    made.begin(ONE)
    assert made.terminal.taken() == ["~[1/3] bench_a[one] starting"]
    now = [100.0]
    made._clock = lambda: now[0]
    for moment in (100.0, 100.1, 100.19, 100.21, 100.3):
        now[0] = moment
        made.estimate(lambda: f"at {now[0]}")
    assert made.terminal.taken() == [
        "~[1/3] bench_a[one] at 100.0",
        "~[1/3] bench_a[one] at 100.21",
    ]
    made.close()
    made.close()
    assert made.terminal.taken() == ["~", "~"]


@pytest.mark.parametrize("name", [*CI, "-s"])
def test_a_log_and_a_terminal_that_tests_write_to_have_no_estimates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert started(is_terminal=True).live
    if name == "-s":
        made = started(is_terminal=True, capture="no")
    else:
        monkeypatch.setenv(name, "true")
        made = started(is_terminal=True)
    assert not made.live
    made.begin(ONE)
    made.estimate(lambda: pytest.fail("an estimate"))
    assert made.terminal.taken() == []


def test_a_file_has_one_whole_line_per_case() -> None:
    made = started(is_terminal=False)
    made.begin(ONE)
    made.phase("compiling")
    made.end(ONE, "y" * 100)
    made.end(ONE, "ERROR in teardown")
    made.end(TWO, "5 items/s")
    first, second, third = made.terminal.taken()
    assert first == f"[1/3] bench_a[one] {'y' * 100} (0 s)"
    assert second.startswith("[1/3]") and third.startswith("[2/3]")


def test_a_log_names_a_case_that_takes_long() -> None:
    made = started(is_terminal=False)
    made._clock = lambda: 1e9
    made.waits("pair 1: one", 20.0)
    made.waits("pair 1: one", 60.0)
    made.waits("pair 1: one", 61.0)
    assert made.terminal.taken() == ["  pair 1: one: 60 s so far"]


@pytest.mark.parametrize("attributes", [{"verbose": -1}, {"role": Role.WORKER}])
def test_nothing_is_written_quietly_or_in_a_worker(attributes: Dict[str, Any]) -> None:
    made = started(is_terminal=True, **attributes)
    made.begin(ONE)
    made.line("a line")
    made.end(ONE, "5 items/s")
    assert made.terminal.taken() == [] and made.positions == {ONE: 1}


@pytest.mark.parametrize(
    ("when", "outcome", "said"),
    [
        ("setup", "passed", None),
        ("setup", "skipped", "skipped"),
        ("setup", "failed", "ERROR in setup"),
        ("call", "passed", "ran, not measured"),
        ("call", "failed", "FAILED"),
        ("call", "xfailed", "failed as expected"),
        ("teardown", "passed", None),
        ("???", "failed", "CRASHED"),  # from a worker of pytest-xdist
    ],
)
def test_a_case_has_its_line_when_its_outcome_is_known(when: str, outcome: str, said: Any) -> None:
    made = started(is_terminal=False)
    report = SimpleNamespace(nodeid=ONE, when=when, outcome=outcome)
    if outcome == "xfailed":
        report.outcome, report.wasxfail = "skipped", "slow"
    made.reported(report, RunResults(), " there")
    assert made.terminal.taken() == (
        [] if said is None else [f"[1/3] bench_a[one] {said} there (0 s)"]
    )


@pytest.mark.parametrize(
    ("over", "failed", "word"), [(False, False, ""), (False, True, "WORD"), (True, False, "WORD")]
)
def test_the_status_of_a_case_is_for_failures_and_the_summary(
    over: bool, failed: bool, word: str
) -> None:
    made = started(is_terminal=False)
    made.over = over
    report = SimpleNamespace(ipubench_case=True, failed=failed)
    status = ("passed", ".", "WORD")
    assert made.without_letter(report, status) == ("passed", "", word)


ORDINARY = "def test_bs8_one(): pass\ndef test_bs8_two(): pass\n"


def test_a_file_gets_whole_lines_and_ordinary_tests_their_own(project: Project) -> None:
    (project.folder / "test_ordinary.py").write_text(ORDINARY, encoding="ascii")
    outcome = project.run("-k", "bs8", "test_ordinary.py", env={"COLUMNS": "50"}).assert_code(0)
    first = outcome.line("[1/2] bench_fake[alpha-bs8-synthetic] 800.0 items/s ±0.0% (")
    assert first.endswith("(0 s, a few seconds left)")
    assert outcome.lines[outcome.lines.index(first) + 1].startswith("[2/2] ")
    assert "test_ordinary.py .." in outcome.lines
    assert "bench_fake.py" not in "".join(line for line in outcome.lines if "::" not in line)
    assert "\x1b" not in outcome.text


def on_a_terminal(project: Project, columns: int, *words: str) -> str:
    """Return what a run writes to a terminal."""
    master, slave = pty.openpty()
    python = project.folder / "python"
    SuiteServer.python(python)
    options = (*QUIETLY, "-k", "bs8", "bench_fake.py", "--device=fake", *words)
    interactive = {key: text for key, text in project.environment.items() if key not in CI}
    process = subprocess.Popen(
        [str(python), "-m", "pytest", *options],
        cwd=str(project.folder),
        env={**interactive, "COLUMNS": str(columns), "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the last process with the terminal is gone
            break
        if not part:
            break
        written += part
    os.close(master)
    assert process.wait() == 0, written
    return written.decode()


@pytest.mark.entry_point
def test_a_narrow_terminal_stays_readable(project: Project) -> None:
    (project.folder / "test_ordinary.py").write_text(ORDINARY, encoding="ascii")
    written = on_a_terminal(project, 60, "test_ordinary.py")
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written)
    lines = [line for line in re.split(r"[\r\n]+", plain) if re.match(r"\[\d/2\] ", line)]
    assert any("items/s ±0.0% (0 s" in line for line in lines)
    assert all(len(line.rstrip()) < 60 for line in lines)
    assert any(".." in line for line in lines)
    assert "] starting" in plain and " measuring (5 s at most)" in plain
    assert re.search(r"items/s(, | ±0.0%, )\d+ s left", plain)
    # A carriage return begins the line again, so earlier text on it is lost.
    kept = [line.rstrip("\r").split("\r")[-1].strip() for line in plain.split("\n")]
    assert "test_ordinary.py .." in kept
    assert not any(line.endswith("starting") for line in kept)
