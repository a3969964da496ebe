"""What a run knows, from its command line to its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, List, Optional, Set, Tuple

import pytest

from ipubench.fixtures.instances.instance import Instance
from ipubench.plugins.baseline.comparison import Comparison
from ipubench.plugins.baseline.entries import Place
from ipubench.plugins.count.state import Counting
from ipubench.plugins.elsewhere.against import Against
from ipubench.plugins.gate.policy_file import Policy
from ipubench.plugins.run.bounds import Bounds
from ipubench.plugins.run.gate_time import GateTime
from ipubench.plugins.run.interruption import Sigterm
from ipubench.plugins.run.progress import Progress
from ipubench.plugins.run.results import Recording
from ipubench.plugins.run.time_spent import TimeSpent, seconds_of_start
from ipubench.plugins.run.within import TimeLimit

#: The flags of a case's TensorFlow that differ between cases, in a stable order.
Flags = Tuple[Tuple[str, Optional[str]], ...]


@dataclass
class Run(Recording):
    """One run: what was asked, what is measured, what it is compared with, and how it goes."""

    #: As one of several instances that run a case together, for another run.
    member: Optional[Instance] = None
    started: float = field(default_factory=time.time)
    spent: TimeSpent = field(default_factory=lambda: TimeSpent(before=seconds_of_start()))
    #: The line of the case that runs; until pytest has its terminal, nothing is shown.
    progress: Progress = field(init=False)
    bounds: Bounds = field(init=False)
    #: The time of --within.
    limit: Optional[TimeLimit] = None
    #: What the gate's processes have of --gate-time.
    gate_time: GateTime = field(default_factory=lambda: GateTime(None, 0))
    #: What is compared with, and what a case may lose.
    baseline: Optional[Comparison] = None
    against: Optional[Against] = None
    same: str = ""  # why nothing is compared: --against names this side
    policy: Optional[Policy] = None
    #: What is counted beside the times, with --count.
    counting: Optional[Counting] = None
    #: The cases, each with its machine, of which the baseline to be saved has an entry to judge by.
    replaceable: Set[Place] = field(default_factory=set)
    sigterm: Optional[Sigterm] = None
    #: The test that is set up or called.
    item: Optional[pytest.Item] = None
    #: Fixtures of pytest-benchmark whose results no test could record.
    late: List[Any] = field(default_factory=list)
    #: What this process's TensorFlow starts with, and TF_POPLAR_FLAGS as they were exported: a case
    #: adds its own to this process's environment.
    flags: Optional[Flags] = None
    exported_flags: Optional[str] = None

    def __post_init__(self) -> None:
        self.progress = Progress(self.config)
        self.bounds = Bounds(self.config)


run_key = pytest.StashKey[Run]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of a session that has something to measure."""
    return config.stash[run_key]
