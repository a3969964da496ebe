"""What a run writes while it goes on: to a terminal, which rewrites a line, and to a file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.plugins.run import progress
from ipubench.plugins.run.progress import Progress
from ipubench.plugins.run.results import SessionResults, run_key

NAMES = {f"bench.py::bench_a[{name}]": f"bench_a[{name}]" for name in ("one", "two", "three")}
ONE, TWO, THREE = NAMES


class Terminal:
    """Pytest's terminal, 60 columns wide, or a file."""

    def __init__(self, is_one: bool) -> None:
        self.isatty = self.hasmarkup = is_one
        self._tw = SimpleNamespace(fullwidth=60, width_of_current_line=0)
        self.written: List[str] = []

    def rewrite(self, text: str, erase: bool, **markup: bool) -> None:
        assert erase
        self.written.append(f"~{text}")

    def write_line(self, text: str, **markup: bool) -> None:
        self.written.append(text)

    def ensure_newline(self) -> None:
        pass

    def taken(self) -> List[str]:
        """Return what was written, and forget it; of what is rewritten, with a tilde."""
        written, self.written = self.written, []
        return written


def started(is_terminal: bool, verbose: int = 0, **attributes: Any) -> Any:
    """Return the progress of a run of three cases, on a clock that stands still."""
    terminal = Terminal(is_terminal)
    plugins = {"terminalreporter": terminal}
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin=plugins.get),
        getoption=lambda name, default=None: verbose,
        stash={},
        **attributes,
    )
    made = Progress(config)
    made.expect(NAMES)
    made._clock = lambda: 100.0
    return made


def test_a_terminal_shows_what_a_case_does_until_its_line_stays() -> None:
    made = started(is_terminal=True)
    made.phase("nothing runs")
    assert made.terminal.taken() == []
    made.begin(ONE)
    made.phase("compiling")
    assert made.terminal.taken() == [
        "~[1/3] bench_a[one] starting",
        "~[1/3] bench_a[one] compiling",
    ]
    made.line("x" * 100)
    assert made.terminal.taken() == ["~" + "x" * 59, ""]
    made.end(ONE, "5 items/s")
    assert made.terminal.taken() == ["~[1/3] bench_a[one] 5 items/s (0 s)", ""]
    made.begin(TWO)
    made.begin(THREE)
    assert made.terminal.taken()[-1] == "~[2/3] bench_a[two], bench_a[three] 2 at a time"
    made.forget(THREE)
    made.phase("measuring")
    assert made.terminal.taken() == ["~[2/3] bench_a[two] measuring"]


def test_a_file_has_a_whole_line_of_each_case() -> None:
    made = started(is_terminal=False)
    made.begin(ONE)
    made.phase("compiling")
    made.line("x" * 100)
    assert made.terminal.taken() == ["x" * 100]
    made.end(ONE, "y" * 100)
    (line,) = made.terminal.taken()
    assert line == f"[1/3] bench_a[one] {'y' * 100} (0 s)"


def test_a_case_that_fails_after_its_end_has_two_lines_of_one_number() -> None:
    made = started(is_terminal=False)
    for nodeid, result in ((ONE, "5 items/s"), (ONE, "ERROR in teardown"), (TWO, "5 items/s")):
        made.end(nodeid, result)
    assert [line[:5] for line in made.terminal.taken()] == ["[1/3]", "[1/3]", "[2/3]"]


@pytest.mark.parametrize("given", [{"verbose": -1}, {"workerinput": {}}])
def test_quietly_or_in_a_worker_nothing_is_written(given: Dict[str, Any]) -> None:
    made = started(is_terminal=True, **given)
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
        ("teardown", "passed", None),
        ("teardown", "failed", "ERROR in teardown"),
        ("???", "failed", "CRASHED"),  # of a worker of pytest-xdist
    ],
)
def test_a_case_has_its_line_once_it_is_known_how_it_ended(
    when: str, outcome: str, said: Any
) -> None:
    made = started(is_terminal=False)
    made.config.stash[run_key] = SimpleNamespace(results=SessionResults())
    report = SimpleNamespace(nodeid=ONE, when=when, outcome=outcome)
    made.reported(report, " there")
    assert made.terminal.taken() == (
        [] if said is None else [f"[1/3] bench_a[one] {said} there (0 s)"]
    )


@pytest.mark.parametrize(
    ("report", "said"),
    [({"ipubench_subtest": True}, []), ({"wasxfail": "slow"}, ["failed as expected"])],
)
def test_a_subtest_ends_no_case_and_an_expected_failure_is_named(
    report: Dict[str, Any], said: List[str]
) -> None:
    made = started(is_terminal=False)
    made.reported(SimpleNamespace(nodeid=ONE, when="call", outcome="skipped", **report))
    assert [line.split("] ")[2].split(" (")[0] for line in made.terminal.taken()] == said


@pytest.mark.parametrize(
    ("over", "failed", "word"), [(False, False, ""), (False, True, "WORD"), (True, False, "WORD")]
)
def test_the_word_for_a_case_is_for_failures_and_the_summary(
    over: bool, failed: bool, word: str
) -> None:
    made = started(is_terminal=False)
    made.config.stash[progress.progress_key] = made
    if over:
        progress.pytest_sessionfinish(SimpleNamespace(config=made.config))  # type: ignore[arg-type]
    status = SimpleNamespace(get_result=lambda: ("passed", ".", "WORD"))
    forced: List[Any] = []
    status.force_result = forced.append
    report = SimpleNamespace(ipubench_case=True, failed=failed)
    around = progress.pytest_report_teststatus(report, made.config)
    next(around)
    with pytest.raises(StopIteration):
        around.send(status)
    assert forced == [("passed", "", word)]
