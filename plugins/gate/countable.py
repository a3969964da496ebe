"""Selects the processes that a comparison uses: undisturbed, in the same machine state."""

from __future__ import annotations

from statistics import median
from typing import List, Optional, Sequence

from ipubench.fixtures.machine.state import same_state, usual
from ipubench.plugins.record.record import processes_of
from ipubench.plugins.record.structs import Benchmark, Process
from ipubench.plugins.record.text import percent

#: After this many disturbed processes in a row the machine is too busy: more of them help only if
#: their CPU time is evidence.
MOST_DISTURBED = 3
#: Advice against other programs, and against other virtual machines on the same host.
WAYS_OUT = (
    "use a quiet machine, --wait-for-quiet=2min, or --against, which measures both sides in turns"
)
SAVE_AGAIN = (
    "save it again on a quiet machine, or use --against, which measures both sides in turns"
)
LATER = "try again later, or use --against, which measures both sides in turns"
#: With this many fresh processes, the session's own process no longer counts.
LEAST_FRESH = 3


def comparable(processes: Sequence[Process]) -> List[Process]:
    """Return the processes of a baseline that can be compared.

    Leaves out disturbed processes and those that ran in an unusual machine state.
    """
    clean = [sample for sample in processes if is_clean(sample)]
    copy = usual_copy(clean)
    return [one for one in clean if same_copy(one, copy)]


def decisive(processes: Sequence[Process]) -> Sequence[Process]:
    """Return the fresh processes if there are enough, else all.

    The session's own process has measured other cases before, which may change its speed.
    """
    fresh = [sample for sample in processes if sample.fresh]
    return fresh if len(fresh) >= LEAST_FRESH else processes


def shown_processes(benchmark: Benchmark) -> Sequence[Process]:
    """Return the processes whose throughput is shown; all if every process was disturbed."""
    processes = processes_of(benchmark)
    return decisive(comparable(processes) or processes)


def usual_copy(processes: Sequence[Process]) -> Optional[float]:
    """Return the usual time of a memory copy in milliseconds; None if no process timed one."""
    found = [sample.copy_ms for sample in processes if sample.copy_ms is not None]
    return usual(found) if found else None


def same_copy(sample: Process, copy: Optional[float]) -> bool:
    """Return whether a process ran in the machine state that a copy time shows; True if unknown."""
    return copy is None or sample.copy_ms is None or same_state(sample.copy_ms, copy)


def is_clean(sample: Process) -> bool:
    """Return whether a process was undisturbed; True if unknown."""
    return sample.clean is not False


def disturbance_text(processes: Sequence[Process]) -> str:
    """Return a sentence on how many processes were disturbed and how much CPU time they lost."""
    disturbed = [sample for sample in processes if not is_clean(sample)]
    share = percent(median(sample.lost or 0.0 for sample in disturbed), 0)
    return (
        f"other programs, or other virtual machines on this host, disturbed {len(disturbed)} of "
        f"{len(processes)} processes, which lost {share} of a CPU's time"
    )


def too_disturbed(clean: Sequence[bool]) -> bool:
    """Return whether to stop, because the latest processes were all disturbed."""
    return len(clean) >= MOST_DISTURBED and not any(clean[-MOST_DISTURBED:])
