"""What each case may lose: the policy file, the marker ``gate`` and ``--gate`` together.

plugins/compare/policy_file.py has the file's form and which of the three wins.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Dict, Optional, Tuple

import pytest

from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.compare.policy_file import FAILS, FILE_NAME, Policy, PolicyError
from ipubench.plugins.count.judge import DEFAULT_THRESHOLD
from ipubench.plugins.count.state import TIME_INSTEAD, counting_key, counts
from ipubench.plugins.record.record import INSTRUCTIONS, METRICS, THROUGHPUT
from ipubench.plugins.record.text import NO_LIMITS, fraction
from ipubench.plugins.run.results import run_key
from ipubench.plugins.run.resume import depends_on, digest
from ipubench.plugins.selection.selected import case_of, selection_key

policy_key = pytest.StashKey[Policy]()


def marker_thresholds(item: pytest.Item) -> Dict[str, float]:
    """Return what ``@pytest.mark.gate(metric="3%")`` says of a case; the nearest marker wins.

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
                    f"{where}: {metric!r} is no metric{nearest(metric, METRICS)}; there are "
                    f"{', '.join(METRICS)}"
                )
            if not isinstance(value, str):
                raise PolicyError(f'{where}: {metric} is a percentage in quotes, such as "3%"')
            try:
                found[metric] = fraction(value)
            except ValueError as error:
                raise PolicyError(f"{where}: {metric}: {error}") from None
    return found


def policy_of(config: pytest.Config) -> Optional[Policy]:
    """Return the run's policy; None: nothing is judged, changes are only shown."""
    return config.stash.get(policy_key, None)


def has_gate(config: pytest.Config) -> bool:
    """Whether this run gates, also before its policy has been read."""
    option = config.option
    given = option.gate is not None or option.gate_policy is not None
    return given or policy_path(None, config) is not None


def inconclusive_fails(config: pytest.Config) -> bool:
    """Whether a case fails that the gate could not decide."""
    policy, given = policy_of(config), config.option.gate_inconclusive
    return policy is not None and (given or policy.inconclusive) == FAILS


def thresholds_of(item: pytest.Item) -> Dict[str, float]:
    """Return metric -> what a case may lose, by the policy, its marker and ``--gate``.

    Of what is timed; a case that is counted alone has none.
    """
    found = _limits(item)
    found.pop(INSTRUCTIONS, None)
    counting = item.config.stash.get(counting_key, None)
    if counting is None or not counting.alone:
        return found
    return {} if counting.replaces_times(item.nodeid) else {THROUGHPUT: TIME_INSTEAD}


def count_threshold_of(item: pytest.Item) -> Optional[float]:
    """Return what the instructions of a case may grow by; None where they are not judged."""
    return _limits(item).get(INSTRUCTIONS)


def _limits(item: pytest.Item) -> Dict[str, float]:
    policy = policy_of(item.config)
    return policy.limits(item.nodeid, marker_thresholds(item)) if policy else {}


def compared_extra_info(config: pytest.Config) -> Tuple[str, ...]:
    """Return the keys of ``benchmark.extra_info`` that have to be the same on both sides."""
    policy = policy_of(config)
    return policy.extra_info if policy else ()


def read_policy(config: pytest.Config) -> None:
    """Read the policy before anything runs: a bad file must not cost a measurement."""
    option = config.option
    if option.baseline is None and option.against is None:
        return
    try:
        path = policy_path(option.gate_policy, config)
        if path is not None:
            depends_on(config, "the policy", digest(path))
            config.stash[policy_key] = Policy.load(path, option.gate or NO_LIMITS)
        elif option.gate is not None:
            config.stash[policy_key] = Policy(gate=option.gate)
        if policy_key in config.stash and counts(config):
            policy = config.stash[policy_key]
            config.stash[policy_key] = replace(policy, instructions=DEFAULT_THRESHOLD)
    except PolicyError as error:
        raise pytest.UsageError(str(error)) from None


def policy_path(given: Optional[str], config: pytest.Config) -> Optional[Path]:
    """Return the file that ``--gate-policy`` names, else gate.yml of the project's folder.

    Raises PolicyError where that is no path.
    """
    if given is not None:
        try:
            return user_path(given)
        except OSError as error:
            raise PolicyError(f"the policy {given} cannot be read: {error}") from None
    path = config.rootpath / FILE_NAME
    # A link that leads nowhere is a policy that cannot be read.
    return path if os.path.lexists(path) else None


# Before what the run says of its baseline, which takes them as they are.
def check_markers(session: pytest.Session) -> None:
    """Judge the markers of the selected cases: a bad one must not cost a measurement."""
    if policy_of(session.config) is None:
        return
    try:
        for item in session.items:
            if case_of(item) is not None:
                marker_thresholds(item)
    except PolicyError as error:
        raise pytest.UsageError(str(error)) from None


def name_unused_patterns(session: pytest.Session) -> None:
    """Name the patterns that no case of the suite has: most are misspelt."""
    config = session.config
    policy, run = policy_of(config), config.stash.get(run_key, None)
    if policy is None or run is None or not _whole_suite(config):
        return
    run.closing += [
        f"{policy.name}: no case matches {shortened(pattern)}"
        for pattern in policy.unused(config.stash[selection_key].nodeids)
    ]


def _whole_suite(config: pytest.Config) -> bool:
    """Whether every file and class was collected: a pattern may mean cases of one that was not."""
    selection = config.stash[selection_key]
    part = config.option.file_or_dir or config.getoption("lf", False) or selection.unknown
    here = config.getini("testpaths") or config.invocation_params.dir == config.rootpath
    return bool(here and not part)
