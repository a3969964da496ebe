"""What `--against` compares this run with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ipubench.plugins.elsewhere.place import Place
from ipubench.plugins.record import host_process


@dataclass
class Against:
    """The other side."""

    root: Path  # of the project here
    environment: Place
    #: Why cases did not alternate round by round, and how many.
    not_alternated: Counter[str] = field(default_factory=Counter)

    def words(self) -> str:
        """Return in words what is compared with what."""
        text = self.environment.changes(host_process.versions())
        there = self.environment.revision
        if there is not None:
            here = host_process.git_revision(self.root)
            here = host_process.short_revision(here, 12) or "none"
            text += f"; commit {there.commit[:12]} there, {here} here"
        return text
