"""What a run selected: its cases, what was left out and why, and which case an item runs."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path
from typing import Callable, Counter, Dict, List, Optional, Sequence, Set

import pytest

from ipubench.fixtures.case.cases import Case, case_key

# Fixture name -> marker: a case's framework is the runtime it asks for.
FRAMEWORKS = {
    "tensorflow": "tensorflow",
    "pytorch": "torch",
    "popart": "popart",
    "triton": "triton",
}


@dataclasses.dataclass
class Selection:
    """What was asked for and what was left out, for the header and for the gate."""

    assignments: Dict[str, List[str]]
    device: str
    #: All cases of the collected files, with the command line's overrides and without; also those
    #: beside a test that the command line names.
    nodeids: Set[str] = dataclasses.field(default_factory=set)
    #: All other tests of the collected files, which may turn out to measure.
    tests: Set[str] = dataclasses.field(default_factory=set)
    #: The files and classes that were found, and those that were collected.
    found: Set[str] = dataclasses.field(default_factory=set)
    collected: Set[str] = dataclasses.field(default_factory=set)
    #: Node id -> the identifiers that its case would have without overrides.
    base_ids: Dict[str, Set[str]] = dataclasses.field(default_factory=dict)
    #: The names of this device's cases, before ``-k``.
    names: List[str] = dataclasses.field(default_factory=list)
    functions: List[str] = dataclasses.field(default_factory=list)  # those of all cases
    unused: Set[str] = dataclasses.field(default_factory=set)  # given, without effect on a host
    left_out: Counter[str] = dataclasses.field(default_factory=collections.Counter)
    invalid: List[str] = dataclasses.field(
        default_factory=list
    )  # points of a sweep that are not run
    empty: bool = False  # ``-k`` and the like leave nothing, before what a resumed run has done
    warnings: Dict[str, List[str]] = dataclasses.field(default_factory=dict)  # -> their cases
    #: Files of cases that the command line names: what the node ids in one begin with -> its path.
    named_files: Dict[str, Path] = dataclasses.field(default_factory=dict)
    #: Cases of one identifier: node id -> the folder that has the case's own.
    folders: Dict[str, str] = dataclasses.field(default_factory=dict)
    #: The file that has the test of a node id.
    files: Dict[str, Path] = dataclasses.field(default_factory=dict)
    #: Marked tests whose call is measured: how often, if that is given.
    calls: Dict[str, Optional[int]] = dataclasses.field(default_factory=dict)

    @property
    def unknown(self) -> Set[str]:
        """What may have cases that nobody knows: with FILE::TEST pytest collects no class."""
        return self.found - self.collected

    def leave_out(
        self, items: List[pytest.Item], reason_of: Callable[[pytest.Item, Case], str]
    ) -> None:
        """Take out the cases for which there is a reason; the header counts them by it.

        ``reason_of`` returns '' for a case that stays.
        """
        found = [(item, case_of(item)) for item in items]
        reasons = [reason_of(item, case) if case is not None else "" for item, case in found]
        dropped = [item for item, reason in zip(items, reasons) if reason]
        if dropped:
            self.left_out.update(filter(None, reasons))
            dropped[0].config.hook.pytest_deselected(items=dropped)
            items[:] = [item for item, reason in zip(items, reasons) if not reason]


def case_of(item: pytest.Item) -> Optional[Case]:
    """Return the case that a collected item runs, or None for a test that measures nothing."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("ipubench_case") if callspec is not None else None
    return case if isinstance(case, Case) else item.stash.get(case_key, None)


def cases_among(items: Sequence[pytest.Item]) -> List[Case]:
    """Return the cases that the collected items run."""
    return [case for case in map(case_of, items) if case is not None]


def framework_of(item: pytest.Item) -> Optional[str]:
    """Return the framework that a case is marked with: tensorflow, torch, popart, triton.

    Of a test without ``@cases`` it is python.
    """
    marked = (name for name in FRAMEWORKS.values() if item.get_closest_marker(name))
    return next(marked, "python" if case_key in item.stash else None)
