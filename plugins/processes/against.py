"""The environment that `--against` compares this run with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Set

from ipubench.fixtures.machine.packages import installed
from ipubench.plugins.processes.place import Place
from ipubench.plugins.record import host_process


@dataclass
class Against:
    """The other environment, and the cases that could not alternate with it."""

    root: Path  # of the project here
    environment: Place
    #: Reason -> how many cases did not alternate round by round.
    not_alternated: Counter[str] = field(default_factory=Counter)
    #: Cases that are selected there and do not exist here any more.
    missing: List[str] = field(default_factory=list)
    #: Cases that are selected there, and why nothing is measured here.
    unmeasured: Dict[str, str] = field(default_factory=dict)
    #: The cases that are selected there; empty if unknown.
    cases: Set[str] = field(default_factory=set)

    def description(self) -> str:
        """Return the differences in versions and commits."""
        here = installed() if self.environment.installed else {}
        text = self.environment.changes({**host_process.versions(), **here})
        there = self.environment.revision
        if there is not None:
            commit = host_process.git_revision(self.root)
            commit = host_process.short_revision(commit, 12) or "none"
            text += f"; commit {there.commit[:12]} there, {commit} here"
        return text
