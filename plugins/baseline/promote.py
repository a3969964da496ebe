"""Implements ``promote``, which makes a run's results the baseline if its verdicts allow it.

A regressed case becomes the baseline only if a person accepts it by name, with a reason. The reason
stays in the case's entry (``accepted`` of its record), in the baseline and in the history.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Set

from msgspec.structs import replace

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.baseline import history, store
from ipubench.plugins.baseline.commands import (
    path_of,
    print_lines,
    run_path,
    suite_root,
)
from ipubench.plugins.baseline.entries import (
    MOST_NAMES,
    Key,
    accepting,
    as_promoted,
    by_machine,
    key_of,
    left_out,
    why_disturbed,
)
from ipubench.plugins.baseline.format import BaselineError, Document
from ipubench.plugins.baseline.runs import read_sound_run
from ipubench.plugins.record.structs import Accepted, Benchmark
from ipubench.plugins.record.text import matches, say, time_stamp
from ipubench.plugins.record.verdict import INCONCLUSIVE, MISSING, REGRESSED
from ipubench.plugins.results.places import EntryKey, place_of
from ipubench.plugins.results.rows import Report
from ipubench.plugins.results.run_facts import FAILED, NOT_RUN, UNPROVEN, RunFacts, worst_run

#: The exit code if good cases were promoted but others were disturbed.
EXIT_INCOMPLETE = 1
DISTURBED = "not promoted: measure again on a quiet machine, or accept them with --accept"
UNUSABLE = "promoted, but no gate can judge by them: measure again on a quiet machine"


@dataclass(frozen=True)
class Acceptance:
    """A pattern for cases that a person accepts, and the reason."""

    pattern: str
    reason: str

    @classmethod
    def parse(cls, text: str) -> Acceptance:
        """Read ``PATTERN=REASON``. Raises argparse.ArgumentTypeError."""
        pattern, _, reason = (part.strip() for part in text.partition("="))
        if not pattern or not reason:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not PATTERN=REASON, such as '*lstm*=needed for correct gradients'"
            )
        return cls(pattern, reason)


@dataclass
class Decision:
    """What happens to each case of a run; with several machines, names include the machine."""

    promoted: List[Benchmark] = field(default_factory=list)
    #: Credible results, which the history keeps.
    proven: List[Benchmark] = field(default_factory=list)
    #: Cases that regressed and were not accepted.
    refused: List[str] = field(default_factory=list)
    #: Case -> why its old entry stays.
    left: Dict[str, str] = field(default_factory=dict)
    #: Cases with too few undisturbed processes, whose sound entries stay.
    disturbed: List[str] = field(default_factory=list)
    #: Promoted cases with too few undisturbed processes.
    unusable: List[str] = field(default_factory=list)
    #: Cases that are missing, failed or not run: something is wrong with the run.
    bad: List[str] = field(default_factory=list)


def decide(stored: Report, accepted: Sequence[Acceptance], entries: Set[EntryKey]) -> Decision:
    """Return what happens to each case on each machine, given its verdict and outcome.

    ``entries`` are the usable ones of the baseline.
    """
    found = Decision()
    names, runs = stored.names, worst_run(stored.named_runs)
    for benchmark in stored.benchmarks:
        nodeid = benchmark.fullname
        place = place_of(benchmark)
        name = names[place]
        # A run without a machine applies to all.
        said = name if name in runs else nodeid
        kind = runs[said].kind_of(said) if said in runs else ""
        by = [one for one in accepted if matches(one.pattern, nodeid)]
        if kind in UNPROVEN or benchmark.record.implausible:
            found.left[name] = kind if kind in UNPROVEN else "implausible"
            continue
        found.proven.append(benchmark)
        if kind in (REGRESSED, INCONCLUSIVE) and by:
            found.promoted.append(accepting(benchmark, [_kept(by[-1], runs[said], said)]))
        elif kind == REGRESSED:
            found.refused.append(name)
        elif kind == INCONCLUSIVE and place in entries:
            found.left[name] = kind
        elif why_disturbed(benchmark) and place in entries and not by:
            found.disturbed.append(name)
        else:
            found.promoted.append(benchmark)
            if why_disturbed(benchmark):
                found.unusable.append(name)
    for name, run in runs.items():
        kind = run.kind_of(name)
        if kind in (FAILED, NOT_RUN, MISSING):
            found.bad.append(name)
            found.left[name] = kind
    return found


def _kept(acceptance: Acceptance, run: RunFacts, name: str) -> Accepted:
    """Return the acceptance that the case's entry keeps."""
    change = run.verdicts[name].change if name in run.verdicts else None
    return Accepted(acceptance.reason, time_stamp(), change)


def promote(args: Namespace) -> int:
    """Make a run's results the baseline of their cases; return the exit code."""
    path = run_path(args.run)
    if not store.exists(path):
        raise BaselineError(
            f"there is no run {path}; name a journal, a report's baseline.json or a folder with one"
        )
    stored = read_sound_run(path)
    if not stored.benchmarks:
        raise BaselineError(f"the run {path} measured no case")
    target = path_of(args.name)
    found = decide(stored, args.accept, store.sound_places(target))
    if args.history is not None:
        # If one case is refused, none is promoted.
        kept = [] if found.refused else [as_promoted(b, target.stem) for b in found.promoted]
        known = {key_of(benchmark): benchmark for benchmark in [*found.promoted, *kept]}
        document = Document.of(stored.around, found.proven)
        print_lines(_keep_history(document, known, args.history))
    if found.refused:
        some = some_of(found.refused, MOST_NAMES)
        raise BaselineError(
            f"nothing was promoted: {counted(len(found.refused), 'case')} of {path} regressed "
            f"({some}); --accept 'PATTERN=REASON' makes the slower speed of the cases that it "
            "names the baseline"
        )
    if found.promoted:
        store.save(target, Document.of(stored.around, found.promoted))
        subject = counted(len(found.promoted), f"case of {path} is", f"cases of {path} are")
        say(f"{subject} the baseline {target} now")
    else:
        say(f"no case of {path} was promoted to the baseline {target}")
    return _say_the_rest(stored, found, args.accept)


def _say_the_rest(stored: Report, found: Decision, acceptances: Sequence[Acceptance]) -> int:
    """Name the cases that were not simply promoted; return the exit code."""
    stay = left_out(found.left, "whose entries stay as they were")
    disturbed = left_out(dict.fromkeys(found.disturbed, "disturbed"), DISTURBED)
    unusable = left_out(dict.fromkeys(found.unusable, "disturbed"), UNUSABLE)
    lines = [f"  {line}" for line in (*stay, *disturbed, *unusable)]
    known = {b.fullname for b in stored.benchmarks}.union(*(run.cases() for run in stored.runs))
    for one in acceptances:
        if not any(matches(one.pattern, nodeid) for nodeid in known):
            lines.append(f"  --accept: no case of the run matches {one.pattern}")
    troubles = [f"  {run.name}: {run.trouble()}" for run in stored.runs if run.trouble()]
    print_lines([*lines, *troubles])
    return EXIT_INCOMPLETE if found.bad or troubles or not found.promoted else 0


def _keep_history(document: Document, known: Dict[Key, Benchmark], folder: str) -> List[str]:
    """Write the measured cases into the history, a file for each machine; return lines on it.

    Includes cases that are not promoted, because a trend shows all measurements. ``known``: the
    promoted entries.
    """
    try:
        root = user_path(folder) if folder else suite_root() / history.FOLDER
    except OSError as error:
        raise BaselineError(f"--history={folder}: {error}") from error
    kept = [known.get(key_of(benchmark), benchmark) for benchmark in document.benchmarks]
    lines = []
    for benchmarks in by_machine(kept).values():
        newest = max(benchmark.record.time for benchmark in benchmarks)
        path = history.path_of(root, benchmarks, newest, "promoted")
        store.save(path, replace(document, benchmarks=benchmarks))
        lines.append(f"kept for the history in {path}")
    return lines
