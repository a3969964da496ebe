"""The baseline that a run is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import AbstractSet, Dict, Iterable, List, Optional

from ipubench.fixtures.machine.files import kind_of
from ipubench.plugins.baseline.entries import by_case, find, gone, key_of, software_since
from ipubench.plugins.record.record import of_test
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.selection.selected import Selection


@dataclass
class StoredBaseline:
    """The baseline of this run."""

    path: Path
    entries: List[Benchmark]
    #: Its cases, each with its test.
    tests: Dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._by_case = by_case(self.entries)
        self.tests = {entry.fullname: of_test(entry) for entry in self.entries}

    @property
    def stored(self) -> AbstractSet[str]:
        """Its cases."""
        return self.tests.keys()

    def find(self, benchmark: Benchmark) -> Optional[Benchmark]:
        """Return the entry to compare a measured case with; None if the case is new."""
        return find(self._by_case, *key_of(benchmark))

    def newest(self, nodeid: str) -> Optional[Benchmark]:
        """Return the newest entry of a case, whatever its machine and configuration."""
        entries = self._by_case.get(nodeid, ())
        return max(entries, key=lambda entry: entry.record.time, default=None)

    def software(self, benchmarks: Iterable[Benchmark]) -> str:
        """Return the changes of versions and commits since the entries, as text, or ''."""
        return software_since(self._by_case, benchmarks)

    def missing(self, selection: Selection, root: Path) -> List[str]:
        """Return stored cases that no longer exist among those collected before ``-k``.

        Ignores cases of files and classes that were not collected.
        """
        known = selection.nodeids | selection.tests
        files = {nodeid.split("::")[0] for nodeid in known}
        unknown = tuple(f"{nodeid}::" for nodeid in selection.unknown)

        def was_collected(nodeid: str) -> bool:
            name = nodeid.split("::")[0]
            try:
                here = name in files or not kind_of(root / name)
            except OSError:
                return False
            return here and not nodeid.startswith(unknown)

        return sorted(
            {entry.fullname for entry in gone(self.entries, known) if was_collected(entry.fullname)}
        )
