"""Where a case was measured."""

from __future__ import annotations

from typing import Dict, Iterable, Set, Tuple

from ipubench.plugins.record.structs import Benchmark

#: The node id of a case and the fingerprint of a device, '' if unknown.
EntryKey = Tuple[str, str]


def place_of(benchmark: Benchmark) -> EntryKey:
    """Return the case of an entry and the machine that measured it."""
    return benchmark.fullname, benchmark.record.device.fingerprint


def names_of(places: Iterable[EntryKey]) -> Dict[EntryKey, str]:
    """Return a name for each place: its node id, plus the machine if there are several."""
    machines: Dict[str, Set[str]] = {}
    known = list(dict.fromkeys(places))
    for nodeid, machine in known:
        machines.setdefault(nodeid, set()).update({machine} - {""})
    return {
        (nodeid, machine): f"{nodeid} on {machine}"
        if machine and len(machines[nodeid]) > 1
        else nodeid
        for nodeid, machine in known
    }
