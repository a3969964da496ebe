"""`--resume`: which finished cases of an earlier run still count, and the run that goes on."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import has_fields, read_bytes
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.base import DeviceError
from ipubench.plugins.record import host_process, pytest_benchmark_adapter
from ipubench.plugins.record.record import record_of
from ipubench.plugins.run.conditions import apply_conditions
from ipubench.plugins.run.results import Run, SessionResults
from ipubench.plugins.selection.selected import case_of, selection_key

#: What verdicts depend on besides the cases: its name in words -> a digest.
depends_key = pytest.StashKey[Dict[str, str]]()
#: Says why what a journal holds of a case cannot be used, or ''.
damage_key = pytest.StashKey[Callable[[SessionResults, str], str]]()
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
    conditions: Dict[str, Any]
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

    def changed(self, record: Dict[str, Any]) -> str:
        """Return what was another where a case was measured, on such a device, or ''."""
        for what, before, now in (
            ("", record["conditions"], self.conditions),
            ("version of ", record.get("versions", {}), self.versions),
        ):
            for name, old, new in sorted(host_process.changes(before, now)):
                return f"{what}{name} changed ({old} -> {new})"
        return ""


#: The machines of a run that does not measure on this one.
machines_key = pytest.StashKey[Sequence[Machine]]()


def other_files(config: pytest.Config, before: Dict[str, Any]) -> List[str]:
    """Return the names of what verdicts depend on that was another ``before``."""
    now = circumstances(config)
    return [name for name in sorted({*before, *now} - {GIT}) if before.get(name) != now.get(name)]


def why_elsewhere(machines: Sequence[Machine], benchmark: Dict[str, Any]) -> str:
    """Return why a finished case is to be measured anew on these machines, or ''."""
    record = record_of(benchmark)
    fingerprint = record["device"]["fingerprint"]
    found = [one.changed(record) for one in machines if one.fingerprint == fingerprint]
    return min(found, default="this is another device")


def same_case(config: pytest.Config, item: pytest.Item, benchmark: Dict[str, Any]) -> bool:
    """Tell whether a stored result is that of the case as it is now, on this kind of device."""
    case, record = case_of(item), record_of(benchmark)
    return (
        case is not None
        and record["config_hash"] == config_hash(case.config, case.overrides)
        and record["device"]["kind"] == config.stash[selection_key].device
    )


def go_on(
    config: pytest.Config, run: Run, lines: List[Dict[str, Any]], items: List[pytest.Item]
) -> None:
    """Keep what still holds of an earlier run, say what does not, and go on in its journal."""
    results = run.results
    before = [line for line in lines if line["type"] in ("run", "resume")][-1]

    before = before["circumstances"] if has_fields(before, {"circumstances": dict}) else {}
    files = other_files(config, before)

    @functools.lru_cache(maxsize=None)
    def machines() -> Sequence[Machine]:
        """The device is only looked at where something depends on it."""
        return config.stash.get(machines_key, []) or [Machine.here(config)]

    def why_anew(item: pytest.Item) -> str:
        """Return why a case that has passed is to be measured anew, or ''."""
        benchmark = results.benchmarks.get(item.nodeid)
        if benchmark is None:  # its line may be damaged, or it measures nothing
            return "the journal has no result of them"
        # Whoever plans a report or a baseline of this run knows what they need of a result.
        why_damaged = config.stash.get(damage_key, lambda results, nodeid: "")
        whole = pytest_benchmark_adapter.can_adopt(benchmark)
        if not whole or why_damaged(results, item.nodeid):
            return "their results in the journal are damaged"
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
    run.journal.append(
        {
            "type": "resume",
            "pid": os.getpid(),
            "circumstances": circumstances(config),
            "kept": results.resumed,
        }
    )
