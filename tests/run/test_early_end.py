"""A signal that ends a run, and the report of unfinished work."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest

from ipubench.plugins.command_line.role import Role
from ipubench.plugins.run import interruption, loading
from ipubench.plugins.run.interruption import Interruption
from tests.support.command_line import given_options


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[List[int]]:
    """The signals that ended the process at once; real handlers are as before afterwards."""
    found: List[int] = []
    monkeypatch.setattr(loading, "end_at_once", lambda number, frame: found.append(number))
    usual = loading.USUAL
    monkeypatch.setattr(loading, "end_quietly", lambda n: signal.signal(n, usual[n]))
    before = {number: signal.getsignal(number) for number in loading.CODES}
    yield found
    assert before == {number: signal.getsignal(number) for number in loading.CODES}


@pytest.mark.parametrize("number", loading.CODES)
@pytest.mark.parametrize("finishing", [False, True])
def test_the_first_signal_ends_the_run_and_a_later_one_the_process(
    finishing: bool, number: signal.Signals, sent: List[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(interruption, "time", SimpleNamespace(monotonic=lambda: now[0]))
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.INTERRUPTED, shouldstop=False)
    handler = Interruption(session)
    if not finishing:
        with pytest.raises(KeyboardInterrupt):  # the usual handler raises it for Ctrl-C
            signal.raise_signal(number)
        assert bool(session.shouldstop) == (number == signal.SIGTERM)
    handler.finish()
    for _ in range(2):  # timeout of coreutils sends two
        signal.raise_signal(number)
    assert not sent
    now[0] += 2
    signal.raise_signal(number)
    assert sent == [number]
    assert session.exitstatus == pytest.ExitCode.INTERRUPTED  # until all files are written
    assert handler.leave() == loading.CODES[number]
    assert not Interruption(session).leave()


@pytest.mark.parametrize(
    ("role", "answers"), [(Role.MAIN, True), (Role.WORKER, False), (Role.LISTING, False)]
)
def test_a_measuring_run_handles_sigterm(role: Role, answers: bool) -> None:
    session: Any = SimpleNamespace(config=None)
    handler = interruption.handle_signals(session, role)
    assert (handler is not None) == answers
    if handler is not None:
        handler.leave()


NOT_BEGUN, GOES_ON = "interrupted with 0 of 3 cases done", "interrupted with 1 of 3 cases done"
NO_BASELINE = "no baseline was written"


@pytest.mark.parametrize(
    ("code", "begun", "save", "outcomes", "said"),
    [
        (pytest.ExitCode.INTERRUPTED, True, None, {"a": "passed", "b": "failed"}, [GOES_ON]),
        (pytest.ExitCode.INTERRUPTED, True, "main", {"a": "passed"}, [NO_BASELINE, GOES_ON]),
        (pytest.ExitCode.INTERRUPTED, True, None, {}, [NOT_BEGUN]),  # while it counted
        (pytest.ExitCode.INTERRUPTED, False, "main", {}, [NO_BASELINE]),  # for a broken file
        (pytest.ExitCode.TESTS_FAILED, True, "main", {"a": "passed", "b": "failed"}, []),
    ],
)
def test_an_interrupted_run_lists_its_unfinished_work(
    code: pytest.ExitCode, begun: bool, save: Any, outcomes: Dict[str, str], said: List[str]
) -> None:
    results = SimpleNamespace(outcomes=outcomes, running={})
    config = SimpleNamespace(option=given_options(baseline_save=save))
    run: Any = SimpleNamespace(config=config, journal="", closing=[], begun=begun)
    run.order, run.results = ["a", "b", "c"], results
    interruption.note_early_end(run, code)
    assert len(run.closing) == len(said) and all(map(str.startswith, run.closing, said))
