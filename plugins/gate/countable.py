"""Which processes of a comparison count: undisturbed ones, in one state of the machine."""

from __future__ import annotations

from statistics import median
from typing import List, Optional, Sequence

from ipubench.fixtures.machine.state import same_state, usual
from ipubench.plugins.record.record import processes_of
from ipubench.plugins.record.structs import Benchmark, Process
from ipubench.plugins.record.text import percent

#: So many disturbed processes one after the other: the machine is not ours, and no more follow.
MOST_DISTURBED = 3
#: What helps against other programs, and against other machines of the host.
WAYS_OUT = "use a quiet machine, --wait-for-quiet=2min, or --against, which measures both in turns"
SAVE_AGAIN = "save it again on a quiet machine, or use --against, which measures both in turns"
LATER = "try again later, or use --against, which measures both in turns"
#: Fresh processes that decide without the session's own.
LEAST_FRESH = 3


def comparable(processes: Sequence[Process]) -> List[Process]:
    """Return the processes of a baseline that others are compared with.

    Those that nobody disturbed, less the few that found the machine in another state than most.
    """
    clean = [sample for sample in processes if is_clean(sample)]
    copy = usual_copy(clean)
    return [one for one in clean if same_copy(one, copy)]


def decisive(processes: Sequence[Process]) -> Sequence[Process]:
    """Return the processes that decide: the fresh ones, where there are enough of them.

    The session's own has measured other cases before, which may change its speed.
    """
    fresh = [sample for sample in processes if sample.fresh]
    return fresh if len(fresh) >= LEAST_FRESH else processes


def deciding(benchmark: Benchmark) -> Sequence[Process]:
    """Return the processes of a benchmark whose figure is shown; all where others disturbed all."""
    processes = processes_of(benchmark)
    return decisive(comparable(processes) or processes)


def usual_copy(processes: Sequence[Process]) -> Optional[float]:
    """Return the usual milliseconds of a copy in some processes, None where nothing is known."""
    found = [sample.copy_ms for sample in processes if sample.copy_ms is not None]
    return usual(found) if found else None


def same_copy(sample: Process, copy: Optional[float]) -> bool:
    """Tell whether a process found the machine in the state of a copy; unknown, it may have."""
    return copy is None or sample.copy_ms is None or same_state(sample.copy_ms, copy)


def is_clean(sample: Process) -> bool:
    """Tell whether a process may be judged by; unknown, it may."""
    return sample.clean is not False


def lost_words(processes: Sequence[Process]) -> str:
    """Say how much others took from the disturbed ones of some processes."""
    disturbed = [sample for sample in processes if not is_clean(sample)]
    share = percent(median(sample.lost or 0.0 for sample in disturbed), 0)
    return (
        f"other programs, or other machines of its host, disturbed {len(disturbed)} of "
        f"{len(processes)} processes, which lost {share} of a CPU's time"
    )


def given_up(clean: Sequence[bool]) -> bool:
    """Tell whether the latest processes were all disturbed, so that no more should follow."""
    return len(clean) >= MOST_DISTURBED and not any(clean[-MOST_DISTURBED:])
