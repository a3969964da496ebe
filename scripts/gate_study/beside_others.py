"""Test the gate under load: other programs run during the baseline, the gate, or both.

    python -m scripts.gate_study.beside_others --pool=FILE

A pool has processes of a quiet machine and of one with neighbours (collect.py --load=...). Two
verdicts are wrong: *slower* for equal code, and *passed* for code that is 10% slower.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Dict, List, Tuple

from ipubench.plugins.record.text import Parser
from scripts.gate_study.pool import EQUAL, MUCH_SLOWER, Pool, pools_given
from scripts.gate_study.study import Setting, Study
from scripts.gate_study.tally import WRONG_ANSWERS, sum_of, wrong_answers
from scripts.markdown_table import markdown_row, markdown_table


def studies_of(pools: Dict[str, Pool], setting: Setting) -> Dict[str, Dict[str, Study]]:
    """Return load -> case -> its study, for the quiet machine's cases with enough processes."""
    return {
        load: {
            case: Study(lines, setting)
            for case, lines in pool.items()
            if len(lines) >= setting.least and case in pools["quiet"]
        }
        for load, pool in pools.items()
    }


def conditions(loads: List[str]) -> List[Tuple[str, str]]:
    """Return (load of the baseline, load of the gate) for every row."""
    found = [("quiet", "quiet")]
    for load in loads:
        found += [("quiet", load), (load, "quiet"), (load, load)]
    return found


def row(before: Dict[str, Study], now: Dict[str, Study], trials: int) -> List[str]:
    """Return the cells of one condition over all cases that both pools have."""
    generator = random.Random(0)  # noqa: S311  draws
    found = []
    for case in sorted(set(before) & set(now)):
        other = None if before is now else now[case]
        levels = (EQUAL, MUCH_SLOWER)
        found.append([before[case].run(one, trials, generator, other)["gate"] for one in levels])
    return wrong_answers(*map(sum_of, zip(*found)))


def main() -> None:
    """Run the simulations and print the table in Markdown."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", type=Path, required=True, help="file that collect.py wrote")
    parser.add_argument("--trials", type=int, default=250, help="per case and condition (250)")
    parser.add_argument("--processes", type=int, default=9, help="of the baseline (9)")
    parser.add_argument("--cap", type=int, default=16, help="fresh processes at most (16)")
    options = parser.parse_args()
    setting = Setting(0.02, options.processes, options.cap, 1)
    pools = pools_given(parser, options.pool, "quiet", setting.least)
    studies = studies_of(pools, setting)
    print(f"{setting}; {options.trials} trials for each case and cell\n")
    print(markdown_table(["baseline", "gate", *WRONG_ANSWERS], []))
    for before, now in conditions([load for load in studies if load != "quiet" and studies[load]]):
        cells = row(studies[before], studies[now], options.trials)
        print(markdown_row([before, now, *cells]))


if __name__ == "__main__":
    main()
