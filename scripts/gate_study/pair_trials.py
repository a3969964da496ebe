"""Trials over a pool of pairs: what `--against` would have said of pairs drawn from it.

A trial takes pairs that followed each other, in turns of both orders, and judges them at the
looks and levels of the suite's own gate (plugins/gate/paired.py).
"""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipubench.plugins.gate import paired
from ipubench.plugins.gate.adjacent import AdjacentRounds
from ipubench.plugins.gate.inference import Effect
from ipubench.plugins.record.verdict import INCONCLUSIVE, PASS, REGRESSED
from scripts.gate_study.pool import SLOWDOWNS, Pool
from scripts.gate_study.tally import Tally

TIME, CPU = "time", "CPU time"


class Figure(NamedTuple):
    """What one pair says of one figure, and which side was first in it."""

    effect: Effect
    here_first: bool


#: What each witness says of a pair; None where others left too little of it.
Figures = Dict[str, Optional[Figure]]


@dataclass(frozen=True)
class Setting:
    """What the user asks of ``--against``."""

    threshold: float  # --gate
    cap: int  # --gate-cap, pairs
    cases: int  # compared in a run

    def __str__(self) -> str:
        return (
            f"--against --gate={100 * self.threshold:g}% --gate-cap={self.cap}, "
            f"{self.cases} cases compared"
        )


@dataclass(frozen=True)
class Judge:
    """Which figures of a pair judge, and whether one of them is enough to call code slower."""

    name: str
    witnesses: Tuple[str, ...]
    one_is_enough: bool = True

    def together(self, kinds: Mapping[str, str]) -> str:
        """Return the verdict of what each witness has said so far."""
        said = [kinds.get(name, INCONCLUSIVE) for name in self.witnesses]
        slower = [kind == REGRESSED for kind in said]
        fine = [kind not in (REGRESSED, INCONCLUSIVE) for kind in said]
        if any(slower) if self.one_is_enough else all(slower):
            return REGRESSED
        if all(fine) if self.one_is_enough else any(fine):
            return PASS
        return INCONCLUSIVE


#: The suite's own is the first.
JUDGES = (
    Judge(TIME, (TIME,)),
    Judge(CPU, (CPU,)),
    Judge("either", (TIME, CPU)),
    Judge("both", (TIME, CPU), one_is_enough=False),
)


def plain_mean(figures: Sequence[Figure]) -> Effect:
    """Return what the suite makes of several pairs."""
    return paired.paired_effect([paired.Pair(one.effect.change, one.here_first) for one in figures])


def figures_of(line: Dict[str, Any], level: str) -> Tuple[bool, Figures]:
    """Return of a line of the pool which side was first, and what each witness says."""
    rounds = AdjacentRounds.of(line["levels"][level])
    first = bool(line["here_first"])
    effects = {TIME: rounds.effect() if rounds.enough else None, CPU: rounds.cpu_effect()}
    found: Figures = {
        name: None if effect is None else Figure(effect, first) for name, effect in effects.items()
    }
    return first, found


def together(line: Dict[str, Any]) -> Dict[str, Any]:
    """Return a line of the pool whose levels all have the rounds of all its levels.

    The extra work is divided out of the rounds here by its nominal share, and the share of each
    level multiplied in. So a pair has as many rounds as one of a comparison, for the time that the
    pool took; slow-downs are not real any more.
    """
    measured = [(float(level), AdjacentRounds.of(one)) for level, one in line["levels"].items()]
    levels = {}
    for level in line["levels"]:
        joined = AdjacentRounds(items_here=measured[0][1].items_here)
        joined.items_there = measured[0][1].items_there
        for share, rounds in measured:
            slower = (1 + float(level)) / (1 + share)
            joined.here_first += rounds.here_first
            for side, more, factor in (
                (joined.here, rounds.here, slower),
                (joined.there, rounds.there, 1.0),
            ):
                side.seconds += [factor * value for value in more.seconds]
                side.cpu_seconds += [v and factor * v for v in more.cpu_seconds]
                side.lost += more.lost
                side.by_others += more.by_others
                side.waited += more.waited
                side.copies_ms += more.copies_ms
        levels[level] = joined.as_dict()
    return {**line, "levels": levels}


class Trial:
    """One comparison of a case, as it goes on from pair to pair."""

    def __init__(self, setting: Setting, judge: Judge) -> None:
        self.setting, self.judge = setting, judge
        # Either of two witnesses may raise the alarm: both are tests.
        tests = len(judge.witnesses) if judge.one_is_enough else 1
        self.level = paired.level_of_a_look(setting.cap, setting.cases * tests)
        self.looks = set(paired.looks(setting.cap))
        self.known: Dict[str, List[Figure]] = {name: [] for name in judge.witnesses}
        self.kinds: Dict[str, str] = {}
        self.measured: List[bool] = []

    def here_is_next(self) -> bool:
        """Tell which side the next pair has first, as the suite chooses it."""
        counted = [one.here_first for one in max(self.known.values(), key=len)]
        return paired.here_is_next(counted, self.measured)

    def add(self, here_first: bool, figures: Figures) -> None:
        """Take a pair, and look at what it is time to look at."""
        self.measured.append(here_first)
        for name, known in self.known.items():
            figure = figures[name]
            if figure is not None:
                known.append(figure)
                if len(known) in self.looks:
                    self._look(name)

    @property
    def verdict(self) -> str:
        """What the looks say so far."""
        return self.judge.together(self.kinds)

    def is_given_up(self) -> bool:
        """Tell whether others disturb too many pairs for every witness."""
        most = max(len(known) for known in self.known.values())
        return paired.given_up(most, len(self.measured))

    def look_again(self) -> None:
        """Look at everything, because no further pair comes."""
        for name, known in self.known.items():
            if len(known) not in self.looks:
                self._look(name)

    def _look(self, name: str) -> None:
        known = self.known[name]
        if paired.can_compare([one.here_first for one in known]):
            effect = plain_mean(known)
            self.kinds[name] = paired.kind_of(effect, self.setting.threshold, self.level)


class PairStudy:
    """Trials over the pairs of one case at one level of extra work."""

    def __init__(self, pairs: Sequence[Tuple[bool, Figures]], setting: Setting) -> None:
        self.pairs, self.setting = pairs, setting

    def run(self, judge: Judge, trials: int, generator: random.Random) -> Tally:
        """Return the tally of so many trials; its processes are pairs."""
        tally = Tally()
        for _ in range(trials):
            tally.count(*self.once(judge, generator.randrange(len(self.pairs))))
        tally.independent = len(self.pairs) / tally.each
        return tally

    def once(self, judge: Judge, start: int) -> Tuple[str, int]:
        """Return the verdict on the pairs from one on, round the pool, and how many it took."""
        left = [*self.pairs[start:], *self.pairs[:start]]
        trial = Trial(self.setting, judge)
        while left and len(trial.measured) < self.setting.cap and not trial.is_given_up():
            wanted = trial.here_is_next()
            number = next((k for k, pair in enumerate(left) if pair[0] == wanted), 0)
            trial.add(*left.pop(number))
            if trial.verdict != INCONCLUSIVE:
                return trial.verdict, len(trial.measured)
        trial.look_again()
        return trial.verdict, len(trial.measured)


#: Case -> level -> its trials, and what one judge said of them.
Studies = Dict[str, Dict[str, PairStudy]]
Tallies = Dict[str, Dict[str, Tally]]


def studies_of(pool: Pool, setting: Setting) -> Studies:
    """Return the trials over every case's pairs."""
    return {
        case: {
            level: PairStudy([figures_of(line, level) for line in lines], setting)
            for level in SLOWDOWNS
        }
        for case, lines in pool.items()
    }


def tallies_of(studies: Studies, judge: Judge, trials: int) -> Tallies:
    """Return what one judge said."""
    generator = random.Random(0)  # noqa: S311  draws
    return {
        case: {level: study.run(judge, trials, generator) for level, study in levels.items()}
        for case, levels in studies.items()
    }


def change(figures: Figures, witness: str) -> Optional[float]:
    """Return the difference of a pair, where the witness says anything of it."""
    figure = figures[witness]
    return None if figure is None else figure.effect.change


def spread(study: PairStudy, witness: str) -> Optional[float]:
    """Return the standard deviation between pairs of what a witness says of two or more."""
    found = (change(figures, witness) for _, figures in study.pairs)
    values = [value for value in found if value is not None]
    return statistics.stdev(values) if len(values) > 1 else None
