"""Combines the policy file, the marker ``gate`` and ``--gate`` into each case's thresholds.

See plugins/gate/policy_file.py for the file's format and for which of the three wins.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import pytest
from msgspec.structs import replace as replace_fields

from ipubench.fixtures.case.errors import shortened, some_of
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.command_line.arguments import LONG
from ipubench.plugins.count.judge import DEFAULT_THRESHOLD
from ipubench.plugins.count.state import counts
from ipubench.plugins.gate.policy_file import FAILS, FILE_NAME, Policy, PolicyError
from ipubench.plugins.record.record import INSTRUCTIONS, METRICS
from ipubench.plugins.record.text import GateLimits, fraction, percent
from ipubench.plugins.record.verdict import OPEN, UNJUDGED, Verdict
from ipubench.plugins.run.resume import digest
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run, run_of

#: Between the words of ``addopts``, in each kind of settings file.
BETWEEN_WORDS = re.compile(r"""[\s"',\[\]]+""")


def marker_thresholds(item: pytest.Item) -> Dict[str, float]:
    """Return the thresholds of ``@pytest.mark.gate(metric="3%")``; the nearest marker wins.

    Raises PolicyError, which names the case.
    """
    found: Dict[str, float] = {}
    for marker in reversed(list(item.iter_markers("gate"))):
        where = f"the marker gate of {item.nodeid}"
        if marker.args:
            raise PolicyError(f'{where} takes thresholds by name: gate(throughput="3%")')
        for metric, value in marker.kwargs.items():
            if metric not in METRICS:
                raise PolicyError(
                    f"{where}: {metric!r} is not a metric{nearest(metric, METRICS)}; there are "
                    f"{', '.join(METRICS)}"
                )
            if not isinstance(value, str):
                raise PolicyError(f'{where}: {metric} is a percentage in quotes, such as "3%"')
            try:
                found[metric] = fraction(value)
            except ValueError as error:
                raise PolicyError(f"{where}: {metric}: {error}") from None
    return found


def has_gate(config: pytest.Config) -> bool:
    """Return whether this run has a gate; works before the policy is read."""
    option = options_of(config)
    given = option.gate is not None or option.gate_policy is not None
    return given or policy_path(None, config) is not None


def inconclusive_fails(policy: Optional[Policy], given: Optional[str]) -> bool:
    """Return whether inconclusive cases fail; ``given`` is --gate-inconclusive."""
    return policy is not None and (given or policy.inconclusive) == FAILS


def thresholds_of(policy: Optional[Policy], item: pytest.Item) -> Dict[str, float]:
    """Return a case's threshold for each timed metric, from the policy, its marker and ``--gate``.

    Empty if only the instructions are judged.
    """
    found = _limits(policy, item)
    found.pop(INSTRUCTIONS, None)
    counting = run_of(item.config).counting
    return {} if counting is not None and counting.alone else found


def count_threshold_of(policy: Optional[Policy], item: pytest.Item) -> Optional[float]:
    """Return the threshold of a case's instructions; None if they are not judged."""
    return _limits(policy, item).get(INSTRUCTIONS)


def _limits(policy: Optional[Policy], item: pytest.Item) -> Dict[str, float]:
    return policy.limits(item.nodeid, marker_thresholds(item)) if policy else {}


def without_gate(policy: Optional[Policy], item: pytest.Item, verdict: Verdict) -> Verdict:
    """Return a case's verdict: not judged instead of open if the policy ignores the case."""
    if policy is None or verdict.kind not in OPEN or _limits(policy, item):
        return verdict
    return replace_fields(verdict, kind=UNJUDGED)


def compared_extra_info(policy: Optional[Policy]) -> Tuple[str, ...]:
    """Return the keys of ``benchmark.extra_info`` that must be equal on both sides."""
    return policy.extra_info if policy else ()


def read_policy(run: Run) -> None:
    """Read the policy before anything runs: a bad file must not cost a measurement."""
    config, option = run.config, options_of(run.config)
    if option.baseline is None and option.against is None:
        return
    try:
        ours = policy_path(option.gate_policy, config)
        path = policy_to_use(run, ours)
        run.gate_notes += _other_settings(run)
        files = [one for one in (path, ours) if one is not None]
        if files:
            run.depends["the policy"] = " ".join(map(digest, files))
        if path is not None:
            run.policy = Policy.load(path, GateLimits.of(option.gate))
        elif option.gate is not None:
            run.policy = Policy(gate=GateLimits.of(option.gate))
        if run.policy is not None and ours is not None and path != ours:
            run.policy = replace(run.policy, renamed=Policy.load(ours).renamed)
        if run.policy is not None and counts(config):
            run.policy = replace(run.policy, instructions=DEFAULT_THRESHOLD)
    except PolicyError as error:
        raise pytest.UsageError(str(error)) from None


def policy_to_use(run: Run, ours: Optional[Path]) -> Optional[Path]:
    """Return the policy's file: that of the revision to compare with, unless one is named.

    A change must not loosen its own gate. ``ours`` is this tree's, whose new names apply always.
    """
    option = options_of(run.config)
    there = run.against.environment.revision if run.against is not None else None
    if there is None or option.gate_policy is not None:
        return ours
    theirs = there.root / FILE_NAME
    found = theirs if os.path.lexists(theirs) else None
    if ours is not None and (found is None or digest(ours) != digest(found)):
        run.gate_notes.append(
            f"{FILE_NAME} of {option.against} applies, and this tree's is another: "
            f"--gate-policy={FILE_NAME} applies this one"
            if found is not None
            else f"{option.against} has no {FILE_NAME}, so this tree's does not apply: "
            f"--gate-policy={FILE_NAME} applies it"
        )
    elif ours is None and found is not None:
        run.gate_notes.append(f"{FILE_NAME} of {option.against} applies; this tree has none")
    return found


def _other_settings(run: Run) -> List[str]:
    """Return a note on options of the gate that this tree's settings have, and REV's do not."""
    there, config = run.against.environment if run.against is not None else None, run.config
    if there is None or there.revision is None:
        return []
    path = there.ini(config)
    theirs = BETWEEN_WORDS.split(read_bytes(path).decode("utf-8")) if path is not None else []
    begin = ("--gate", f"{LONG}gate")
    ours = [word for word in config.getini("addopts") if word.startswith(begin)]
    added = [word for word in ours if word not in theirs]
    given = options_of(config).against
    return [f"{' '.join(added)} is in the settings here, not in those of {given}"] if added else []


def policy_path(given: Optional[str], config: pytest.Config) -> Optional[Path]:
    """Return the file of ``--gate-policy``, else the project's gate.yml if it exists.

    Raises PolicyError if the option's value is not a path.
    """
    if given is not None:
        try:
            return user_path(given)
        except OSError as error:
            raise PolicyError(f"the policy {given} cannot be read: {error}") from None
    path = config.rootpath / FILE_NAME
    # lexists: a dangling link is an unreadable policy, not a missing one.
    return path if os.path.lexists(path) else None


def check_markers(run: Run, items: Sequence[pytest.Item]) -> None:
    """Check the markers of the selected cases: a bad one must not cost a measurement.

    Name those that allow more than the gate without them.
    """
    try:
        found = [_loosened(run.policy, item) for item in items if case_of(item) is not None]
    except PolicyError as error:
        raise pytest.UsageError(str(error)) from None
    cases = list(filter(None, found))
    if cases:
        run.gate_notes.append(f"the marker gate allows more than the gate: {some_of(cases)}")


def _loosened(policy: Optional[Policy], item: pytest.Item) -> str:
    """Return what a case's marker allows beyond the policy and ``--gate``, or ''."""
    if policy is None:
        return ""
    markers = marker_thresholds(item)
    without, limits = (policy.limits(item.nodeid, some) for some in ({}, markers))
    more = [
        f"{metric} {percent(limits[metric])}, not {percent(value)}"
        for metric, value in without.items()
        if limits[metric] > value
    ]
    return f"{item.nodeid} ({', '.join(more)})" if more else ""


def name_unused_patterns(run: Run) -> None:
    """Name the patterns that match no case: most are misspelt."""
    if run.policy is None or not _whole_suite(run):
        return
    run.closing += [
        f"{run.policy.name}: no case matches {shortened(pattern)}"
        for pattern in run.policy.unused(run.selection.nodeids)
    ]


def _whole_suite(run: Run) -> bool:
    """Return whether all files and classes were collected; else a pattern may match elsewhere."""
    config = run.config
    part = config.option.file_or_dir or config.getoption("lf", False) or run.selection.unknown
    here = config.getini("testpaths") or config.invocation_params.dir == config.rootpath
    return bool(here and not part)
