"""``promote``: make a run's results the baseline, where the run's own verdicts allow it.

A case that regressed becomes the baseline only where it is accepted by name and with a reason. The
reason stays in the case's entry (``accepted`` of its record), in the baseline and in the history.
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
    refuse_each_host,
    run_path,
    suite_root,
)
from ipubench.plugins.baseline.entries import (
    MOST_NAMES,
    Key,
    Place,
    accepting,
    as_promoted,
    by_machine,
    key_of,
    left_out,
    names_of,
    place_of,
    why_disturbed,
)
from ipubench.plugins.baseline.format import BaselineError, Document
from ipubench.plugins.baseline.run_facts import FAILED, NOT_RUN, UNPROVEN, RunFacts, worst_run
from ipubench.plugins.baseline.runs import StoredRun, read_run
from ipubench.plugins.record.structs import Accepted, Benchmark
from ipubench.plugins.record.text import matches, time_stamp
from ipubench.plugins.record.verdict import INCONCLUSIVE, MISSING, REGRESSED

#: The exit code where the good cases were promoted and others were not measured well.
EXIT_INCOMPLETE = 1
DISTURBED = "not promoted: measure on a quiet machine, or take as measured with --accept"


@dataclass(frozen=True)
class Acceptance:
    """The cases that a person accepts as they are, and why."""

    pattern: str
    reason: str

    @classmethod
    def parse(cls, text: str) -> Acceptance:
        """Read ``PATTERN=REASON``. Raises argparse.ArgumentTypeError."""
        pattern, _, reason = (part.strip() for part in text.partition("="))
        if not pattern or not reason:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no PATTERN=REASON, such as '*lstm*=needed for correct gradients'"
            )
        return cls(pattern, reason)


@dataclass
class Decision:
    """What becomes of the cases of a run; of several machines a case is called by its own too."""

    promoted: List[Benchmark] = field(default_factory=list)
    #: What may be kept as measured: nobody doubts that the results are right.
    proven: List[Benchmark] = field(default_factory=list)
    #: Regressed, and accepted by nobody.
    refused: List[str] = field(default_factory=list)
    #: Case -> why its old entry stays.
    left: Dict[str, str] = field(default_factory=dict)
    #: Cases of which too few processes were left alone: a gate could judge nothing by them.
    disturbed: List[str] = field(default_factory=list)
    #: Missing, failed or not run: something is wrong with the run.
    bad: List[str] = field(default_factory=list)


def decide(stored: StoredRun, accepted: Sequence[Acceptance], entries: Set[Place]) -> Decision:
    """Return what becomes of each case on each machine, by what its run said of it.

    ``entries`` are the sound ones of the baseline.
    """
    found = Decision()
    places = [place for run in stored.runs for place in run.places().values()]
    names = names_of([*map(place_of, stored.benchmarks), *places])
    runs = worst_run([run.named(names) for run in stored.runs])
    for benchmark in stored.benchmarks:
        nodeid = benchmark.fullname
        place = place_of(benchmark)
        name = names[place]
        # A run that knows no machine speaks of all.
        said = name if name in runs else nodeid
        kind = runs[said].kind_of(said) if said in runs else ""
        by = [one for one in accepted if matches(one.pattern, nodeid)]
        if kind in UNPROVEN:
            found.left[name] = kind
            continue
        found.proven.append(benchmark)
        if kind in (REGRESSED, INCONCLUSIVE) and by:
            found.promoted.append(accepting(benchmark, [_kept(by[-1], runs[said], said)]))
        elif kind == REGRESSED:
            found.refused.append(name)
        elif kind == INCONCLUSIVE and place in entries:
            found.left[name] = kind
        elif why_disturbed(benchmark) and not by:
            found.disturbed.append(name)
        else:
            found.promoted.append(benchmark)
    for name, run in runs.items():
        kind = run.kind_of(name)
        if kind in (FAILED, NOT_RUN, MISSING):
            found.bad.append(name)
            found.left[name] = kind
    return found


def _kept(acceptance: Acceptance, run: RunFacts, name: str) -> Accepted:
    """Return what the entry of an accepted case says for ever."""
    change = run.verdicts[name].change if name in run.verdicts else None
    return Accepted(acceptance.reason, time_stamp(), change)


def promote(args: Namespace) -> int:
    """Make a run's results the baseline of their cases; return the exit code."""
    path = run_path(args.run)
    if not store.exists(path):
        raise BaselineError(
            f"there is no run {path}; name a journal, a report's baseline.json or a folder with one"
        )
    stored = read_run(path)
    if not stored.benchmarks:
        raise BaselineError(f"the run {path} measured no case")
    refuse_each_host(path, stored)
    target = path_of(args.name)
    found = decide(stored, args.accept, store.sound_places(target))
    if args.history is not None:
        # Where one case may not be promoted, none is.
        kept = [] if found.refused else [as_promoted(b, target.stem) for b in found.promoted]
        known = {key_of(benchmark): benchmark for benchmark in [*found.promoted, *kept]}
        document = replace(stored.document, benchmarks=found.proven)
        print_lines(_keep_history(document, known, args.history))
    if found.refused:
        some = some_of(found.refused, MOST_NAMES)
        raise BaselineError(
            f"nothing was promoted: {counted(len(found.refused), 'case')} of {path} regressed "
            f"({some}); --accept 'PATTERN=REASON' makes the slower speed of the cases that it "
            "names the baseline"
        )
    if found.promoted:
        store.save(target, replace(stored.document, benchmarks=found.promoted))
        subject = counted(len(found.promoted), f"case of {path} is", f"cases of {path} are")
        print(f"{subject} the baseline {target} now")
    else:
        print(f"no case of {path} was promoted to the baseline {target}")
    return _say_the_rest(stored, found, args.accept)


def _say_the_rest(stored: StoredRun, found: Decision, acceptances: Sequence[Acceptance]) -> int:
    """Name what was not simply promoted; return the exit code."""
    stay = left_out(found.left, "whose entries stay as they were")
    disturbed = left_out(dict.fromkeys(found.disturbed, "disturbed"), DISTURBED)
    lines = [f"  {line}" for line in (*stay, *disturbed)]
    known = {b.fullname for b in stored.benchmarks}.union(*(run.cases() for run in stored.runs))
    for one in acceptances:
        if not any(matches(one.pattern, nodeid) for nodeid in known):
            lines.append(f"  --accept: no case of the run matches {one.pattern}")
    troubles = [f"  {run.name}: {run.trouble()}" for run in stored.runs if run.trouble()]
    print_lines([*lines, *troubles])
    return EXIT_INCOMPLETE if found.bad or troubles or not found.promoted else 0


def _keep_history(document: Document, known: Dict[Key, Benchmark], folder: str) -> List[str]:
    """Keep what was measured as a run of the history, a file for each machine; say where.

    Also what is not promoted: a trend is of what was measured. ``known``: what is known of those
    that are.
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
