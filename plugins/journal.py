"""The journal: every finished case is on disk at once, and a run can be continued.

One JSON-lines file per run under the results folder. Line types:

- ``run``: first line; format version, command line, when;
- ``case``: a measured case, a benchmark in pytest-benchmark's format (see plugins/record.py);
- ``fresh``: the same, measured once more in a fresh process;
- ``verdict``: what the gate said of a case;
- ``resume``: a later run goes on here; its process;
- ``outcome``: how the case's test ended (passed, failed, skipped).

Format history: 1 (first).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Generator, List, Optional

import pytest

from fixtures.config import config_hash
from plugins.record import record_of
from plugins.selection import case_of, selection_key

FORMAT = 1


@dataclass
class Results:
    """What this run has measured, by node id, in order."""

    benchmarks: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    #: The same cases measured again, each benchmark by a fresh process.
    fresh: Dict[str, List[Dict[str, Any]]] = field(default_factory=dict)
    verdicts: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    outcomes: Dict[str, str] = field(default_factory=dict)
    resumed: List[str] = field(default_factory=list)

    def take(self, line: Dict[str, Any]) -> None:
        """Add what one journal line says; a line that lacks its parts says nothing."""
        with contextlib.suppress(KeyError, TypeError):
            self._take(line)

    def _take(self, line: Dict[str, Any]) -> None:
        if line["type"] == "case":
            nodeid = line["benchmark"]["fullname"]
            self.benchmarks[nodeid] = line["benchmark"]
            self.fresh.pop(nodeid, None)
        elif line["type"] == "fresh":
            self.fresh.setdefault(line["benchmark"]["fullname"], []).append(line["benchmark"])
        elif line["type"] == "verdict":
            self.verdicts[line["case"]] = line["verdict"]
        elif line["type"] == "outcome":
            self.outcomes[line["case"]] = line["outcome"]


class Journal:
    """An append-only file of JSON lines; each is on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: Dict[str, Any]) -> None:
        """Add one line. Raises OSError."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass
class Run:
    """The journal of this session and what is in it."""

    journal: Journal
    results: Results
    note: str = ""
    broken: bool = False  # the journal could not take every line
    closing: List[str] = field(default_factory=list)  # lines for the end of the summary

    def add(self, line: Dict[str, Any]) -> None:
        """Put one line into the results and on disk; a disk that fails is reported once."""
        self.results.take(line)
        try:
            self.journal.append(line)
        except OSError as error:
            if not self.broken:
                self.broken = True
                self.closing.append(
                    f"results could no longer be written to {self.journal.path}: {error}; what is "
                    "missing there is only in this table"
                )


run_key = pytest.StashKey[Run]()


def read_lines(path: Path) -> List[Dict[str, Any]]:
    """Return the journal's sound lines; damaged ones, and a half-written last one, are left out."""
    lines = []
    with path.open("rb") as file:
        for text in file:
            try:
                line = json.loads(text.decode("utf-8"))
            except ValueError:
                continue
            if text.endswith(b"\n") and isinstance(line, dict) and "type" in line:
                lines.append(line)
    return lines


def command_line(config: pytest.Config) -> List[str]:
    """Return the words that decide what this run measures, without ``--resume``."""
    added = [
        f"{name}={os.environ[name]}"
        for name in ("PYTEST_ADDOPTS", "DATASETS_DIR")
        if name in os.environ
    ]
    return added + [str(word) for word in config.invocation_params.args if word != "--resume"]


def same_case(config: pytest.Config, item: pytest.Item, benchmark: Dict[str, Any]) -> bool:
    """Tell whether a stored result is that of the case as it is now, on this kind of device."""
    case, record = case_of(item), record_of(benchmark)
    return (
        case is not None
        and record["config_hash"] == config_hash(case.config, case.overrides)
        and record["device"]["kind"] == config.stash[selection_key].device
    )


def _new_run(config: pytest.Config, folder: Path) -> Run:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    journal = Journal(folder / f"run-{stamp}-{os.getpid()}.jsonl")
    journal.append(
        {
            "type": "run",
            "format": FORMAT,
            "command": command_line(config),
            "started": time.time(),
            "pid": os.getpid(),
        }
    )
    return Run(journal, Results())


def _resumed_run(config: pytest.Config, folder: Path, items: List[pytest.Item]) -> Optional[Run]:
    """Return the latest run with the same command line, or None."""
    for path in sorted(folder.glob("run-*.jsonl"), reverse=True):
        lines = read_lines(path)
        if not lines or lines[0].get("format") != FORMAT:
            continue
        if lines[0].get("command") != command_line(config) or _is_running(lines):
            continue
        run = Run(Journal(path), Results())
        for line in lines:
            run.results.take(line)
        results = run.results
        results.resumed = [
            item.nodeid
            for item in items
            if results.outcomes.get(item.nodeid) == "passed"
            and item.nodeid in results.benchmarks
            and same_case(config, item, results.benchmarks[item.nodeid])
        ]
        _keep(results, results.resumed)
        run.note = f"resuming {path}: {len(run.results.resumed)} cases are done"
        _drop_half_line(path)
        run.journal.append({"type": "resume", "pid": os.getpid()})
        return run
    return None


def _keep(results: Results, done: List[str]) -> None:
    """Forget what is to be measured anew."""
    for known in (results.benchmarks, results.fresh, results.verdicts, results.outcomes):
        for nodeid in [nodeid for nodeid in known if nodeid not in done]:
            del known[nodeid]


def _is_running(lines: List[Dict[str, Any]]) -> bool:
    """Tell whether the process that writes a journal is still there."""
    pids = [line["pid"] for line in lines if line["type"] in ("run", "resume") and "pid" in line]
    try:
        os.kill(pids[-1], 0)
    except (IndexError, OSError, TypeError, OverflowError):
        return False
    return True


def _drop_half_line(path: Path) -> None:
    """Cut a last line without its end, so that the next line starts on one of its own."""
    with path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def start(config: pytest.Config, items: List[pytest.Item]) -> List[pytest.Item]:
    """Open the run's journal; return the items that a resumed run has already done."""
    folder = Path(config.option.results_dir).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        resumed = _resumed_run(config, folder, items) if config.option.resume else None
        run = resumed or _new_run(config, folder)
    except OSError as error:
        raise pytest.UsageError(
            f"--results-dir={folder}: results cannot be written there: {error}; name another "
            "folder with --results-dir=PATH"
        ) from error
    if config.option.resume and resumed is None:
        run.note = f"nothing to resume in {folder} with this command line: a new run"
    config.stash[run_key] = run
    return [item for item in items if item.nodeid in run.results.resumed]


# After plugins/selection.py, which is registered before and is trylast too.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Once the selection is final, start the run and leave out what was resumed."""
    option = config.option
    # An instance measures nothing: the run that started it records what all of them did.
    idle = option.collectonly or option.describe or option.dry_run or option.instance is not None
    if idle or not any(map(case_of, items)):
        return
    done = start(config, items)
    if done:
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item not in done]


def pytest_report_collectionfinish(config: pytest.Config) -> List[str]:
    """Say where results go and what was resumed."""
    run = config.stash.get(run_key, None)
    if run is None:
        return []
    return [line for line in (run.note, f"results: {run.journal.path}") if line]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Record how a case ended: passed after its call, anything else whenever it happens."""
    report = (yield).get_result()
    run = item.config.stash.get(run_key, None)
    if run is None or case_of(item) is None:
        return
    if report.when == "call" or report.outcome != "passed":
        run.add({"type": "outcome", "case": item.nodeid, "outcome": report.outcome})


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A resumed run with nothing left to do has succeeded; one that lost lines has not."""
    run = session.config.stash.get(run_key, None)
    if run is None:
        return
    if run.results.resumed and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
    if run.broken and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
