"""`--resume`: which finished cases of an earlier run still count, and the run that goes on."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Union

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.base import DeviceError
from ipubench.plugins.record import host_process
from ipubench.plugins.record.structs import Benchmark, Facts, Record, as_plain
from ipubench.plugins.run.conditions import apply_conditions
from ipubench.plugins.run.lines import Damaged, JournalLine, ResumeLine, RunLine
from ipubench.plugins.run.results import Run
from ipubench.plugins.selection.selected import case_of, selection_key

#: What verdicts depend on besides the cases: its name in words -> a digest.
depends_key = pytest.StashKey[Dict[str, str]]()
GIT = "git"
#: Of a file that verdicts depend on; a baseline is the largest.
MOST_BYTES = 64 << 20


def depends_on(config: pytest.Config, what: str, value: str) -> None:
    """Have a resumed run measure anew where ``value``, a digest of ``what``, is another."""
    config.stash.setdefault(depends_key, {})[what] = value


def digest(path: Path) -> str:
    """Return a digest of a file's content; of one that cannot be read, why."""
    try:
        return hashlib.sha256(read_bytes(path, MOST_BYTES)).hexdigest()
    except OSError as error:
        return str(error.strerror)


def circumstances(config: pytest.Config) -> Dict[str, Optional[str]]:
    """Return what a journal's line says of the run, to be compared when it is resumed."""
    depends = config.stash.get(depends_key, {})
    return {GIT: host_process.git_revision(config.rootpath), **depends}


@dataclass(frozen=True)
class Machine:
    """Where cases may be measured: its device, the conditions that hold there, the versions."""

    fingerprint: str
    description: str
    leases: List[str]  # what nobody else may hold while it measures
    conditions: Facts
    versions: Dict[str, str]

    @classmethod
    def here(cls, config: pytest.Config) -> Machine:
        """Look at this machine; UsageError without the device.

        The device is looked at, not leased: another run may have it for now.
        """
        option = options_of(config)
        device = devices.make(
            config.stash[selection_key].device, option.device_id, option.affinity == "cores"
        )
        try:
            info = device.attach()
        except DeviceError as error:
            raise pytest.UsageError(str(error)) from None
        conditions = apply_conditions(info.kind, option.affinity, option.allocator)
        device.release()
        leases = list(device.leases())
        return cls(info.fingerprint, info.name, leases, conditions, host_process.versions())

    def changed(self, record: Record) -> str:
        """Return what was another where a case was measured, on such a device, or ''."""
        for what, before, now in (
            ("", record.conditions, self.conditions),
            ("version of ", record.versions, self.versions),
        ):
            for name, old, new in sorted(host_process.changes(before, now)):
                return f"{what}{name} changed ({old} -> {new})"
        return ""


#: The machines of a run that does not measure on this one.
machines_key = pytest.StashKey[Sequence[Machine]]()


def other_files(config: pytest.Config, before: Mapping[str, Optional[str]]) -> List[str]:
    """Return the names of what verdicts depend on that was another ``before``."""
    now = circumstances(config)
    return [name for name in sorted({*before, *now} - {GIT}) if before.get(name) != now.get(name)]


def why_elsewhere(machines: Sequence[Machine], benchmark: Benchmark) -> str:
    """Return why a finished case is to be measured anew on these machines, or ''."""
    fingerprint = benchmark.record.device.fingerprint
    found = [one.changed(benchmark.record) for one in machines if one.fingerprint == fingerprint]
    return min(found, default="this is another device")


def same_case(config: pytest.Config, item: pytest.Item, benchmark: Benchmark) -> bool:
    """Tell whether a stored result is that of the case as it is now, on this kind of device."""
    case, record = case_of(item), benchmark.record
    return (
        case is not None
        and record.config_hash == config_hash(case.config, case.overrides)
        and record.device.kind == config.stash[selection_key].device
    )


def go_on(
    config: pytest.Config,
    run: Run,
    lines: Sequence[Union[JournalLine, Damaged]],
    items: List[pytest.Item],
) -> None:
    """Keep what still holds of an earlier run, say what does not, and go on in its journal."""
    results = run.results
    begun = [line for line in lines if isinstance(line, (RunLine, ResumeLine))]
    before = begun[-1].circumstances
    files = other_files(config, before)

    @functools.lru_cache(maxsize=None)
    def machines() -> Sequence[Machine]:
        """The device is only looked at where something depends on it."""
        return config.stash.get(machines_key, []) or [Machine.here(config)]

    def why_anew(item: pytest.Item) -> str:
        """Return why a case that has passed is to be measured anew, or ''."""
        benchmark = results.benchmarks.get(item.nodeid)
        if item.nodeid in results.damaged:
            return "their results in the journal are damaged"
        if benchmark is None:  # it measures nothing
            return "the journal has no result of them"
        if not same_case(config, item, benchmark):
            return "its configuration changed"
        if files:
            return f"{' and '.join(files)} changed"
        return why_elsewhere(machines(), benchmark)

    passed = [item for item in items if results.outcomes.get(item.nodeid) == "passed"]
    changed = {item.nodeid: why_anew(item) for item in passed}
    results.resumed = [nodeid for nodeid, why in changed.items() if not why]
    results.resume(results.resumed)
    done = counted(len(results.resumed), "case is done", "cases are done")
    run.note = f"resuming {run.journal.path}: {done}"
    reasons = sorted({reason for reason in changed.values() if reason})
    if reasons:
        anew = sum(map(bool, changed.values()))
        run.note += f"; {anew} measured anew, since {', '.join(reasons)}"
    git = circumstances(config)[GIT]
    if results.resumed and before.get(GIT) != git:
        run.note += f"; the project's revision changed ({before.get(GIT)} -> {git})"
    run.journal.drop_half_line()
    line = ResumeLine(results.resumed, os.getpid(), circumstances(config))
    run.journal.append(as_plain(line))
