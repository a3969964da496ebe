"""What a gate returns about a case: a verdict, or the measurements that it lacks for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ipubench.plugins.record.verdict import Verdict

#: The reason of a case that needs more than --gate-time allows.
TIME_OVER = "the time of --gate-time was over before the verdict was clear"


@dataclass(frozen=True)
class Need:
    """The measurements that a case lacks; one of the numbers is not 0."""

    #: More fresh processes here.
    processes: int = 0
    #: More pairs of processes, one on each side.
    pairs: int = 0
    #: More counts of its instructions.
    counts: int = 0
    #: Whether no other case may run in them.
    alone: bool = False


Decision = Union[Verdict, Need]
