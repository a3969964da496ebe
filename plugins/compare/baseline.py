"""Implements `--baseline`, `--gate` and `--baseline-save`.

Exit codes: 1 if a case regressed, failed, or is in the baseline but missing from the run, or if no
baseline could be saved; 6 if there is a gate and no case could be decided.
"""

from __future__ import annotations

from typing import Dict, List

import pytest
from pytest import ExitCode

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.entries import left_out, measured, unproven, why_disturbed
from ipubench.plugins.baseline.format import BaselineError, Document
from ipubench.plugins.baseline.renamed import renamed
from ipubench.plugins.baseline.stored_baseline import StoredBaseline
from ipubench.plugins.compare.detectable import (
    Noise,
    noise_of,
    one_process_each,
    too_noisy,
    what_it_finds,
    why_kept,
)
from ipubench.plugins.compare.policy import (
    compared_extra_info,
    inconclusive_fails,
    thresholds_of,
)
from ipubench.plugins.gate.countable import LEAST_FRESH, SAVE_AGAIN
from ipubench.plugins.gate.stored import StoredRule
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.record import is_imported
from ipubench.plugins.record.verdict import (
    FAILING,
    INCONCLUSIVE,
    MISSING,
    REGRESSED,
    of_verdicts,
)
from ipubench.plugins.results.places import place_of
from ipubench.plugins.run.progress import rough_duration
from ipubench.plugins.run.resume import digest
from ipubench.plugins.selection.functions import make_case
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run

#: Processes that measure each case of a baseline: the session's own and fresh ones.
BASELINE_PROCESSES = 9
#: Why cases are not in the saved baseline, and what to do.
SELDOM = (
    "--gate-time was over before enough processes had measured them: allow more time, or use "
    "fewer processes with --processes"
)
UNDECIDED = "whose entries stay as they were; a run that compares nothing replaces them"
DISTURBED = (
    "too few of their processes were undisturbed, and the file has entries that a gate can use: "
    "save it on a quiet machine, wait with --wait-for-quiet=2min, or replace them with "
    "--keep-disturbed"
)


def read_baseline(run: Run) -> None:
    """Read the baseline before anything runs: a bad file must not cost a measurement."""
    config, option = run.config, options_of(run.config)
    try:
        if option.baseline_save is not None:
            target = store.baseline_path(option.baseline_save, config.rootpath)
            # Other entries of the file stay, so they must be readable.
            run.replaceable = store.sound_places(target)
            if run.role.keeps_results:
                store.check_writable(target)
        if option.baseline is not None:
            path = store.newest_in(store.baseline_path(option.baseline, config.rootpath))
            names = run.policy.renamed if run.policy is not None else {}
            run.baseline = StoredBaseline(path, renamed(store.load_all(path), names))
            run.depends["the baseline"] = digest(path)
    except BaselineError as error:
        raise pytest.UsageError(str(error)) from error


def match_root_folder(run: Run) -> None:
    """Give the cases of a file of pytest-benchmark the node ids that they have in this run.

    It may have been saved with another root folder: test_a.py::test_x for tests/test_a.py::test_x.
    """
    if run.baseline is None:
        return
    known = run.selection.nodeids | run.selection.tests
    files = {nodeid.split("::")[0] for nodeid in known}
    path, entries = run.baseline.path, run.baseline.entries
    imported = {one.fullname.split("::")[0] for one in entries if is_imported(one.record)}
    names = {}
    for old in imported - files:
        found = [new for new in files if new.endswith(f"/{old}") or old.endswith(f"/{new}")]
        if len(found) == 1:
            names[old] = found[0]
    if names:
        run.baseline = StoredBaseline(path, renamed(entries, names))


def restore_case(run: Run, item: pytest.Item) -> None:
    """Make a case of a plain test if it measured something when the baseline was saved."""
    comparison = run.baseline
    if comparison is None or case_of(item) is not None or run.selection.own_tests:
        return
    if item.nodeid in comparison.tests.values():
        make_case(item, run.selection)


def gate_forecast(run: Run, items: List[pytest.Item]) -> List[str]:
    """Return how long saving or gating takes at most, and which cases are too noisy."""
    if not run.role.measures:
        return []
    cases = {item.nodeid: item for item in items if case_of(item) is not None}
    entries = [] if run.baseline is None else run.baseline.entries
    stored = [entry for entry in entries if entry.fullname in cases]
    names = {entry.fullname for entry in stored}
    judged = [name for name in names if thresholds_of(run.policy, cases[name])]
    # A file may have entries of several machines, and we do not know yet which one this is.
    noise: Dict[str, Noise] = {}
    for entry in stored:
        name = entry.fullname
        own = noise_of(entry, rule_of(run, cases[name]))
        if own is not None:
            noise[name] = min(own, noise.get(name, own))
    found = list(noise.values())
    imported = bool(found) and all(is_imported(entry.record) for entry in stored)
    noisy = one_process_each(found) if imported else too_noisy(found)
    return [*_most_processes(run, len(cases), len(judged)), *([noisy] if noisy else [])]


def _most_processes(run: Run, cases: int, judged: int) -> List[str]:
    """Return how many processes saving or gating takes at most; empty if the run does neither.

    ``cases`` run, and a gate judges ``judged`` of them.
    """
    option, wanted = options_of(run.config), processes_wanted(run.config)
    parts = []
    if wanted > 1 and cases:
        processes = counted(wanted - 1, "fresh process", "fresh processes")
        rounds = rough_duration((wanted - 1) * cases * option.budget)
        each = f"{processes} for each of {counted(cases, 'case')}"
        parts.append(f"{each}, with {rounds} of rounds (--budget={option.budget:g}s)")
    if judged:
        most = max(option.gate_cap, LEAST_FRESH)
        parts.append(f"up to {most} fresh processes for each case that looks slower, of {judged}")
    limit = option.gate_time
    time = "" if limit is None else f": {rough_duration(limit)} at most"
    return [" and ".join(parts) + time] if parts else []


def processes_wanted(config: pytest.Config) -> int:
    """Return how many processes measure each case, including the session's own."""
    option = options_of(config)
    if option.processes is not None:
        return int(option.processes)
    return BASELINE_PROCESSES if option.baseline_save is not None else 1


def too_few(run: Run, nodeid: str) -> str:
    """Return why a case has too few fresh processes for a baseline, or ''."""
    wanted = processes_wanted(run.config) - 1
    found = len(run.results.fresh.get(nodeid, ()))
    if options_of(run.config).gate_time is None or found >= min(LEAST_FRESH, wanted):
        return ""
    processes = counted(wanted, "fresh process", "fresh processes")
    return f"--gate-time left time for {found} of {processes}"


def rule_of(run: Run, item: pytest.Item) -> StoredRule:
    """Return the rule for a case; all cases of the run share the false-alarm rate."""
    cases = len(run.baseline.stored & set(run.order)) if run.baseline is not None else 0
    cap, keys = options_of(run.config).gate_cap, compared_extra_info(run.policy)
    return StoredRule(thresholds_of(run.policy, item), cases, cap, keys)


def missing_cases(run: Run) -> List[str]:
    """Return the cases to compare with that no longer exist, or passed here and measured nothing.

    One that failed or was skipped exists, and its test gives the reason why it has no result.
    """
    if run.against is not None:
        return run.against.missing
    if run.baseline is None:
        return []
    results = run.results
    unmeasured = [
        name
        for name, test in sorted(run.baseline.tests.items())
        if test in run.order
        and results.outcomes.get(test) == "passed"
        and name not in results.benchmarks
    ]
    return run.baseline.missing(run.selection, run.config.rootpath) + unmeasured


def conclude(run: Run, ended: int) -> None:
    """Save the baseline if requested, and add the exit codes that all cases together give.

    ``ended``: the exit code so far.
    """
    root, invalid = run.config.rootpath, run.selection.invalid
    if run.baseline is not None:
        software = run.baseline.software(run.results.benchmarks.values())
        since = store.path_text(run.baseline.path, root)
        run.closing += [f"since {since}: {software}"] if software else []
    if ended in (ExitCode.OK, ExitCode.TESTS_FAILED):
        run.problems.append(_save_baseline(run))
    run.closing += [f"not measured: {line}" for line in invalid]
    run.problems += [_judged(run), ExitCode.USAGE_ERROR if invalid else ExitCode.OK]
    if run.policy is not None and ended == ExitCode.OK and not run.is_complete:
        left = counted(len(set(run.order) - set(run.results.outcomes)), "case")
        run.closing.append(f"the run ended before its last case: the gate fails, for {left}")
        run.problems.append(ExitCode.TESTS_FAILED)


def _judged(run: Run) -> int:
    """Return the gate's exit code for the session, whatever became of the cases' tests."""
    if run.policy is None:
        return ExitCode.OK
    fails = inconclusive_fails(run.policy, options_of(run.config).gate_inconclusive)
    missing = [MISSING] if missing_cases(run) else []
    kinds = [verdict.kind for verdict in run.results.verdicts.values()]
    return of_verdicts([*kinds, *missing], (*FAILING, INCONCLUSIVE) if fails else FAILING)


def _save_baseline(run: Run) -> ExitCode:
    """Save the baseline if requested; return an exit code.

    Leaves out cases whose tests did not pass, because their results may be wrong; inconclusive
    cases that already have an entry, which would become slower a little each time; cases with too
    few processes because of --gate-time; and disturbed cases that already have a sound entry,
    unless --keep-disturbed is given. The last two are failures, and so are other disturbed cases
    without that option, and a run that writes no baseline.
    """
    config, name = run.config, options_of(run.config).baseline_save
    if name is None:
        return ExitCode.OK
    if not run.is_complete:
        run.closing.append("no baseline was written: the run ended before its last case")
        return ExitCode.TESTS_FAILED
    failed = unproven(run.results)
    sound = [one for one in measured(run.results) if one.fullname not in failed]
    run.closing += left_out(failed, "whose entries stay as they were")
    seldom = {one.fullname: too_few(run, one.fullname) for one in sound}
    disturbed = {one.fullname: why_disturbed(one) for one in sound if not seldom[one.fullname]}
    keep = options_of(config).keep_disturbed
    kept = [
        one
        for one in sound
        if disturbed.get(one.fullname) and (keep or place_of(one) not in run.replaceable)
    ]
    others = {**disturbed, **dict.fromkeys((one.fullname for one in kept), "")}
    left = [*_named(run, seldom, SELDOM), *_named(run, others, DISTURBED)]
    run.closing += [why_kept(one, processes_wanted(config) - 1) for one in kept]
    run.closing += [SAVE_AGAIN] if kept else []
    code = ExitCode.TESTS_FAILED if left or (kept and not keep) else ExitCode.OK
    undecided = {
        one.fullname: INCONCLUSIVE
        for one in sound
        if run.results.kind(one.fullname) == INCONCLUSIVE
        and disturbed.get(one.fullname) == ""
        and place_of(one) in run.replaceable
    }
    run.closing += left_out(undecided, UNDECIDED)
    sound = [one for one in sound if one.fullname not in {*left, *undecided}]
    regressed = [v for v in run.results.verdicts.values() if v.kind == REGRESSED]
    if regressed or not sound:
        empty = "no case was left" if run.results.benchmarks else "no case was measured"
        why = f"{counted(len(regressed), 'case')} regressed" if regressed else empty
        run.closing.append(f"no baseline was written: {why}")
        return ExitCode.TESTS_FAILED
    path = store.baseline_path(name, config.rootpath)
    try:
        store.save(path, Document.of(pytest_benchmark_adapter.around(config), sound))
    except BaselineError as error:
        run.closing.append(f"{error}{run.where}")
        return ExitCode.USAGE_ERROR
    where = store.path_text(path, config.rootpath)
    run.closing.append(f"baseline with {counted(len(sound), 'case')} written to {where}")
    run.closing += what_it_finds(sound, options_of(config).gate_cap)
    return code


def _named(run: Run, reasons: Dict[str, str], advice: str) -> List[str]:
    """Return the cases with a reason, after naming them in the summary."""
    found = {case: why for case, why in reasons.items() if why}
    if found:
        run.closing += [f"not in the baseline: {case}: {why}" for case, why in found.items()]
        subject = counted(len(found), "case is", "cases are")
        run.closing.append(f"{subject} not in the baseline because {advice}")
    return list(found)
