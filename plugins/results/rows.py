"""The results of runs as all tables show them: a row per case, and the sentences about all."""

from __future__ import annotations

import collections
import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from msgspec.structs import replace

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.plugins.gate.passed import why_passed
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.structs import Around, Benchmark
from ipubench.plugins.record.text import (
    EXIT_USAGE,
    cut_middle,
    distinct_names,
    name_of_test,
    parts_of,
    percent,
)
from ipubench.plugins.record.verdict import (
    EXIT_UNDECIDED,
    IMPROVED,
    INCONCLUSIVE,
    MISSING,
    NO_VERDICT,
    PASS,
    REGRESSED,
    UNJUDGED,
    Verdict,
    change_text,
    known,
    noisier,
    of_verdicts,
)
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.places import EntryKey, names_of, place_of
from ipubench.plugins.results.run_facts import (
    BAD,
    FAILED,
    KINDS,
    MEASURED,
    NO_GATE,
    NOT_RUN,
    SKIPPED,
    RunFacts,
    in_time,
    together,
)

CHANGED = ("regressed", "failed", "missing", "inconclusive", "incomparable", "improved", "new")
MOST_NOISY = 5  # names in a line
MOST_JOINED = 300  # characters of the baselines of many shards


@dataclass
class Report:
    """The results of one or more runs or stored documents, as all tables show them.

    A case's name is its node id, plus its machine if it ran on several.
    """

    benchmarks: Sequence[Benchmark]
    #: Oldest first. A report's baseline.json stores them.
    runs: Sequence[RunFacts] = ()
    #: Case -> the stored entry that it was compared with, if known.
    before: Dict[str, Benchmark] = field(default_factory=dict)
    #: Cases of the baseline that were not selected, when it is compared later.
    unselected: int = 0
    #: The other fields of a document of pytest-benchmark.
    around: Around = field(default_factory=Around)

    def __post_init__(self) -> None:
        self.runs = in_time(self.runs)

    @cached_property
    def named_runs(self) -> List[RunFacts]:
        """The runs, with the names of cases that the report has."""
        return [run.named(self.names) for run in self.runs]

    @cached_property
    def facts(self) -> RunFacts:
        """All runs together, with the verdicts of a later comparison."""
        return together(self.named_runs)

    @cached_property
    def names(self) -> Dict[EntryKey, str]:
        """EntryKey -> the case's name."""
        places = [place for run in self.runs for place in run.places().values()]
        return names_of([*map(place_of, self.benchmarks), *places])

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended a run."""
        return any(run.interrupted for run in self.runs)

    @property
    def problems(self) -> List[str]:
        """Problems of the runs themselves, one sentence each.

        The headline already mentions the interruption of a single run.
        """
        if self.interrupted and len(self.runs) == 1:
            return []
        return list(filter(None, (run.named_trouble() for run in self.runs)))

    @property
    def ended_badly(self) -> bool:
        """Whether a run ended early or has another problem besides its cases."""
        return bool(self.problems) or self.interrupted

    def judge(self, verdicts: Mapping[str, Verdict], baseline: str, gate: str) -> None:
        """Set the verdicts of a later comparison.

        If the selection is known, a case without a result is missing only if it passed. Otherwise
        it failed, was skipped, was not run, or was not selected; the last ones are counted. The
        result of a case that was interrupted is not judged.
        """
        selected = {case for run in self.runs for case in run.selected}
        known = bool(self.runs) and all(run.selected for run in self.runs)
        outcomes = [outcome for run in self.runs for outcome in run.outcomes.items()]
        passed = {case for case, how in outcomes if how == "passed"}
        ran = passed - {case for case, how in outcomes if how == "failed"}
        missing = {name for name, one in verdicts.items() if known and one.kind == MISSING}
        self.unselected = len(missing - selected)
        left_out = (missing - (ran & selected)) | set(self.facts.not_run())
        kept = {name: one for name, one in verdicts.items() if name not in left_out}
        kept = {**self.facts.verdicts, **kept}
        self.facts = replace(self.facts, verdicts=kept, baseline=baseline, gate=gate)

    def keep_compared(self, find: Callable[[Benchmark], Optional[Benchmark]]) -> None:
        """Keep the stored entry of each compared case, which ``find`` returns."""
        for name, benchmark in self.measured().items():
            entry = find(benchmark)
            # Rounds of another machine, for example, must not be shown next to these.
            if entry is not None and self.facts.verdicts.get(name, NO_VERDICT).change is not None:
                self.before[name] = entry

    def measured(self) -> Dict[str, Benchmark]:
        """Return the measured cases."""
        return {self.names[place_of(b)]: b for b in self.benchmarks}

    def rows(self) -> List[CaseRow]:
        """Return a row per measured case, then rows of cases without a result."""
        measured, facts = self.measured(), self.facts
        kinds = {case: facts.kind_of(case) for case in facts.cases()}
        nodeids = {name: nodeid for (nodeid, _), name in self.names.items()}
        failed = [case for case, kind in kinds.items() if kind == FAILED]
        others = [*failed, *facts.verdicts, *facts.not_run()]
        return [
            self._row(name, nodeids.get(name, name), kinds.get(name, MEASURED), measured.get(name))
            for name in dict.fromkeys([*measured, *others])
        ]

    def _row(self, name: str, nodeid: str, kind: str, benchmark: Optional[Benchmark]) -> CaseRow:
        verdict = self.facts.verdicts.get(name, NO_VERDICT)
        why = {FAILED: self.facts.reasons.get(name, ""), NOT_RUN: "its run ended before its test"}
        short = benchmark.record.name if benchmark else parts_of(nodeid)[2] or nodeid
        return CaseRow(
            id=name,
            # The machine is part of the name if there are several.
            name=short + name[len(nodeid) :],
            nodeid=nodeid,
            benchmark=benchmark,
            verdict=verdict,
            kind=verdict.kind or MEASURED if kind == SKIPPED else kind,
            reasons=[*filter(None, [why.get(kind, "")]), *reasons_of(verdict)],
            profile=self.facts.profiles.get(name),
            before=self.before.get(name),
            skipped=self.facts.outcomes.get(name) == SKIPPED,
        )


def exit_code(report: Report, rows: Sequence[CaseRow]) -> int:
    """Return a report's exit code: 0; 1 if a case or a run is bad or nothing ran; 6; or 4.

    6: there is a gate, but no case was decided. 4: a run left no readable results.
    """
    if any(run.problem for run in report.runs):
        return EXIT_USAGE
    found = counts(rows)
    nothing = not rows and all(run.exit_code is None for run in report.runs)
    if nothing or report.ended_badly or any(kind in found for kind in BAD):
        return 1
    return 0 if report.facts.gate == NO_GATE else of_verdicts(found)


def named(rows: Sequence[CaseRow]) -> List[CaseRow]:
    """Return the rows with distinct names.

    A case without a result gets its test's name, because its identifier may be a mere number.
    """
    names = distinct_names(
        {row.id: row.name if row.benchmark else name_of_test(row.id) for row in rows}
    )
    return [dataclasses.replace(row, name=names[row.id]) for row in rows]


def reasons_of(verdict: Verdict) -> List[str]:
    """Return a verdict's reasons as texts, with other metrics and changed extra_info."""
    also = [one for one in verdict.also if one.kind != PASS]
    changed = [f"{one.metric}: {change_text(one)}" for one in also if change_text(one)]
    passed = filter(None, [why_passed(verdict)])
    return [*passed, *changed, *dict.fromkeys([*verdict.reasons, *verdict.extra_info])]


def counts(rows: Sequence[CaseRow]) -> Dict[str, int]:
    """Return the number of rows of each kind, most important first."""
    found = collections.Counter(row.kind for row in rows)
    return {kind: found[kind] for kind in KINDS if found[kind]}


def headline(report: Report, rows: Sequence[CaseRow]) -> str:
    """Return a sentence on how the run ended."""
    numbers = [f"{count} {kind}" for kind, count in counts(rows).items()]
    text = f"{counted(len(rows), 'case')}: {', '.join(numbers) or 'none'}"
    if report.facts.baseline:
        baseline, gate = (
            cut_middle(one, MOST_JOINED) for one in (report.facts.baseline, report.facts.gate)
        )
        text += f", against {baseline} ({gate})"
    if exit_code(report, rows) == EXIT_UNDECIDED:
        text += "; no case was decided"
    return text + _of_the_runs(report)


def conclusion(report: Report, rows: Sequence[CaseRow]) -> str:
    """Return the conclusion in a few words: what is wrong, or that nothing is."""
    found = counts(rows)
    wrong = [f"{found[kind]} {kind}" for kind in BAD if kind in found and kind != REGRESSED]
    cases = counted(len(rows), "case")
    clear, open_ = found.get(PASS, 0) + found.get(IMPROVED, 0), found.get(INCONCLUSIVE, 0)
    regressed = [row for row in rows if row.kind == REGRESSED]
    if regressed:
        text = ", ".join([_slower(regressed, cases), *wrong])
    elif wrong:
        text = f"{', '.join(wrong)} of {cases}"
    elif clear or open_:
        text = f"No regression in {counted(clear, 'case')}" if clear else f"{cases} measured"
        others = {INCONCLUSIVE: open_, UNJUDGED: len(rows) - clear - open_}
        text += "".join(f", {count} {kind}" for kind, count in others.items() if count)
    else:
        text = f"{cases} measured" + (", none judged" if report.facts.baseline else "")
    return text + _of_the_runs(report)


def _slower(bad: Sequence[CaseRow], cases: str) -> str:
    """Return which case is slower by how much, or how many of the ``cases`` are."""
    by_speed = all(row.verdict.metric == THROUGHPUT for row in bad)
    if len(bad) > 1:
        return f"{len(bad)} of {cases} {'are slower' if by_speed else 'regressed'}"
    (row,) = bad
    change = row.verdict.change
    if not by_speed or change is None:
        return f"{row.name} regressed"
    return f"{row.name} is {percent(-change, 0 if change <= -0.1 else 1)} slower"


def _of_the_runs(report: Report) -> str:
    """Return the end of a sentence about all cases: problems of the runs."""
    text = "; the run was interrupted" if report.interrupted and len(report.runs) < 2 else ""
    if report.problems:
        which = f"{len(report.problems)} of {len(report.runs)} runs"
        text += f"; {which if len(report.runs) > 1 else 'the run'} did not end well"
    if report.unselected:
        cases = counted(report.unselected, "case of the baseline was", "cases of the baseline were")
        text += f"; {cases} not selected"
    return text


def own_noise(verdicts: Iterable[Tuple[str, Verdict]]) -> str:
    """Return a line that names the cases whose noise allows more than the gate, or ''."""
    found = [
        (known(verdict.allowed), name)
        for name, verdict in verdicts
        if noisier(verdict.threshold, verdict.allowed)
    ]
    if not found:
        return ""
    found.sort(reverse=True)
    names = some_of([f"{name} {percent(allowed)}" for allowed, name in found], MOST_NOISY)
    subject = counted(len(found), "case is", "cases are")
    whose = "its" if len(found) == 1 else "their"
    return f"{subject} allowed more than the gate, because of {whose} own noise: {names}"


def rank(row: CaseRow) -> Tuple[int, float]:
    """Return a sort key for a row: its kind, then its change."""
    if row.kind not in KINDS:
        return len(KINDS), 0.0
    return KINDS.index(row.kind), row.verdict.change or 0.0


def by_change(rows: Sequence[CaseRow]) -> List[CaseRow]:
    """Return the rows, worst first; equals keep the run's order."""
    return sorted(rows, key=rank)
