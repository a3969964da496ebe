"""How often does `--against` call equal code slower, and how often does it find what is slower?

    python -m scripts.gate_study.pairs --pool=FILE [--order]

The pool is of pairs that took turns (collect_pairs.py). Beside the time of a round, the CPU time
that it used is tried as a witness: alone, either of the two, or both together.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import List, Mapping, Sequence, Tuple

from ipubench.plugins.record.text import Parser
from scripts.gate_study.neighbours import LOADS
from scripts.gate_study.pair_trials import (
    CPU,
    JUDGES,
    TIME,
    Setting,
    Studies,
    Tallies,
    change,
    figures_of,
    spread,
    studies_of,
    tallies_of,
    together,
)
from scripts.gate_study.pool import (
    EQUAL,
    MUCH_SLOWER,
    SHOWN,
    SLOWDOWNS,
    Pool,
    add_trial_options,
    pools_given,
    short_name,
)
from scripts.gate_study.tally import WRONG_ANSWERS, Tally, sum_of, wrong_answers
from scripts.markdown_table import markdown_table


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown, and an empty line."""
    print(markdown_table(head, rows) + "\n")


def case_rows(studies: Studies, tallies: Tallies) -> List[List[str]]:
    """Return a row for each case: how it varies, and how often it was judged slower."""
    rows = []
    for case, levels in studies.items():
        found = tallies[case]
        spreads = [spread(levels[EQUAL], witness) for witness in (TIME, CPU)]
        shown = ["-" if value is None else f"{value:.1%}" for value in spreads]
        cells = [tally.slower_share for tally in found.values()]
        rows.append([short_name(case), *shown, *cells, cost(found[EQUAL])])
    return rows


def cost(tally: Tally) -> str:
    """Return how many trials stayed open, and how many pairs one took."""
    return f"{tally.open_share} open, {tally.each:.1f} pairs"


def judge_rows(found: Mapping[str, Tallies]) -> List[List[str]]:
    """Return a row for each judge, over all cases."""
    rows = []
    for name, tallies in found.items():
        totals = [sum_of(levels[level] for levels in tallies.values()) for level in SLOWDOWNS]
        rows.append([name, *(total.slower_share for total in totals), cost(totals[0])])
    return rows


def cost_rows(studies: Studies) -> List[List[str]]:
    """Return what the extra work cost within the same pairs, in time and in CPU time."""
    rows = []
    for witness in (TIME, CPU):
        cells = []
        for level in SLOWDOWNS:
            found = []
            for levels in studies.values():
                for (_, after), (_, before) in zip(levels[level].pairs, levels[EQUAL].pairs):
                    slower, equal = change(after, witness), change(before, witness)
                    if slower is not None and equal is not None:
                        found.append(slower - equal)
            cells.append(f"{math.expm1(statistics.median(found)):.1%}" if found else "-")
        rows.append([f"what the extra work cost in {witness}", *cells, ""])
    return rows


def load_rows(pools: Mapping[str, Pool], setting: Setting, trials: int) -> List[List[str]]:
    """Return the two wrong answers beside each load and by each judge."""
    rows = []
    for load, pool in pools.items():
        studies = studies_of(pool, setting)
        for judge in JUDGES:
            tallies = tallies_of(studies, judge, trials)
            totals = [
                sum_of(levels[level] for levels in tallies.values())
                for level in (EQUAL, MUCH_SLOWER)
            ]
            rows.append([load, judge.name, *wrong_answers(*totals)])
    return rows


def order_rows(pool: Pool) -> List[List[str]]:
    """Return for each case whether its figures depend on what ran before it in its processes."""
    rows = []
    for case, lines in pool.items():
        places = [len(line["ran_before"]) for line in lines]
        middle = statistics.median_low(places)
        halves: List[List[Tuple[float, float]]] = [[], []]
        for place, line in zip(places, lines):
            difference = change(figures_of(line, EQUAL)[1], TIME)
            seconds = statistics.median(line["levels"][EQUAL]["there"]["seconds"])
            if difference is not None:
                item = math.log(seconds / line["items_per_round"])
                halves[place > middle].append((item, difference))
        if min(map(len, halves)) < 2:
            rows.append([short_name(case), f"{len(lines)}", "-", "-", "-"])
            continue
        early, late = ([item for item, _ in half] for half in halves)
        error = math.sqrt(sum(statistics.variance(half) / len(half) for half in (early, late)))
        longer = statistics.fmean(late) - statistics.fmean(early)
        spreads = [f"{statistics.stdev(value for _, value in half):.1%}" for half in halves]
        rows.append([short_name(case), f"{len(lines)}", f"{longer:+.1%} ± {error:.1%}", *spreads])
    return rows


def main() -> None:
    """Read the command line, make the trials, print the tables in Markdown."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    add_trial_options(parser, "collect_pairs.py", "pairs")
    parser.add_argument("--load", choices=LOADS, default="quiet", help="of the tables (quiet)")
    parser.add_argument(
        "--witness", choices=[judge.name for judge in JUDGES], default=TIME, help="of each case"
    )
    parser.add_argument(
        "--together", action="store_true", help="all levels' rounds of a pair as one comparison's"
    )
    parser.add_argument("--order", action="store_true", help="what ran before in a process")
    options = parser.parse_args()
    setting = Setting(options.gate / 100, options.cap, options.cases)
    pools = pools_given(parser, options.pool, options.load, setting.cap)
    if options.together:
        pools = {
            load: {case: list(map(together, lines)) for case, lines in pool.items()}
            for load, pool in pools.items()
        }
    pool = pools[options.load]
    if options.order:
        later = "an item takes longer in later places"
        head = ["case", "pairs", later, "spread in earlier places", "in later ones"]
        print_table(head, order_rows(pool))
    else:
        report(pool, setting, options)
        if set(pools) != {"quiet"}:
            rows = load_rows(pools, setting, options.trials)
            print_table(["load", "judge", *WRONG_ANSWERS], rows)


def report(pool: Pool, setting: Setting, options: argparse.Namespace) -> None:
    """Print what was found of each case by one judge, and of all cases by each."""
    studies = studies_of(pool, setting)
    found = {judge.name: tallies_of(studies, judge, options.trials) for judge in JUDGES}
    sizes = sorted(len(lines) for lines in pool.values())
    print(f"{setting}; judged by {options.witness}; {sizes[0]} to {sizes[-1]} pairs a case,")
    print(f"{options.trials} trials each, load: {options.load}\n")
    slower = [f"{text} slower" for text in SHOWN]
    head = ["case", "spread", "of CPU time", *slower, "of equal code"]
    print_table(head, case_rows(studies, found[options.witness]))
    head = ["judged slower, all cases", *SHOWN, "of equal code"]
    print_table(head, [*judge_rows(found), *cost_rows(studies)])


if __name__ == "__main__":
    main()
