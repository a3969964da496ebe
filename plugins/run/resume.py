"""Implements `--resume`: continues an earlier run and keeps its finished cases if still valid."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Union

import pytest

from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.plugins.record import host_process
from ipubench.plugins.record.structs import Benchmark, as_plain
from ipubench.plugins.results.lines import Damaged, JournalLine, ResumeLine, RunLine
from ipubench.plugins.run.machine import Machine
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import case_of

GIT = "git"
#: The size limit of a file that verdicts depend on, such as a baseline.
MOST_BYTES = 64 << 20
# Why a finished case is measured again.
NO_RESULT = "the journal has no result of them"
DAMAGED_RESULT = "their results in the journal are damaged"
OTHER_DEVICE = "this is another device"


def digest(path: Path) -> str:
    """Return a digest of a file's content, or the error if it cannot be read."""
    try:
        return hashlib.sha256(read_bytes(path, MOST_BYTES)).hexdigest()
    except OSError as error:
        return str(error.strerror)


def circumstances(run: Recording) -> Dict[str, Optional[str]]:
    """Return what must be the same to resume a run, as the journal stores it."""
    root = run.config.rootpath
    changes = host_process.uncommitted_changes(root)
    return {GIT: host_process.git_revision(root), "the working tree": changes, **run.depends}


def other_files(run: Recording, before: Mapping[str, Optional[str]]) -> List[str]:
    """Return the names of files that verdicts depend on and that have changed since ``before``."""
    now = circumstances(run)
    return [name for name in sorted({*before, *now} - {GIT}) if before.get(name) != now.get(name)]


def why_elsewhere(machines: Sequence[Machine], benchmark: Benchmark) -> str:
    """Return why a finished case must be measured again on these machines, or ''."""
    fingerprint = benchmark.record.device.fingerprint
    found = [one.changed(benchmark.record) for one in machines if one.fingerprint == fingerprint]
    return min(found, default=OTHER_DEVICE)


def same_case(device: str, item: pytest.Item, benchmark: Benchmark) -> bool:
    """Return whether a stored result has the case's current configuration and kind of device."""
    case, record = case_of(item), benchmark.record
    return (
        case is not None
        and record.config_hash == config_hash(case.config, case.overrides)
        and record.device.kind == device
    )


def resume_run(
    run: Recording,
    lines: Sequence[Union[JournalLine, Damaged]],
    items: Sequence[pytest.Item],
) -> None:
    """Keep the valid cases of an earlier run, note the others, and continue its journal."""
    results, device = run.results, run.selection.device
    begun = [line for line in lines if isinstance(line, (RunLine, ResumeLine))]
    before = begun[-1].circumstances
    files = other_files(run, before)

    @functools.lru_cache(maxsize=None)
    def machines() -> Sequence[Machine]:
        """Return the machines; lazy, so that the device is examined only if needed."""
        return run.machines or [Machine.here(run.config, device)]

    def why_again(item: pytest.Item) -> str:
        """Return why a passed case must be measured again, or ''."""
        benchmark = results.benchmarks.get(item.nodeid)
        if item.nodeid in results.unreadable:
            return DAMAGED_RESULT
        if benchmark is None:  # the test measured nothing
            return NO_RESULT
        if not same_case(device, item, benchmark):
            return "its configuration changed"
        if files:
            return f"{' and '.join(files)} changed"
        return why_elsewhere(machines(), benchmark)

    passed = [item for item in items if results.outcomes.get(item.nodeid) == "passed"]
    changed = {item.nodeid: why_again(item) for item in passed}
    results.resumed = [nodeid for nodeid, why in changed.items() if not why]
    same = not files and circumstances(run)[GIT] == before.get(GIT)
    waiting = [item for item in items if same and item.nodeid in results.pairs]
    compared = [
        item.nodeid for item in waiting if item.nodeid not in changed and not why_again(item)
    ]
    results.resume(results.resumed, compared)
    done = counted(len(results.resumed), "case is done", "cases are done")
    run.note = f"resuming {run.path}: {done}"
    if compared:
        run.note += f", the pairs of {counted(len(compared), 'case')} are kept"
    reasons = sorted({reason for reason in changed.values() if reason})
    if reasons:
        repeated = sum(map(bool, changed.values()))
        run.note += f"; {repeated} measured again, because {', '.join(reasons)}"
    git = circumstances(run)[GIT]
    if results.resumed and before.get(GIT) != git:
        run.note += f"; the project's revision changed ({before.get(GIT)} -> {git})"
    run.journal.drop_half_line()
    line = ResumeLine(results.resumed, compared, os.getpid(), circumstances(run))
    run.journal.append(as_plain(line))
