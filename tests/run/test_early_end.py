"""A signal that ends a run, and what the run says of what it left undone."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.plugins.run import interruption
from ipubench.plugins.run.interruption import EXIT_TERMINATED, Sigterm, Terminated
from ipubench.plugins.run.results import run_key

BEFORE = object()


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """Stand in for the system: the handlers of SIGTERM, the latest one last."""
    given: List[Any] = [BEFORE]

    def handle(number: int, handler: Any) -> Any:
        assert number == signal.SIGTERM
        given.append(handler)
        return given[-2]

    system = SimpleNamespace(
        SIGTERM=signal.SIGTERM, SIG_IGN=signal.SIG_IGN, SIG_DFL=signal.SIG_DFL, signal=handle
    )
    monkeypatch.setattr(interruption, "signal", system)
    return given


@pytest.mark.parametrize("finishing", [False, True])
def test_the_first_sigterm_ends_the_run_and_a_later_one_the_process(
    finishing: bool, handlers: List[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.INTERRUPTED, shouldstop=False)
    handler = Sigterm(session)
    handler.finishing = finishing
    now, sent = [100.0], []
    monkeypatch.setattr(handler, "_clock", lambda: now[0])
    monkeypatch.setattr(os, "kill", lambda *process_and_signal: sent.append(process_and_signal))
    if finishing:
        handler(signal.SIGTERM, None)
    else:
        with pytest.raises(Terminated):
            handler(signal.SIGTERM, None)
    assert bool(session.shouldstop) == (not finishing)
    handler(signal.SIGTERM, None)  # timeout sends two
    assert (handlers[-1], sent) == (handler, [])
    now[0] += 2
    handler(signal.SIGTERM, None)
    assert (handlers[-1], sent) == (signal.SIG_DFL, [(os.getpid(), signal.SIGTERM)])
    assert session.exitstatus == pytest.ExitCode.INTERRUPTED  # until all files are written
    handler.leave()
    assert (handlers[-1], session.exitstatus) == (BEFORE, EXIT_TERMINATED)


def test_a_run_that_no_signal_ended_keeps_its_exit_code(handlers: List[Any]) -> None:
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    Sigterm(session).leave()
    assert (handlers[-1], session.exitstatus) == (BEFORE, pytest.ExitCode.OK)


@pytest.mark.parametrize(
    ("measures", "is_worker", "thread", "answers"),
    [
        (True, False, "main", True),
        (True, False, "another", False),
        (True, True, "main", False),
        (False, False, "main", False),
    ],
)
def test_sigterm_is_answered_where_a_run_measures_for_itself(
    measures: bool,
    is_worker: bool,
    thread: str,
    answers: bool,
    handlers: List[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interruption, "measures", lambda config: measures)
    monkeypatch.setattr(interruption, "is_worker", lambda config: is_worker)
    threads = SimpleNamespace(current_thread=lambda: thread, main_thread=lambda: "main")
    monkeypatch.setattr(interruption, "threading", threads)
    session: Any = SimpleNamespace(config=SimpleNamespace(stash={}))
    interruption.pytest_sessionstart(session)
    assert isinstance(handlers[-1], Sigterm) == answers
    interruption.pytest_sessionfinish_begins(session)
    assert not answers or handlers[-1].finishing


GOES_ON = "interrupted with 1 of 3 cases done; the same command with --resume goes on"
INTERRUPTED = "no baseline was written: the run was interrupted"
UNCOLLECTED = "no baseline was written: a file could not be collected"


@pytest.mark.parametrize(
    ("code", "given", "errors", "said"),
    [
        (pytest.ExitCode.INTERRUPTED, {}, 0, [GOES_ON]),
        (pytest.ExitCode.INTERRUPTED, {"baseline_save": "main"}, 0, [INTERRUPTED, GOES_ON]),
        (pytest.ExitCode.INTERRUPTED, {"baseline_save": "main"}, 1, [UNCOLLECTED]),
        (pytest.ExitCode.INTERRUPTED, {}, 1, []),
        (pytest.ExitCode.INTERRUPTED, {"continue_on_collection_errors": True}, 1, [GOES_ON]),
        (pytest.ExitCode.TESTS_FAILED, {"baseline_save": "main"}, 0, []),
    ],
)
def test_what_an_interrupted_run_left_undone_is_said(
    code: pytest.ExitCode, given: Dict[str, Any], errors: int, said: List[str]
) -> None:
    results = SimpleNamespace(outcomes={"a": "passed", "b": "failed"})
    run = SimpleNamespace(order=["a", "b", "c"], results=results, closing=[])
    option = {"baseline_save": None, "continue_on_collection_errors": False, **given}
    config = SimpleNamespace(option=SimpleNamespace(**option), stash={run_key: run})
    session: Any = SimpleNamespace(config=config, exitstatus=code, testsfailed=errors)
    interruption.pytest_runtestloop(session)
    session.testsfailed += 1  # a test's failure is no error of the collection
    interruption.pytest_sessionfinish(session)
    assert run.closing == said


def test_an_interrupted_run_that_measures_nothing_has_nothing_to_say() -> None:
    config = SimpleNamespace(stash={})
    session: Any = SimpleNamespace(config=config, exitstatus=pytest.ExitCode.INTERRUPTED)
    interruption.pytest_sessionfinish(session)
    assert session.exitstatus == pytest.ExitCode.INTERRUPTED
