"""Simulate `--against`: how often it calls equal code slower, and how often it finds slow code.

    python -m scripts.gate_study.pairs --pool=FILE [--together]

The pool has alternating pairs (collect_pairs.py). A trial takes consecutive pairs, in both orders
in turn, and judges them at the looks and levels of the suite's own gate (plugins/gate/pairs.py):
by the time of a round, and by its CPU time.
"""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import msgspec

from ipubench.plugins.gate.pairs import PairRule, kind_of, looks, too_many_disturbed
from ipubench.plugins.gate.rounds import AdjacentRounds
from ipubench.plugins.gate.sides import Pair, can_compare, here_is_next, paired_effect
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.text import Parser
from ipubench.plugins.record.verdict import INCONCLUSIVE
from scripts.gate_study.neighbours import LOADS
from scripts.gate_study.pool import (
    EQUAL,
    SHOWN,
    SLOWDOWNS,
    Pool,
    add_trial_options,
    pools_given,
    short_name,
)
from scripts.gate_study.study import Tally, sum_of
from scripts.markdown_table import markdown_table

TIME, CPU = "time", "CPU time"


@dataclass(frozen=True)
class Setting:
    """A user's settings of ``--against``."""

    threshold: float  # --gate
    cap: int  # --gate-cap, pairs
    cases: int  # compared in a run

    def kind_of(self, pairs: Sequence[Pair]) -> str:
        """Return the verdict of one look at the pairs so far."""
        if not can_compare([pair.here_first for pair in pairs]):
            return INCONCLUSIVE
        rule = PairRule({THROUGHPUT: self.threshold}, self.cases, self.cap)
        return kind_of(paired_effect(pairs), self.threshold, rule.level)

    def __str__(self) -> str:
        return (
            f"--against --gate={100 * self.threshold:g}% --gate-cap={self.cap}, "
            f"{self.cases} cases compared"
        )


class Measured(NamedTuple):
    """One pair: which process was first, and how much longer this one took; None if too few rounds.

    Times are logarithms.
    """

    here_first: bool
    change: Optional[float]


def measured(line: Dict[str, Any], level: str, figure: str) -> Measured:
    """Return one metric of a line of the pool at one level of extra work."""
    rounds = msgspec.convert(line["levels"][level], AdjacentRounds)
    effect = rounds.cpu_effect() if figure == CPU else rounds.effect() if rounds.enough else None
    return Measured(bool(line["here_first"]), None if effect is None else effect.change)


def together(line: Dict[str, Any]) -> Dict[str, Any]:
    """Return a line of the pool, giving every level the rounds of all levels.

    Divides the extra work out of the rounds by its nominal share and multiplies in the share of
    each level. So a pair has as many rounds as one of a comparison, for the time that the pool
    took, but the slow-downs are no longer real.
    """
    parts = [
        (float(level), msgspec.convert(one, AdjacentRounds))
        for level, one in line["levels"].items()
    ]
    levels = {}
    for level in line["levels"]:
        joined = AdjacentRounds(items_here=parts[0][1].items_here)
        joined.items_there = parts[0][1].items_there
        for share, rounds in parts:
            slower = (1 + float(level)) / (1 + share)
            joined.here_first += rounds.here_first
            for side, more, factor in (
                (joined.here, rounds.here, slower),
                (joined.there, rounds.there, 1.0),
            ):
                side.seconds += [factor * value for value in more.seconds]
                side.cpu_seconds += [v and factor * v for v in more.cpu_seconds]
                side.lost += more.lost
                side.copies_ms += more.copies_ms
        levels[level] = msgspec.to_builtins(joined)
    return {**line, "levels": levels}


def once(pool: Sequence[Measured], setting: Setting, start: int) -> Tuple[str, int]:
    """Return the verdict on the pairs from ``start`` on, wrapping around, and how many it took."""
    left = [*pool[start:], *pool[:start]]
    reached = looks(setting.cap)
    usable: List[Pair] = []
    firsts: List[bool] = []
    while left and len(firsts) < setting.cap and not too_many_disturbed(len(usable), len(firsts)):
        wanted = here_is_next([pair.here_first for pair in usable], firsts)
        number = next((k for k, pair in enumerate(left) if pair.here_first == wanted), 0)
        here_first, change = left.pop(number)
        firsts.append(here_first)
        if change is None:
            continue
        usable.append(Pair(change, here_first))
        if len(usable) in reached and setting.kind_of(usable) != INCONCLUSIVE:
            break
    return setting.kind_of(usable), len(firsts)


def trials_of(pool: Sequence[Measured], setting: Setting, trials: int) -> Tally:
    """Return the tally of this many trials, with pairs as its processes."""
    generator = random.Random(0)  # noqa: S311  draws
    tally = Tally()
    for _ in range(trials):
        tally.count(*once(pool, setting, generator.randrange(len(pool))))
    tally.independent = len(pool) / tally.each
    return tally


#: Case -> level -> the tally of its trials.
Tallies = Dict[str, Dict[str, Tally]]


def tallies_of(pool: Pool, figure: str, setting: Setting, trials: int) -> Tallies:
    """Return the tallies of one metric for every case and level."""
    return {
        case: {
            level: trials_of([measured(line, level, figure) for line in lines], setting, trials)
            for level in SLOWDOWNS
        }
        for case, lines in pool.items()
    }


def spread(lines: Sequence[Dict[str, Any]], figure: str) -> str:
    """Return the standard deviation between pairs of equal code as text."""
    changes = [measured(line, EQUAL, figure).change for line in lines]
    known = [change for change in changes if change is not None]
    return f"{statistics.stdev(known):.1%}" if len(known) > 1 else "-"


def cost(tally: Tally) -> str:
    """Return how many trials stayed open, and how many pairs a trial took."""
    return f"{tally.open_share} open, {tally.each:.1f} pairs"


def case_rows(pool: Pool, tallies: Tallies) -> List[List[str]]:
    """Return a row for each case: its variation, and how often it was judged slower."""
    return [
        [
            short_name(case),
            *(spread(pool[case], figure) for figure in (TIME, CPU)),
            *(tally.slower_share for tally in found.values()),
            cost(found[EQUAL]),
        ]
        for case, found in tallies.items()
    ]


def row_of_all(figure: str, load: str, tallies: Tallies) -> List[str]:
    """Return the row of all cases under a load, judged by one metric."""
    totals = [sum_of(levels[level] for levels in tallies.values()) for level in SLOWDOWNS]
    return [figure, load, *(total.slower_share for total in totals), cost(totals[0])]


def main() -> None:
    """Run the simulations and print the tables in Markdown."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    add_trial_options(parser, "collect_pairs.py", "pairs")
    parser.add_argument("--load", choices=LOADS, default="quiet", help="of each case (quiet)")
    parser.add_argument(
        "--together", action="store_true", help="all levels' rounds of a pair as one comparison's"
    )
    options = parser.parse_args()
    setting = Setting(options.gate / 100, options.cap, options.cases)
    pools = pools_given(parser, options.pool, options.load, setting.cap)
    if options.together:
        pools = {
            load: {case: list(map(together, lines)) for case, lines in pool.items()}
            for load, pool in pools.items()
        }
    found = {
        (figure, load): tallies_of(pool, figure, setting, options.trials)
        for load, pool in pools.items()
        for figure in (TIME, CPU)
    }
    print(f"{setting}, {options.trials} trials each; cases under the load {options.load}\n")
    head = ["case", "spread", "of CPU time", *(f"{text} slower" for text in SHOWN)]
    rows = case_rows(pools[options.load], found[TIME, options.load])
    print(markdown_table([*head, "of equal code"], rows) + "\n")
    head = ["judged slower, all cases", "load", *SHOWN, "of equal code"]
    print(markdown_table(head, [row_of_all(*key, tallies) for key, tallies in found.items()]))


if __name__ == "__main__":
    main()
