"""Change points: where the level of a noisy series has moved.

PELT (Killick, Fearnhead and Eckley, JASA 107, 2012) from the library ruptures, with the absolute
loss, under which a level is a median. A level has three runs at least, of which most must agree:
one bad run is no change, two in a row are.
"""

from __future__ import annotations

import math
from typing import List, Sequence

from ipubench.plugins.record.statistics import median

LEAST_RUNS_OF_A_LEVEL = 3
#: A case whose runs agree better than this still moves with the machine.
SMALLEST_NOISE = 0.005
#: See :func:`penalty`.
PENALTY_FACTOR = 2.0
# The median absolute deviation of normal values, as a share of their standard deviation.
MAD_OF_NORMAL = 0.6745


class ChangesUnavailable(Exception):
    """The library is not installed; the message says how to get it."""


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of a series around its level, steps and outliers aside.

    From the median absolute difference of neighbours, of which a step is only one (von Neumann's
    idea, made robust): divided by that of normal values, and by sqrt(2) for a difference of two.
    """
    differences = [abs(b - a) for a, b in zip(values, values[1:])]
    return max(SMALLEST_NOISE, median(differences) / MAD_OF_NORMAL / math.sqrt(2))


def penalty(values: Sequence[float]) -> float:
    """Return what one more level must save in absolute deviations: 2 sigma log(n).

    sigma log(n) is the penalty of Schwarz's criterion (Yao, Statistics and Probability Letters 6,
    1988), which has sigma^2 log(n) for squared deviations, in the unit of absolute ones. The factor
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
            "change points need the library ruptures: pip install 'ipubench[report]'"
        ) from None
    if len(values) < 2 * LEAST_RUNS_OF_A_LEVEL:
        return []
    search = ruptures.Pelt(model="l1", min_size=LEAST_RUNS_OF_A_LEVEL, jump=1)
    series = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    ends = search.fit(series).predict(pen=penalty(values))
    return [int(end) for end in ends[:-1]]
