"""Finds the change points of a series of logarithms. Pure functions.

PELT (Killick, Fearnhead and Eckley, JASA 107, 2012) in the library ruptures finds how many levels
there are, with the absolute loss, which makes a level a median: one bad run is not a change, but
two in a row are. It places a change a run early or late if a level has fewer than three runs, so
each change is placed once more, where two levels have the least squares. A change that the noise
can explain is left out.
"""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist, fmean, median
from typing import Dict, List, NamedTuple, Sequence

from ipubench.plugins.gate.student import student_quantile

LEAST_RUNS_OF_A_LEVEL = 3
#: A change is placed with at least this many runs on both sides.
LEAST_RUNS_OF_A_SIDE = 2
#: The least noise to assume: the machine moves even a case whose runs agree better.
SMALLEST_NOISE = 0.005
#: A change that needs more runs than this is too small to wait for.
MOST_RUNS_TO_ASK_FOR = 100
#: See :func:`penalty`.
PENALTY_FACTOR = 2.0
# The median absolute deviation of normal values, as a share of their standard deviation.
MAD_OF_NORMAL = 0.6745
CONFIDENCE = 0.95
#: A run further than this many standard deviations outside both levels counts as this far.
FURTHEST = 3.0
#: The half width of a 95% interval, in standard deviations.
WIDTH_OF_INTERVAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


class Change(NamedTuple):
    """A change of level: the median of the new one over that of the one before, minus 1."""

    #: The first run of the new level.
    run: int
    change: float
    low: float  # the 95% interval
    high: float
    #: Run -> the probability that the level begins there: as few runs as reach 95%.
    likely: Dict[int, float]
    #: Whether the noise cannot explain it, wherever in the series it looked for one.
    proven: bool

    @property
    def sure(self) -> float:
        """The probability that the new level begins with this run."""
        return self.likely[self.run]


class ChangesUnavailable(Exception):
    """Raised if the library ruptures is missing; the message has the command to install it."""


def changes_of(values: Sequence[float], widths: Sequence[float] = ()) -> List[Change]:
    """Return the changes of level of a series of logarithms.

    ``widths``: half of the 95% interval that each run has of itself, as far as it is known.
    Raises ChangesUnavailable without the library.
    """
    return proven_changes(values, change_points(values), own_noise(widths))


def proven_changes(values: Sequence[float], starts: Sequence[int], own: float) -> List[Change]:
    """Place the changes that begin at about ``starts``, and leave out those that may be noise.

    ``own``: the standard deviation of a run by its own interval.
    """
    edges = [0, *starts, len(values)]
    while True:
        changes = []
        for number in range(1, len(edges) - 1):
            start, about, end = edges[number - 1 : number + 2]
            changes.append(placed(values, start, about, end, own))
            edges[number] = changes[-1].run
        weak = [change for change in changes if not change.proven]
        if not weak:
            return changes
        edges.remove(min(weak, key=lambda one: abs(math.log1p(one.change))).run)


def placed(values: Sequence[float], start: int, about: int, end: int, own: float) -> Change:
    """Return the change between ``start`` and ``end``, which is ``about`` there."""
    far = FURTHEST * max(noise(values), own)
    levels = sorted((median(values[start:about]), median(values[about:end])))
    lowest, highest = levels[0] - far, levels[1] + far
    window = [min(max(value, lowest), highest) for value in values[start:end]]
    squares = squares_of_splits(window)
    split = min(squares, key=squares.__getitem__)
    degrees = len(window) - 2
    sigma = max(math.sqrt(squares[split] / degrees), own, SMALLEST_NOISE)
    weights = {
        start + place: math.exp((squares[split] - found) / (2 * sigma**2))
        for place, found in squares.items()
    }
    size = median(values[start + split : end]) - median(values[start : start + split])
    after = len(window) - split
    half = half_width(sigma, split, after, 1 - CONFIDENCE)
    proven = proves(size, sigma, split, after, len(values))
    likely = most_likely(weights)
    change, low, high = map(math.expm1, (size, size - half, size + half))
    return Change(start + split, change, low, high, likely, proven)


def half_width(sigma: float, before: int, after: int, chance: float) -> float:
    """Return half of the interval of a change between two levels of so many runs."""
    error = sigma * math.sqrt(1 / before + 1 / after)
    return error * student_quantile(1 - chance / 2, before + after - 2)


def proves(size: float, sigma: float, before: int, after: int, runs: int) -> bool:
    """Return whether noise cannot explain a change that was looked for at each of ``runs``."""
    chance = (1 - CONFIDENCE) / runs  # Bonferroni
    return abs(size) > half_width(sigma, before, after, chance)


def runs_needed(values: Sequence[float], widths: Sequence[float], last: int) -> int:
    """Return about how many runs would show whether the last level changed; 0 if these do.

    ``last``: where that level begins. It asks for more runs if there are too few for any change, if
    only the newest is far from the others, or if two levels would save more than the penalty and
    the noise can still explain them.
    """
    count = len(values)
    least = 2 * LEAST_RUNS_OF_A_LEVEL
    level = values[last:]
    if len(level) > 2 * LEAST_RUNS_OF_A_SIDE:
        # The newest run alone may be a bad one; another like it would be a change.
        middle, far = median(level[:-1]), 2 * FURTHEST * max(noise(values), own_noise(widths))
        if abs(level[-2] - middle) <= far < abs(level[-1] - middle):
            return max(least, count + 1)
    if len(level) >= 2 * LEAST_RUNS_OF_A_SIDE:
        squares = squares_of_splits(level)
        split = min(squares, key=squares.__getitem__)
        before, after = level[:split], level[split:]
        saved = deviations(level) - deviations(before) - deviations(after)
        if saved > penalty(values):
            sigma = max(math.sqrt(squares[split] / (len(level) - 2)), own_noise(widths))
            size = median(after) - median(before)
            for more in range(max(0, least - count), MOST_RUNS_TO_ASK_FOR - count):
                if proves(size, sigma, split, len(after) + more, count + more):
                    return count + more if more else 0
    return least if count < least else 0


def deviations(values: Sequence[float]) -> float:
    """Return the sum of the absolute deviations from the median."""
    middle = median(values)
    return math.fsum(abs(value - middle) for value in values)


def own_noise(widths: Sequence[float]) -> float:
    """Return the standard deviation of a run, by the runs' own intervals if they have any."""
    return max(SMALLEST_NOISE, median(widths) / WIDTH_OF_INTERVAL if widths else 0.0)


def squares_of_splits(values: Sequence[float]) -> Dict[int, float]:
    """Return, for each place of a change, the sum of the squared deviations from both means."""
    middle, count = fmean(values), len(values)
    sums = [0.0, *itertools.accumulate(value - middle for value in values)]
    total = math.fsum((value - middle) ** 2 for value in values)
    return {
        place: max(0.0, total - sums[place] ** 2 / place - sums[place] ** 2 / (count - place))
        for place in range(LEAST_RUNS_OF_A_SIDE, count - LEAST_RUNS_OF_A_SIDE + 1)
    }


def most_likely(weights: Dict[int, float]) -> Dict[int, float]:
    """Return the probabilities of as few places as reach 95%, in the order of the places."""
    total = math.fsum(weights.values())
    found: Dict[int, float] = {}
    for place in sorted(weights, key=lambda place: -weights[place]):
        if math.fsum(found.values()) >= CONFIDENCE:
            break
        found[place] = weights[place] / total
    return dict(sorted(found.items()))


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of a series around its level, ignoring steps and outliers.

    Uses the median absolute difference of neighbours, as a step affects only one of them (von
    Neumann's idea, made robust), divided by that of normal values and by sqrt(2).
    """
    differences = [abs(b - a) for a, b in zip(values, values[1:])]
    return max(SMALLEST_NOISE, median(differences) / MAD_OF_NORMAL / math.sqrt(2))


def penalty(values: Sequence[float]) -> float:
    """Return how much another level must save in absolute deviations: 2 sigma log(n).

    Schwarz's criterion (Yao, Statistics and Probability Letters 6, 1988) has the penalty
    sigma^2 log(n) for squared deviations; sigma log(n) has the unit of absolute ones. The factor
    was chosen by simulation, see docs/how-to/baselines.md.
    """
    return PENALTY_FACTOR * noise(values) * math.log(len(values))


def change_points(values: Sequence[float]) -> List[int]:
    """Return the index of the first value of each new level of a series of logarithms.

    Raises ChangesUnavailable without the library.
    """
    try:
        import numpy as np
        import ruptures
    except ImportError:
        raise ChangesUnavailable(
            "change points need numpy and ruptures: pip install ruptures"
        ) from None
    if len(values) < 2 * LEAST_RUNS_OF_A_LEVEL:
        return []
    search = ruptures.Pelt(model="l1", min_size=LEAST_RUNS_OF_A_LEVEL, jump=1)
    series = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    ends = search.fit(series).predict(pen=penalty(values))
    return [int(end) for end in ends[:-1]]
