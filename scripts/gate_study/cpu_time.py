"""Simulate how often plugins/gate/cpu_time.py convicts by CPU time while other programs run.

    python -m scripts.gate_study.cpu_time

The log of a process's CPU time per item has normal noise. Other programs multiply the CPU time of
equal code by a factor, which two of the baseline's processes show.
"""

from __future__ import annotations

import math
import random
from typing import List

from ipubench.plugins.gate.countable import LEAST_FRESH
from ipubench.plugins.gate.cpu_time import LEAST_DISTURBED, growth
from ipubench.plugins.record.structs import Process
from scripts.markdown_table import markdown_row, markdown_table

NOISE = (0.02, 0.05, 0.10)
#: The factor of other programs in the baseline, and now.
BESIDE = ((1.0, 1.0), (1.1, 1.1), (1.1, 1.0), (1.0, 1.05), (1.3, 1.3))
SLOWER = (0.0, 0.1, 0.2, 0.43)
CLEAN, MOST, TRIALS = 8, 16, 1000
THRESHOLD, LEVEL, ASSUMED = 0.05, 0.002, 0.02


def convicts(noise: float, known: float, now: float, slower: float, draw: random.Random) -> bool:
    """Return whether one gate calls the code slower."""

    def process(factor: float) -> Process:
        seconds = factor * math.exp(draw.gauss(0, noise))
        return Process(True, "", 1.0, [seconds], (), "", 0.0, 0.0, 0, lost=0.5, cpu_seconds=seconds)

    before = [process(1.0) for _ in range(CLEAN)]
    disturbed = [process(known) for _ in range(LEAST_DISTURBED)]
    found: List[Process] = []
    while len(found) < MOST:
        found.append(process(now * (1 + slower)))
        if len(found) < LEAST_FRESH:
            continue
        grown = growth(before, disturbed, found, ASSUMED, False, math.log1p(THRESHOLD), LEVEL)
        if grown is None or grown.proved or not grown.suspect:
            return grown is not None and grown.proved
    return False


def main() -> None:
    """Print the table in Markdown."""
    draw = random.Random(0)  # noqa: S311  draws
    head = [f"{slower:.0%} slower" for slower in SLOWER]
    print(markdown_table(["noise", "others cost: baseline, now", *head], []))
    for noise in NOISE:
        for known, now in BESIDE:
            shares = [
                sum(convicts(noise, known, now, slower, draw) for _ in range(TRIALS)) / TRIALS
                for slower in SLOWER
            ]
            cost = f"{known - 1:.0%}, {now - 1:.0%}"
            print(markdown_row([f"{noise:.0%}", cost, *(f"{share:.1%}" for share in shares)]))


if __name__ == "__main__":
    main()
