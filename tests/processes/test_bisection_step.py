"""A step of `ipubench-bisect`: its command, its words, and how it ends what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.plugins.processes import bisection, only_from


@pytest.mark.parametrize(
    ("verdicts", "code", "words"),
    [
        ([], 5, "no verdict (exit code 5)"),
        (
            [{"kind": "regressed", "change": -0.2, "reasons": ["x", "y"]}, {"kind": "pass"}],
            1,
            "regressed -20.0% (x), pass",
        ),
        ([{"kind": "pass", "change": 0.0}], 0, "pass +0.0%"),
        ([{"kind": "pass"}], 1, "pass; another case failed (exit code 1)"),
        ([{"kind": "inconclusive"}], 1, "inconclusive"),
    ],
)
def test_the_words_of_a_step(verdicts: List[Dict[str, Any]], code: int, words: str) -> None:
    assert bisection._words({str(n): one for n, one in enumerate(verdicts)}, code) == words


@pytest.mark.parametrize("suite", [True, False])
def test_the_command_of_a_step(
    tmp_path: Path, suite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that only uses the suite must not import its own checkout."""
    started: List[Any] = []

    def run(command: List[str], **options: Any) -> Any:
        started.extend((command, options["cwd"], options["env"]))
        options["stdout"].write(b"well")
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("PYTHONPATH", "/sdk")
    monkeypatch.setenv("GIT_DIR", "/own/.git")
    project, results = tmp_path / "project", tmp_path / "results"
    results.mkdir()
    if suite:
        (project / "ipubench").mkdir(parents=True)
        (project / "ipubench" / "__init__.py").touch()
    found = bisection._measure(Path("/here"), project, "good", ["-k", "beta"], results)
    assert found == (3, "well")
    command, folder, environment = started
    assert command == [
        *(sys.executable, os.path.realpath(only_from.__file__), str(project)),
        *([] if suite else ["--instead-of=/here"]),
        *("-q", "--continue-on-collection-errors", f"--rootdir={project}"),
        *("-o", f"cache_dir={results}/cache"),
        *("--against=git:good", f"--results-dir={results}", "-k", "beta"),
    ]
    assert folder == str(project)
    assert environment["PYTHONPATH"] == f"{project}:/sdk" and "GIT_DIR" not in environment


def test_a_signal_that_a_program_was_started_to_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with bisection._answering([signal.SIGHUP], bisection._exit):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_does_not_cut_the_end_short() -> None:
    before = [signal.getsignal(one) for one in bisection.ENDING]
    with pytest.raises(SystemExit) as ended:
        bisection._exit(signal.SIGHUP, None)
    left = [signal.signal(one, old) for one, old in zip(bisection.ENDING, before)]
    assert ended.value.code == 129
    assert left == [signal.SIG_IGN, signal.SIG_IGN]


def test_what_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisection, "GRACE_SECONDS", 0.05)
    program = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('begun', flush=True)\n"
        "signal.alarm(20)\n"
        "signal.pause()\n"
    )
    words = [sys.executable, "-S", "-c", program]
    with bisection._started(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    assert process.returncode == -signal.SIGKILL
