"""A signal that ends a run, and the report of unfinished work."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.plugins.run import interruption
from ipubench.plugins.run.interruption import Sigterm, Terminated
from tests.support.command_line import given_options


@pytest.mark.parametrize("finishing", [False, True])
def test_the_first_sigterm_ends_the_run_and_a_later_one_the_process(
    finishing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers: List[Any] = [object()]

    def handle(_: int, new: Any) -> Any:
        handlers.append(new)
        return handlers[-2]

    system = SimpleNamespace(SIGTERM=signal.SIGTERM, SIG_DFL=signal.SIG_DFL, signal=handle)
    monkeypatch.setattr(interruption, "signal", system)
    now = [100.0]
    sent: List[Any] = []
    monkeypatch.setattr(interruption, "time", SimpleNamespace(monotonic=lambda: now[0]))
    kill = SimpleNamespace(getpid=os.getpid, kill=lambda *given: sent.append(given))
    monkeypatch.setattr(interruption, "os", kill)
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.INTERRUPTED, shouldstop=False)
    handler = Sigterm(session)
    handler.finishing = finishing
    if finishing:
        handler(signal.SIGTERM, None)
    else:
        with pytest.raises(Terminated):
            handler(signal.SIGTERM, None)
    assert bool(session.shouldstop) == (not finishing)
    handler(signal.SIGTERM, None)  # timeout of coreutils sends two
    assert (handlers[-1], sent) == (handler, [])
    now[0] += 2
    handler(signal.SIGTERM, None)
    assert (handlers[-1], sent) == (signal.SIG_DFL, [(os.getpid(), signal.SIGTERM)])
    assert session.exitstatus == pytest.ExitCode.INTERRUPTED  # until all files are written
    assert handler.leave() and handlers[-1] == handlers[0]
    assert not Sigterm(session).leave()


@pytest.mark.parametrize(
    ("measures", "is_worker", "answers"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_a_measuring_run_handles_sigterm(
    measures: bool, is_worker: bool, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption, "measures", lambda config: measures)
    monkeypatch.setattr(interruption, "is_worker", lambda config: is_worker)
    session: Any = SimpleNamespace(config=None)
    handler = interruption.handle_sigterm(session)
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
