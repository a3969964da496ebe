"""Which hosts of a fleet can measure a case, and which of them should."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set

import pytest

from ipubench.fixtures.instances.plan import instances_of
from ipubench.plugins.baseline.entries import key_of
from ipubench.plugins.fleet.facts import HostFacts
from ipubench.plugins.fleet.schedule import Task
from ipubench.plugins.record.record import named
from ipubench.plugins.selection.selected import case_of


class Placing:
    """Knows the members of a fleet and what a baseline has of their machines."""

    def __init__(
        self,
        facts: Mapping[str, HostFacts],
        alone: Mapping[str, bool],
        nodeids: Mapping[str, Sequence[str]],
        entries: Sequence[Dict[str, Any]],
    ) -> None:
        """``alone``: whether a member has all devices of its host; ``entries``: of a baseline."""
        self._facts = facts
        self._alone = alone
        self._nodeids = {name: frozenset(found) for name, found in nodeids.items()}
        self._known: Dict[str, Set[str]] = {}
        for entry in entries:
            self._known.setdefault(entry["fullname"], set()).add(key_of(entry).fingerprint)

    def able(self, item: pytest.Item) -> List[str]:
        """Return the members that collected a case and have enough devices for it."""
        case = case_of(item)
        needed = 1
        if case is not None and case.config.ipus:
            needed = case.config.ipus * instances_of(case.config)
        return [
            name
            for name, found in self._nodeids.items()
            if item.nodeid in found and needed <= self._devices(name)
        ]

    def _devices(self, name: str) -> int:
        """Return how many devices a member has for a case."""
        found = self._facts[name].devices
        return len(found) if found and self._alone[name] else 1

    def task(self, item: pytest.Item) -> Task:
        """Return a case with its members: where the baseline has it of some machines, of these."""
        able = self.able(item)
        known = self._known.get(item.nodeid, ())
        same = [name for name in able if self._facts[name].fingerprint in known]
        return Task(item.nodeid, frozenset(same or able), frozenset(able))

    def on_each(self, item: pytest.Item) -> List[Task]:
        """Return a case once for each member that can measure it."""
        able = [(name, frozenset({name})) for name in self.able(item)]
        return [Task(named(item.nodeid, name), alone, alone) for name, alone in able]

    def turns(self) -> Dict[str, str]:
        """Return what each member shares with another one: a device, or a machine's processors."""
        shared: Dict[str, List[str]] = {}
        for name, one in self._facts.items():
            if one.machine and one.leases:
                shared.setdefault(f"{one.leases[0]} of {one.machine}", []).append(name)
        return {n: what for what, names in shared.items() if len(names) > 1 for n in names}
