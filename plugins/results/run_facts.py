"""How runs and their cases ended: what a report needs besides the measurements.

They come from a journal's lines. A report's ``baseline.json`` stores them under the top-level key
``ipubench``, as ``runs``, so that a report of all shards includes what each one found.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.plugins.record.structs import Moment, Profile
from ipubench.plugins.record.verdict import INCOMPARABLE, UNJUDGED, Verdict
from ipubench.plugins.results.places import EntryKey

FAILED, SKIPPED, NOT_RUN, MEASURED = "failed", "skipped", "not run", "measured"
#: How a case can end, most important first.
KINDS = (
    "regressed",
    FAILED,
    "missing",
    NOT_RUN,
    "inconclusive",
    "incomparable",
    "improved",
    "new",
    "pass",
    UNJUDGED,
    MEASURED,
)
BAD = ("regressed", FAILED, "missing", NOT_RUN)
#: The result of a test that ended like this, or did not end, may be wrong.
UNPROVEN = (FAILED, NOT_RUN, SKIPPED)
#: Exit codes: pytest's for Ctrl-C, and a shell's for SIGTERM.
EXITS_OF_INTERRUPTED = (2, 143)
NO_GATE = "no gate"
MOST_LINES = 3  # in a message

Value = TypeVar("Value")


class RunFacts(Struct):
    """How one run and its cases ended. Cases are named by their node ids."""

    #: Its source: a journal, a document, or the folder of a shard.
    name: str = ""
    command: str = ""
    #: Seconds since 1970.
    started: Optional[Moment] = None
    ended: Optional[Moment] = None
    #: Its cases, including those that an earlier part of a resumed run has done.
    selected: List[str] = []
    #: Case -> passed, failed, skipped.
    outcomes: Dict[str, str] = {}
    #: Case -> why it did not pass, in one line.
    reasons: Dict[str, str] = {}
    #: Of missing cases too, once it has ended.
    verdicts: Dict[str, Verdict] = {}
    #: Case -> its operations (plugins/compare/explain.py).
    profiles: Dict[str, Profile] = {}
    #: Case -> the fingerprint of the device that it was measured on.
    machines: Dict[str, str] = {}
    #: What it was compared with, or ''; and its gate.
    baseline: str = ""
    gate: str = NO_GATE
    #: What makes the gate another one than a reader would expect.
    gate_notes: List[str] = []
    #: None if the run did not record its end.
    exit_code: Optional[int] = None
    #: Why it could not be read, or ''.
    problem: str = ""
    #: Lines of its journal that cannot be read.
    damaged: List[str] = []

    def facts(self) -> RunFacts:
        """Return what a document stores of it."""
        return RunFacts(**{name: getattr(self, name) for name in RunFacts.__struct_fields__})

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended it."""
        return self.exit_code in EXITS_OF_INTERRUPTED

    @property
    def judged(self) -> bool:
        """Whether it was compared with anything."""
        return bool(self.baseline) or any(
            verdict.kind != UNJUDGED for verdict in self.verdicts.values()
        )

    def cases(self) -> List[str]:
        """Return every case that it mentions."""
        return list(dict.fromkeys([*self.selected, *self.outcomes, *self.verdicts]))

    def kind(self, nodeid: str) -> str:
        """Return the kind of a case's verdict, or ''."""
        return self.verdicts[nodeid].kind if nodeid in self.verdicts else ""

    def not_run(self) -> List[str]:
        """Return the cases whose test has not ended."""
        return [case for case in self.cases() if self.kind_of(case) == NOT_RUN]

    def kind_of(self, nodeid: str) -> str:
        """Return how a case ended, one of ``KINDS``, or 'skipped'."""
        outcome = self.outcomes.get(nodeid)
        kind = self.kind(nodeid)
        if outcome == "failed" and kind not in ("regressed", "missing"):
            return FAILED
        if kind and not (outcome == SKIPPED and kind == INCOMPARABLE):
            return kind
        if outcome is None:
            return NOT_RUN
        return MEASURED if outcome == "passed" else outcome

    def trouble(self) -> str:
        """Return the problem of the run itself, apart from its cases, or ''."""
        if self.problem:
            return self.problem
        if self.damaged:
            return self.damage()
        done = sum(nodeid in self.outcomes for nodeid in self.selected)
        far = f"{done} of {len(self.selected)} cases had ended"
        if self.exit_code is None:
            return f"the run did not end: its process was killed; {far}"
        if self.interrupted:
            return f"the run was interrupted; {far}"
        bad = any(self.kind_of(nodeid) in BAD for nodeid in self.cases())
        if self.exit_code in (0, 6) or (self.exit_code == 1 and bad):
            return ""
        return f"the run ended with exit code {self.exit_code}; {far}"

    def named_trouble(self) -> str:
        """Return the problem with the name of the run, or ''."""
        found = self.trouble()
        named = not found or not self.name or found.startswith(f"{self.name} ")
        return found if named else f"{self.name}: {found}"

    def damage(self) -> str:
        """Return which lines of its journal cannot be read, or ''."""
        if not self.damaged:
            return ""
        lines = counted(len(self.damaged), "line")
        return (
            f"the run is damaged, {lines} of its journal cannot be read: "
            f"{some_of(self.damaged, MOST_LINES)}; repeat the command with --resume to measure "
            "these cases again"
        )

    def without(self, nodeids: Iterable[str]) -> RunFacts:
        """Return the run without some cases."""
        gone = set(nodeids)
        return self.called({case: "" if case in gone else case for case in self.cases()})

    def called(self, names: Mapping[str, str]) -> RunFacts:
        """Return the run with new names for its cases, without those whose name is ''."""

        def called(part: Mapping[str, Value]) -> Dict[str, Value]:
            return {names[case]: value for case, value in part.items() if names.get(case)}

        return replace(
            self.facts(),
            selected=[names[case] for case in self.selected if names.get(case)],
            outcomes=called(self.outcomes),
            reasons=called(self.reasons),
            verdicts=called(self.verdicts),
            profiles=called(self.profiles),
            machines=called(self.machines),
        )

    def named(self, names: Mapping[EntryKey, str]) -> RunFacts:
        """Return the run with its cases named by their places."""
        return self.called({case: names[place] for case, place in self.places().items()})

    def places(self) -> Dict[str, EntryKey]:
        """Return case -> its place: the machine that ran it or should have."""
        known = set(self.machines.values())
        only = known.pop() if len(known) == 1 else ""
        here = {*self.selected, *self.outcomes}
        return {
            case: (case, self.machines.get(case, only if case in here else ""))
            for case in self.cases()
        }


def lost(name: str, problem: str) -> RunFacts:
    """Return a run for a shard without readable results."""
    return RunFacts(name=name, problem=problem)


def in_time(runs: Iterable[RunFacts]) -> List[RunFacts]:
    """Return runs in order of their start, without duplicates."""
    found: List[RunFacts] = []
    for run in sorted(runs, key=lambda run: run.started or 0.0):
        if run not in found:
            found.append(run)
    return found


def superseded(runs: Iterable[RunFacts]) -> List[RunFacts]:
    """Return runs without superseded cases: only the last run that finished a case keeps it."""
    ordered = in_time(runs)
    # Case -> machine -> the last run that finished it there; '' is any machine.
    last: Dict[str, Dict[str, int]] = {}
    for number, run in enumerate(ordered):
        places = run.places()
        for case in (*run.outcomes, *run.verdicts):
            last.setdefault(case, {})[places[case][1]] = number
    kept: List[RunFacts] = []
    for number, run in enumerate(ordered):
        left = run.without(
            case
            for case, (_, machine) in run.places().items()
            if _last(last.get(case, {}), machine, number) != number
        )
        if left.cases() or not run.cases():
            kept.append(left)
    return kept


def _last(ended: Mapping[str, int], machine: str, number: int) -> int:
    """Return the last run that finished a case on a machine, or ``number``."""
    found = [run for other, run in ended.items() if not machine or other in ("", machine)]
    return max(found, default=number)


def worst_run(runs: Sequence[RunFacts]) -> Dict[str, RunFacts]:
    """Return case -> the run with its worst outcome: a problem in one shard remains.

    Among equal outcomes, the last run wins, whose figures are shown. ``runs``: oldest first.
    """
    found: Dict[str, RunFacts] = {}
    for run in runs:
        for nodeid in run.cases():
            known = found.get(nodeid)
            if known is None or _rank(run, nodeid) <= _rank(known, nodeid):
                found[nodeid] = run
    return found


def together(runs: Sequence[RunFacts]) -> RunFacts:
    """Return several runs as one, with the worst outcome of each case. ``runs``: oldest first."""
    worst = worst_run(runs)

    def part(name: str) -> Dict[str, Any]:
        found = ((case, getattr(run, name)) for case, run in worst.items())
        return {case: values[case] for case, values in found if case in values}

    return RunFacts(
        command=_joined(run.command for run in runs),
        started=min((run.started for run in runs if run.started), default=None),
        ended=max((run.ended for run in runs if run.ended), default=None),
        selected=list(worst),
        outcomes=part("outcomes"),
        reasons=part("reasons"),
        verdicts=part("verdicts"),
        profiles=part("profiles"),
        baseline=_joined(run.baseline for run in runs),
        gate=_joined(run.gate for run in runs if run.baseline) or NO_GATE,
    )


def _joined(values: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(filter(None, values)))


def _rank(run: RunFacts, nodeid: str) -> int:
    kind = run.kind_of(nodeid)
    return KINDS.index(kind) if kind in KINDS else len(KINDS)
