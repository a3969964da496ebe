"""Combines the policy file, the marker ``gate`` and ``--gate`` into each case's thresholds.

See plugins/gate/policy_file.py for the file's format and for which of the three wins.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Dict, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.command_line import change_options, options_of
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.count.judge import DEFAULT_THRESHOLD
from ipubench.plugins.count.state import TIME_INSTEAD, counts
from ipubench.plugins.gate.policy_file import FAILS, FILE_NAME, Policy, PolicyError
from ipubench.plugins.record.record import INSTRUCTIONS, METRICS, THROUGHPUT
from ipubench.plugins.record.text import GateLimits, fraction
from ipubench.plugins.run.resume import digest
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run, run_of


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

    Empty if only the case's instructions are counted.
    """
    found = _limits(policy, item)
    found.pop(INSTRUCTIONS, None)
    counting = run_of(item.config).counting
    if counting is None or not counting.alone:
        return found
    return {} if counting.replaces_times(item.nodeid) else {THROUGHPUT: TIME_INSTEAD}


def count_threshold_of(policy: Optional[Policy], item: pytest.Item) -> Optional[float]:
    """Return the threshold of a case's instructions; None if they are not judged."""
    return _limits(policy, item).get(INSTRUCTIONS)


def _limits(policy: Optional[Policy], item: pytest.Item) -> Dict[str, float]:
    return policy.limits(item.nodeid, marker_thresholds(item)) if policy else {}


def compared_extra_info(policy: Optional[Policy]) -> Tuple[str, ...]:
    """Return the keys of ``benchmark.extra_info`` that must be equal on both sides."""
    return policy.extra_info if policy else ()


def read_policy(run: Run) -> None:
    """Read the policy before anything runs: a bad file must not cost a measurement."""
    config, option = run.config, options_of(run.config)
    if option.baseline is None and option.against is None:
        return
    try:
        path = policy_path(option.gate_policy, config)
        if path is not None:
            run.depends["the policy"] = digest(path)
            run.policy = Policy.load(path, GateLimits.of(option.gate))
        elif option.gate is not None:
            run.policy = Policy(gate=GateLimits.of(option.gate))
        if GateLimits.of(option.gate).energy is not None:
            change_options(config, energy=True)
        if run.policy is not None and counts(config):
            run.policy = replace(run.policy, instructions=DEFAULT_THRESHOLD)
    except PolicyError as error:
        raise pytest.UsageError(str(error)) from None


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


def check_markers(policy: Optional[Policy], items: Sequence[pytest.Item]) -> None:
    """Check the markers of the selected cases: a bad one must not cost a measurement."""
    try:
        for item in items:
            if policy is not None and case_of(item) is not None:
                marker_thresholds(item)
    except PolicyError as error:
        raise pytest.UsageError(str(error)) from None


def name_unused_patterns(run: Run) -> None:
    """Name the patterns that match no case: most are misspelt."""
    if run.policy is None or run.journal is None or not _whole_suite(run):
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
