"""Which slow-downs a gate can find with a baseline. Pure functions over its entries."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.plugins.gate.countable import (
    MOST_DISTURBED,
    comparable,
    disturbance_text,
    is_clean,
    too_disturbed,
)
from ipubench.plugins.gate.stored import DETECTABLE_CHANGE, StoredRule, least_slowdown
from ipubench.plugins.record.record import THROUGHPUT, processes_of
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import percent

#: A new baseline is described for a gate with this threshold.
USUAL_GATE = 0.02
MORE_OR_QUIETER = (
    "measure more --processes on a quiet machine, or use --against, which measures both sides in "
    "turns"
)


class Noise(NamedTuple):
    """The smallest slow-down that the gate finds in a case, as a fraction."""

    least: float  # found in most comparisons
    goal: float  # that the gate should find
    name: str


def noise_of(entry: Benchmark, rule: StoredRule) -> Optional[Noise]:
    """Return the noise of a baseline's entry; None if its throughput is not judged."""
    least = least_slowdown(entry, rule)
    if least is None:
        return None
    goal = max(DETECTABLE_CHANGE, 2 * rule.thresholds[THROUGHPUT])
    return Noise(least, goal, entry.record.name)


def one_process_each(cases: Sequence[Noise]) -> str:
    """Return what a gate finds against a file of pytest-benchmark."""
    least = percent(max(one.least for one in cases))
    return (
        "the baseline is a file of pytest-benchmark, which has one process of each case: the gate "
        f"finds slow-downs from {least}, or more on a busy machine"
    )


def too_noisy(cases: Sequence[Noise]) -> str:
    """Return a warning that names the cases with too few or too different processes, or ''."""
    noisy = sorted((one for one in cases if one.least > one.goal), reverse=True)
    if not noisy:
        return ""
    goals = {one.goal for one in cases}
    what = percent(goals.pop(), 0) if len(goals) == 1 else "twice their threshold"
    shown = some_of([f"{one.name} needs {percent(one.least)}" for one in noisy], 3)
    count = f"{len(noisy)} of {len(cases)} cases" if len(cases) > 1 else "the case"
    return (
        f"the baseline has too few processes, or too different ones, to detect a slow-down of "
        f"{what} in {count}: {shown}"
    )


def what_it_finds(entries: Sequence[Benchmark], cap: int) -> List[str]:
    """Return lines on the slow-downs that a gate will find with new entries of a baseline.

    ``cap``: the most fresh processes of a comparison.
    """
    rule = StoredRule({THROUGHPUT: USUAL_GATE}, len(entries), cap)
    found = [one for one in (noise_of(entry, rule) for entry in entries) if one is not None]
    good = [one for one in found if one.least <= one.goal]
    noisy = sorted((one for one in found if one.least > one.goal), reverse=True)
    finds = f"with this baseline --gate={percent(USUAL_GATE, 0)} finds slow-downs"
    lines = []
    if good:
        lines.append(f"{finds} from {percent(max(good).least, 0)} in {counted(len(good), 'case')}")
    if noisy:
        each = some_of([f"from {percent(one.least, 0)} in {one.name}" for one in noisy])
        lines.append(f"{finds} {each}: {MORE_OR_QUIETER}")
    return lines


def why_kept(entry: Benchmark, wanted: int) -> str:
    """Return how many processes of a disturbed entry count, and why there are no more.

    ``wanted``: how many fresh processes it should have.
    """
    processes = processes_of(entry)
    clean = [is_clean(one) for one in processes if one.fresh]
    ended = [count for count in range(len(clean) + 1) if too_disturbed(clean[:count])]
    if ended:
        why = f"it stopped after {MOST_DISTURBED} disturbed ones in a row"
    elif not wanted:
        why = "no more were asked for"
    elif len(clean) >= 2 * wanted:
        why = "it stopped after twice as many as it needs"
    else:
        why = "there was no time for more"
    count = len(comparable(processes))
    use = f"{count} of {len(processes)} processes count" if count else "no gate can judge it"
    return f"{entry.record.name}: kept, but {use}: {disturbance_text(processes)}; {why}"
