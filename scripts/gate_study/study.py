"""Simulate the gate: how often it calls equal code slower, and how often it finds slow code.

    python -m scripts.gate_study.study --pool=FILE

Each trial draws a baseline and a candidate from the pool of fresh processes (collect.py), each from
consecutive processes. The suite's own gate judges them, with as many fresh processes as it asks
for. The table also has the verdict of pytest-benchmark's `--benchmark-compare-fail` on the first
process of the same baseline and the same candidate.

If the pool also has processes next to other programs (collect.py --load=...), a last table judges
with other programs during the baseline, the gate, or both. Two verdicts are wrong: *slower* for
equal code, and *passed* for code that is 10% slower.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import msgspec

from ipubench.plugins.gate import stored as gate
from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.record.record import THROUGHPUT, sample_of, with_processes
from ipubench.plugins.record.structs import Benchmark, Canary, Contention
from ipubench.plugins.record.text import Parser
from ipubench.plugins.record.verdict import INCONCLUSIVE, PASS, REGRESSED
from scripts.gate_study.drive import judged
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
from scripts.markdown_table import markdown_row, markdown_table
from tests.support.stored import a_benchmark

#: pytest-benchmark's statistics, and the change that its users usually choose.
COMPARE_FAIL: Dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
}
COMPARE_FAIL_THRESHOLD = 0.05
#: The processors that the study ran on.
CANARY = "arithmetic"
#: The number of baselines per case; the table shows the median.
STATED = 50
#: The columns of wrong verdicts and of the trials that they are out of.
WRONG_ANSWERS = (
    "equal called slower",
    "10% slower passed",
    "equal decided",
    "10% slower decided",
)
#: 95%, two-sided.
NORMAL_QUANTILE = 1.96


@dataclass
class Tally:
    """Counts of trials, and the least number of independent trials they are worth."""

    trials: int = 0
    regressed: int = 0
    inconclusive: int = 0
    processes: int = 0
    independent: float = 0.0

    def count(self, kind: str, processes: int = 0) -> None:
        """Count a trial with this verdict, which took this many processes."""
        self.trials += 1
        self.regressed += kind == REGRESSED
        self.inconclusive += kind == INCONCLUSIVE
        self.processes += processes

    @property
    def each(self) -> float:
        """How many processes a trial took on average."""
        return self.processes / self.trials

    @property
    def open_share(self) -> str:
        """The share of inconclusive trials as text."""
        return f"{self.inconclusive / self.trials:.0%}"

    @property
    def decided_share(self) -> str:
        """The share of decided trials as text."""
        return f"{1 - self.inconclusive / self.trials:.0%}"

    @property
    def slower_share(self) -> str:
        """The share of *slower* verdicts, with its interval."""
        return share_text(self.regressed, self.trials, self.independent)

    @property
    def passed_share(self) -> str:
        """The share of trials that were decided and not called slower, with its interval."""
        passed = self.trials - self.regressed - self.inconclusive
        return share_text(passed, self.trials, self.independent)


def sum_of(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    total = Tally()
    for tally in tallies:
        total.trials += tally.trials
        total.regressed += tally.regressed
        total.inconclusive += tally.inconclusive
        total.processes += tally.processes
        total.independent += tally.independent
    return total


def wrong_answers(equal: Tally, slower: Tally) -> List[str]:
    """Return the cells of WRONG_ANSWERS: for equal code and for code that is 10% slower."""
    return [
        equal.slower_share,
        slower.passed_share,
        equal.decided_share,
        slower.decided_share,
    ]


def share_text(count: int, trials: int, independent: float) -> str:
    """Return a share of trials with its interval."""
    low, high = wilson(count / trials, independent)
    return f"{count / trials:.1%} ({low:.0%}-{high:.0%})"


def wilson(share: float, independent: float) -> Tuple[float, float]:
    """Return Wilson's 95% interval of a share of ``independent`` trials."""
    z, p, n = NORMAL_QUANTILE, share, independent
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Setting:
    """A user's settings of the gate."""

    threshold: float  # --gate
    processes: int  # --processes of the baseline: the session's own, and fresh ones
    cap: int  # --gate-cap
    cases: int  # compared in a run

    @property
    def least(self) -> int:
        """How many processes a trial needs for the baseline and for the candidate."""
        return self.processes + self.cap + 1

    def __str__(self) -> str:
        return (
            f"--gate={100 * self.threshold:g}% --gate-cap={self.cap}, baseline with "
            f"--processes={self.processes}, {self.cases} cases compared"
        )


def benchmark_of(line: Dict[str, Any], level: str) -> Benchmark:
    """Return a process of the pool in the form of a journal's case."""
    measured = line["levels"][level]
    return a_benchmark(
        measured["seconds"],
        line["items_per_round"],
        config_hash=line["case"],
        **{"throughput.unit": line["unit"]},
        canary=Canary(CANARY, measured["canaries"].get(CANARY, []), "before each round"),
        contention=msgspec.convert(measured.get("contention", {}), Contention),
    )


def draw(count: int, size: int, generator: random.Random) -> Sequence[int]:
    """Return the numbers of consecutive processes of a pool of ``count``."""
    start = generator.randrange(count - size + 1)
    return range(start, start + size)


def draw_others(
    count: int, size: int, drawn: Sequence[int], generator: random.Random
) -> Sequence[int]:
    """Return numbers of consecutive processes that were not ``drawn``, wrapping around."""
    rest = [number for number in range(count) if number not in drawn]
    offset = generator.randrange(len(rest))
    return (rest[offset:] + rest[:offset])[:size]


class Study:
    """Trials over the pool of one case."""

    def __init__(self, lines: List[Dict[str, Any]], setting: Setting) -> None:
        self.setting = setting
        self.count = len(lines)
        self.benchmarks = {
            level: [benchmark_of(line, level) for line in lines] for level in SLOWDOWNS
        }
        self.rule = gate.StoredRule({THROUGHPUT: setting.threshold}, setting.cases, setting.cap)

    def run(
        self,
        level: str,
        trials: int,
        generator: random.Random,
        other: Optional[Study] = None,
    ) -> Dict[str, Tally]:
        """Return the tallies of the gate and of each statistic of compare-fail.

        The candidate's processes come from the ``other`` pool if there is one.
        """
        tallies = {name: Tally(independent=self.count / 2) for name in ("gate", *COMPARE_FAIL)}
        for _ in range(trials):
            base = draw(self.count, self.setting.processes, generator)
            if other is None:
                fresh = draw_others(self.count, self.setting.cap + 1, base, generator)
            else:
                fresh = draw(other.count, self.setting.cap + 1, generator)
            before = [self.benchmarks[EQUAL][number] for number in base]
            now = [(other or self).benchmarks[level][number] for number in fresh]
            self._gate(tallies["gate"], before, now)
            for name, statistic in COMPARE_FAIL.items():
                old, new = (statistic(_seconds(side[0])) for side in (before, now))
                slower = new > old * (1 + COMPARE_FAIL_THRESHOLD)
                tallies[name].count(REGRESSED if slower else PASS)
        return tallies

    def _gate(self, tally: Tally, before: List[Benchmark], now: List[Benchmark]) -> None:
        asked: List[int] = []

        def measure(number: int) -> Benchmark:
            asked.append(number)
            return now[number]

        stored = with_processes(before[0], before[1:])
        verdict = judged(now[0], stored, self.rule, measure)
        tally.count(verdict.kind, len(asked))

    def stated(self, generator: random.Random) -> float:
        """Return the median slow-down that the gate claims to find, over baselines of the pool."""
        found = []
        for _ in range(STATED):
            chosen = draw(self.count, self.setting.processes, generator)
            before = [self.benchmarks[EQUAL][number] for number in chosen]
            least = gate.least_slowdown(with_processes(before[0], before[1:]), self.rule)
            found.append(math.inf if least is None else least)
        return statistics.median(found)


def _seconds(benchmark: Benchmark) -> List[float]:
    items = benchmark.record.items_per_round
    return [value / items for value in benchmark.stats.data]


def spread(lines: List[Dict[str, Any]], level: str) -> float:
    """Return the standard deviation between processes of the gate's statistic."""
    return statistics.stdev(_costs(lines, level))


def slowdown(lines: List[Dict[str, Any]], level: str) -> float:
    """Return the median slow-down within a process: the real effect of the extra work."""
    pairs = zip(_costs(lines, level), _costs(lines, EQUAL))
    return math.expm1(statistics.median(now - before for now, before in pairs))


def _costs(lines: List[Dict[str, Any]], level: str) -> List[float]:
    samples = [sample_of(benchmark_of(line, level), fresh=True) for line in lines]
    costs = [log_cost(sample, THROUGHPUT) for sample in samples]
    return [cost for cost in costs if cost is not None]


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
    """Run the simulations and print the tables in Markdown."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    add_trial_options(parser, "collect.py", "fresh processes")
    parser.add_argument("--processes", type=int, default=9, help="of the baseline (9)")
    options = parser.parse_args()
    setting = Setting(options.gate / 100, options.processes, options.cap, options.cases)
    pools = pools_given(parser, options.pool, "quiet", setting.least)
    report(pools["quiet"], setting, options.trials)
    if len(pools) > 1:
        report_beside_others(pools, dataclasses.replace(setting, cases=1), options.trials)


def report(pool: Pool, setting: Setting, trials: int) -> None:
    """Print the results of the gate and of compare-fail."""
    generator = random.Random(0)  # noqa: S311  draws
    found: Dict[str, Dict[str, Dict[str, Tally]]] = {}
    studies = {case: Study(lines, setting) for case, lines in pool.items()}
    for case, study in studies.items():
        found[case] = {level: study.run(level, trials, generator) for level in SLOWDOWNS}
    sizes = sorted(study.count for study in studies.values())
    print(f"{setting}; {sizes[0]} to {sizes[-1]} processes a case, {trials} trials each\n")
    head = ["case", "spread", "stated", *(f"{text} slower" for text in SHOWN), "of equal code"]
    print(markdown_table(head, []))
    for case, study in studies.items():
        tallies = [found[case][level]["gate"] for level in SLOWDOWNS]
        equal = tallies[0]
        cost = f"{equal.open_share} open, {equal.each:.1f} fresh"
        varies = f"{spread(pool[case], EQUAL):.1%}"
        stated = f"{study.stated(generator):.1%}"
        cells = [tally.slower_share for tally in tallies]
        print(markdown_row([short_name(case), varies, stated, *cells, cost]))
    print()
    print(markdown_table(["judged slower, all cases", *SHOWN], []))
    for name in ("gate", *COMPARE_FAIL):
        label = name if name == "gate" else f"compare-fail={name}:{COMPARE_FAIL_THRESHOLD:.0%}"
        together = [sum_of(found[case][level][name] for case in studies) for level in SLOWDOWNS]
        print(markdown_row([label, *(tally.slower_share for tally in together)]))
    real = [
        statistics.median(slowdown(lines, level) for lines in pool.values()) for level in SLOWDOWNS
    ]
    print(markdown_row(["what the extra work cost", *(f"{value:.1%}" for value in real)]))


def report_beside_others(pools: Dict[str, Pool], setting: Setting, trials: int) -> None:
    """Print the shares of wrong verdicts under every load of the pools."""
    studies = studies_of(pools, setting)
    print(f"\n{setting}; {trials} trials for each case and cell\n")
    print(markdown_table(["baseline", "gate", *WRONG_ANSWERS], []))
    for before, now in conditions([load for load in studies if load != "quiet" and studies[load]]):
        print(markdown_row([before, now, *row(studies[before], studies[now], trials)]))


if __name__ == "__main__":
    main()
