"""The state of a run, from its command line to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Protocol, Set, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.run.bounds import Bounds
from ipubench.plugins.run.gate_time import GateTime
from ipubench.plugins.run.interruption import Interruption
from ipubench.plugins.run.progress import Progress
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.run.time_spent import TimeSpent, seconds_of_start

if TYPE_CHECKING:
    from ipubench.fixtures.instances.instance import Instance
    from ipubench.plugins.baseline.stored_baseline import StoredBaseline
    from ipubench.plugins.count.counter import Counter
    from ipubench.plugins.count.state import Counting
    from ipubench.plugins.gate.policy_file import Policy
    from ipubench.plugins.processes.against import Against
    from ipubench.plugins.record.verdict import Verdict
    from ipubench.plugins.results.places import EntryKey

#: Options of a run that compares, counts, or measures cases in more processes.
COMPARING = (
    "against",
    "against_python",
    "against_setup",
    "baseline",
    "baseline_save",
    "count",
    "gate",
    "gate_policy",
    "processes",
)
#: The flags of a case's TensorFlow that differ between cases, in a stable order.
Flags = Tuple[Tuple[str, Optional[str]], ...]


class Settled(Protocol):
    """A case with a verdict, or with the reason why a process could not measure it."""

    @property
    def verdict(self) -> Optional[Verdict]:
        """Its verdict."""

    @property
    def error(self) -> Optional[CaseError]:
        """Why a process of this side could not measure it."""


@dataclass
class Run(Recording):
    """One run: its selection, its results, what it is compared with, and its progress."""

    #: Set if this process is one of several instances that run a case for another run.
    instance: Optional[Instance] = None
    spent: TimeSpent = field(default_factory=lambda: TimeSpent(before=seconds_of_start()))
    #: The line of the running case. It shows nothing before pytest has a terminal.
    progress: Progress = field(init=False)
    bounds: Bounds = field(init=False)
    #: What is left of --gate-time.
    gate_time: GateTime = field(default_factory=GateTime)
    #: What the run is compared with, and how much a case may lose.
    baseline: Optional[StoredBaseline] = None
    against: Optional[Against] = None
    same: str = ""  # why nothing is compared: --against names this environment
    #: The cases that were compared before the first test (plugins/compare/other_side.py).
    settled: Dict[str, Settled] = field(default_factory=dict)
    policy: Optional[Policy] = None
    #: What makes the gate another one than a reader would expect.
    gate_notes: List[str] = field(default_factory=list)
    #: What is counted in addition to the times, with --count.
    counting: Optional[Counting] = None
    #: What counts in a process that does nothing else; its cases share it.
    counter: Optional[Counter] = None
    #: The number of this process among the children that count a case.
    child: int = 0
    #: Cases on machines for which the baseline to be saved already has a usable entry.
    replaceable: Set[EntryKey] = field(default_factory=set)
    interruption: Optional[Interruption] = None
    #: The test in its setup or call.
    item: Optional[pytest.Item] = None
    #: Fixtures of pytest-benchmark whose results no test could record.
    late: List[Any] = field(default_factory=list)
    #: The folder of executables for this run's processes alone.
    executables: Optional[Path] = None
    #: The flags that this process's TensorFlow starts with, and TF_POPLAR_FLAGS as exported by the
    #: user: cases add their flags to the environment.
    flags: Optional[Flags] = None
    exported_flags: Optional[str] = None

    def __post_init__(self) -> None:
        self.progress = Progress(self.config, self.role)
        self.bounds = Bounds(self.config, self.role)

    @property
    def compares(self) -> bool:
        """Whether it compares, counts, or measures its cases in more processes."""
        option = options_of(self.config)
        given = any(getattr(option, name) is not None for name in COMPARING)
        return given or bool(option.profile_on_regression)


run_key = pytest.StashKey[Run]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of a session that has something to measure."""
    return config.stash[run_key]
