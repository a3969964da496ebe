"""The selection of a run: its cases, and what was left out and why."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path
from typing import Callable, Counter, Dict, List, Optional, Sequence, Set

import pytest

from ipubench.fixtures.case.cases import Case, case_key

# Runtime fixture -> the marker of the cases that use it.
FRAMEWORKS = {
    "tensorflow": "tensorflow",
    "pytorch": "torch",
    "popart": "popart",
    "triton": "triton",
}
#: Why --data or --precision leaves out a case.
#: Options of all cases that a test without our runtimes may lack.
COMMON = ("data", "precision")
NOT_OFFERED = ", which they do not have"


@dataclasses.dataclass
class Selection:
    """The selected cases and those left out, for the header and for the gate."""

    assignments: Dict[str, List[str]]
    device: str
    #: Whether the command line names only this project's tests, which time nothing.
    own_tests: bool = False
    #: The node ids of all cases of the collected files, with the command line's overrides and
    #: without; also of cases that the command line does not name.
    nodeids: Set[str] = dataclasses.field(default_factory=set)
    #: All other tests of the collected files. Some may turn out to measure.
    tests: Set[str] = dataclasses.field(default_factory=set)
    #: The files and classes that pytest found, and those that it collected.
    found: Set[str] = dataclasses.field(default_factory=set)
    collected: Set[str] = dataclasses.field(default_factory=set)
    #: The command line's paths and node ids, while pytest collects whole functions.
    words: List[str] = dataclasses.field(default_factory=list)
    #: Those that skip all their tests while they are imported.
    skipped: Set[str] = dataclasses.field(default_factory=set)
    #: Node id -> the identifiers that its case would have without overrides.
    base_ids: Dict[str, Set[str]] = dataclasses.field(default_factory=dict)
    #: The names of this device's cases, before ``-k``.
    names: List[str] = dataclasses.field(default_factory=list)
    #: What ``-k`` finds on this device: identifiers and functions.
    words_of_k: List[str] = dataclasses.field(default_factory=list)
    #: The names of the functions of all cases.
    functions: List[str] = dataclasses.field(default_factory=list)
    #: Options that were given and have no effect on a host.
    unused: Set[str] = dataclasses.field(default_factory=set)
    #: Reason -> how many cases are left out for it.
    left_out: Counter[str] = dataclasses.field(default_factory=collections.Counter)
    #: Values of a sweep that do not run.
    invalid: List[str] = dataclasses.field(default_factory=list)
    #: No case is selected, even without those that a resumed run has done.
    empty: bool = False
    #: Warning -> its cases.
    warnings: Dict[str, List[str]] = dataclasses.field(default_factory=dict)
    #: For each file that the command line names: the beginning of its node ids -> its path.
    named_files: Dict[str, Path] = dataclasses.field(default_factory=dict)
    #: For cases that share an identifier: node id -> the folder for its files.
    folders: Dict[str, str] = dataclasses.field(default_factory=dict)
    #: Node id -> the file of its test.
    files: Dict[str, Path] = dataclasses.field(default_factory=dict)
    #: Marked test -> how often it is called, if that is given.
    calls: Dict[str, Optional[int]] = dataclasses.field(default_factory=dict)

    @property
    def unknown(self) -> Set[str]:
        """The classes that pytest did not look into, because of FILE::TEST; they may have cases."""
        return self.found - self.collected

    def leave_out(
        self, items: List[pytest.Item], reason_of: Callable[[pytest.Item, Case], str]
    ) -> None:
        """Deselect each case that has a reason, and count it for the header.

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
    """Return the case of a collected test, or None if it measures nothing."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("ipubench_case") if callspec is not None else None
    return case if isinstance(case, Case) else item.stash.get(case_key, None)


def cases_among(items: Sequence[pytest.Item]) -> List[Case]:
    """Return the cases of the collected tests."""
    return [case for case in map(case_of, items) if case is not None]


def framework_of(item: pytest.Item) -> Optional[str]:
    """Return the framework of a case: tensorflow, torch, popart, triton.

    For a test without ``@cases`` it is python; None for a test that measures nothing.
    """
    marked = (name for name in FRAMEWORKS.values() if item.get_closest_marker(name))
    return next(marked, "python" if case_key in item.stash else None)
