"""What this run has counted, and what follows from it for each case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.count.process import CountingProcess
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.structs import CountedCase
from ipubench.plugins.record.text import GateLimits


def counts(config: pytest.Config) -> bool:
    """Whether this run counts instructions."""
    option = options_of(config)
    return option.count is not None or GateLimits.of(option.gate).instructions is not None


def alone(config: pytest.Config) -> bool:
    """Whether counts alone decide, so that nothing is timed."""
    gate = GateLimits.of(options_of(config).gate)
    return gate.throughput is gate.energy is None and gate.instructions is not None


@dataclass
class Counting:
    """What is counted here, and with ``--against`` there."""

    here: CountingProcess
    there: List[CountingProcess]  # one or none
    alone: bool
    #: Case -> what each process counted.
    counted: Dict[str, List[CountedCase]] = field(default_factory=dict)
    counted_there: Dict[str, List[CountedCase]] = field(default_factory=dict)

    def of(self, nodeid: str) -> Counts:
        """Return the counts of a case here."""
        return Counts.of_processes(self.counted.get(nodeid, ()))

    def of_other(self, nodeid: str) -> Counts:
        """Return the counts of a case on the other side."""
        return Counts.of_processes(self.counted_there.get(nodeid, ()))
