"""What does the gate say beside other programs, during the baseline, the gate, or both?

    python -m scripts.gate_study.beside_others --pool=FILE

A pool holds processes of a quiet machine and of one with neighbours (collect.py --load=...). Wrong
are only two answers: equal code called slower, and code that is 10 % slower passed.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path
from typing import Dict, List, Tuple

from scripts.gate_study.neighbours import LOADS
from scripts.gate_study.study import Setting, Study, Tally, processes_of_cases, share_text
from scripts.markdown_table import markdown_row, markdown_table

HEADINGS = (
    "baseline",
    "gate",
    "equal called slower",
    "10% slower passed",
    "equal decided",
    "10% slower decided",
)


def studies_of(pool: Path, setting: Setting) -> Dict[str, Dict[str, Study]]:
    """Return load -> case -> its trials, of the cases with enough processes beside that load."""
    least = setting.processes + setting.cap + 1
    return {
        load: {
            case: Study(lines, setting, "arithmetic")
            for case, lines in processes_of_cases(pool, load).items()
            if len(lines) >= least
        }
        for load in LOADS
    }


def conditions(loads: List[str]) -> List[Tuple[str, str]]:
    """Return (load of the baseline, load of the gate) of every row."""
    found = [("quiet", "quiet")]
    for load in loads:
        found += [("quiet", load), (load, "quiet"), (load, load)]
    return found


def row(before: Dict[str, Study], now: Dict[str, Study], trials: int) -> List[str]:
    """Return the cells of one condition, over all cases that both pools have."""
    generator = random.Random(0)  # noqa: S311  draws
    cases = sorted(set(before) & set(now))
    tallies = {"0.0": Tally(), "0.1": Tally()}
    for case in cases:
        other = None if before is now else now[case]
        for level, tally in tallies.items():
            tally.add(before[case].run(level, trials, generator, other)["gate"])
    equal, slower = tallies.values()
    independent = math.fsum(before[case].independent() for case in cases)
    return [
        share_text(equal.regressed, equal.trials, independent),
        share_text(slower.passed, slower.trials, independent),
        equal.decided_share,
        slower.decided_share,
    ]


def main() -> None:
    """Read the command line, make the trials, print the table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", type=Path, required=True, help="file that collect.py wrote")
    parser.add_argument("--trials", type=int, default=250, help="per case and condition (250)")
    parser.add_argument("--processes", type=int, default=9, help="of the baseline (9)")
    parser.add_argument("--cap", type=int, default=16, help="fresh processes at most (16)")
    options = parser.parse_args()
    setting = Setting(0.02, options.processes, options.cap, 1)
    studies = studies_of(options.pool, setting)
    if not studies["quiet"]:
        parser.error(f"{options.pool} has too few processes of a quiet machine")
    print(f"{setting}; {options.trials} trials for each case and cell\n")
    print(markdown_table(HEADINGS, []))
    for before, now in conditions([load for load in LOADS if load != "quiet" and studies[load]]):
        cells = row(studies[before], studies[now], options.trials)
        print(markdown_row([before, now, *cells]))


if __name__ == "__main__":
    main()
