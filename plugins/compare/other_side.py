"""Implements `--against`: compares with another environment, other versions or another revision.

Before the first test, the cases are measured in pairs of fresh processes, one here and one there,
whose rounds alternate if possible, until each verdict is clear or ``--gate-cap`` pairs are measured
(plugins/gate/pairs.py). The other side is "before", this one is "now".
"""

from __future__ import annotations

import json
import os
import sys
from typing import List, Sequence

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import counted, some_of
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.lease import hold
from ipubench.plugins.command_line.arguments import unknown_arguments
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.compare.loop import settle
from ipubench.plugins.compare.open_case import OpenCase
from ipubench.plugins.compare.policy import has_gate, without_gate
from ipubench.plugins.compare.runner import ProcessRunner
from ipubench.plugins.gate.pairs import looks
from ipubench.plugins.gate.sides import LEAST_PAIRS
from ipubench.plugins.processes import versions
from ipubench.plugins.processes.against import Against
from ipubench.plugins.processes.place import find, find_packages, find_revision, python_of
from ipubench.plugins.processes.revision import PREFIX, is_this_checkout
from ipubench.plugins.record.verdict import EXIT_UNDECIDED, NEW, REGRESSED, Verdict
from ipubench.plugins.results.lines import VerdictLine
from ipubench.plugins.run.progress import rough_duration
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run


def _other_side(run: Run, given: str) -> Against:
    """Return the other side. Raises UsageError if it cannot measure."""
    config, option, root = run.config, options_of(run.config), run.config.rootpath
    if given.startswith(PREFIX):
        setup, python = option.against_setup, option.against_python
        environment = find_revision(given, root, setup, python, config.add_cleanup)
        unknown = unknown_arguments(config, environment.options)
        if unknown:
            raise pytest.UsageError(
                f"--against={given}: the suite of that revision does not know "
                f"{unknown[0]}; leave it out"
            )
    elif given.startswith(versions.PREFIX):
        environment = find_packages(given, root)
    else:
        environment = find(given, root)
    facts = dict(environment.versions)
    if environment.revision is not None:
        facts["commit"] = environment.revision.commit
    run.depends["the other environment"] = json.dumps(facts)
    return Against(root, environment)


def compare_first(run: Run, items: Sequence[pytest.Item]) -> None:
    """Compare the selected cases with the other side before any test runs.

    Those whose tests must run first are compared after them (plugins/compare/judge.py).
    """
    if run.against is None or run.role.shares_work:
        return
    if run.counting is not None and run.counting.alone:
        return
    cases = [OpenCase(run, item, item.nodeid) for item in items if case_of(item) is not None]
    for case in cases:
        if case.name not in run.against.cases:
            case.verdict = Verdict(NEW)
    if not any(case.is_open for case in cases):
        run.settled = {case.name: case for case in cases}
        return
    chosen = devices.make(run.selection.device, device_id=options_of(run.config).device_id)
    try:
        with run.spent.during("compare"), hold(run.config, chosen.leases()):
            settle(run.gate_time, cases, ProcessRunner(run))
    except DeviceError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    run.settled = {case.name: case for case in cases if not case.left}
    for case in cases:
        # Whatever becomes of its test.
        if case.verdict is not None and case.verdict.kind == REGRESSED and run.counting is None:
            run.add(VerdictLine(case.name, without_gate(run.policy, case.item, case.verdict)))
    for reason in sorted({case.unfit for case in cases if case.unfit}):
        run.against.not_alternated[reason] += sum(case.unfit == reason for case in cases)


def prepare_other_side(run: Run) -> None:
    """Check the options and the other side before anything runs."""
    config, option = run.config, options_of(run.config)
    for name in ("against_setup", "against_python"):
        given = option.against or ""
        if getattr(option, name) is not None and not given.startswith(PREFIX):
            raise pytest.UsageError(
                f"--{name.replace('_', '-')} is for the worktree of --against=git:REV"
            )
    if option.against is None:
        return
    for name in ("baseline", "profile", "instance"):
        if getattr(option, name) is not None:
            raise pytest.UsageError(
                f"--against cannot be combined with --{name}: leave out --{name}"
            )
    if run.role is Role.LISTING:
        return
    same = compared_with_itself(config, option.against)
    if same and has_gate(config):
        pytest.exit(same, returncode=EXIT_UNDECIDED)
    if same:
        run.same = same
    else:
        run.against = _other_side(run, option.against)


def compared_with_itself(config: pytest.Config, given: str) -> str:
    """Return why the other side is the same as this one, or ''."""
    option, root = options_of(config), config.rootpath
    if given.startswith(versions.PREFIX):
        same = versions.are_installed(given)
        what = "that is installed here"
    elif not given.startswith(PREFIX):
        same = python_of(given) == os.path.abspath(sys.executable)
        what = "that is the interpreter of this run"
    else:
        another = option.against_setup is not None or option.against_python is not None
        same = not another and is_this_checkout(given, root)
        what = "that commit is checked out here, and no file of it has changed"
    return f"--against={given}: nothing is compared, because {what}" if same else ""


def comparison_lines(run: Run, items: List[pytest.Item]) -> List[str]:
    """Return what is compared with what, and how long that takes at most."""
    against = run.against
    if against is None:
        return [run.same] if run.same else []
    environment = against.environment
    given = options_of(run.config).against
    own = environment.revision is None and environment.packages is None
    there = environment.python if own else given
    cases = [item for item in items if case_of(item) is not None]
    timed = cases and not (run.counting is not None and run.counting.alone)
    time = [most_pairs(run.config, cases)] if timed else []
    return [f"against {there}: {against.description()}", *time]


def most_pairs(config: pytest.Config, cases: Sequence[pytest.Item]) -> str:
    """Return how many pairs the cases need."""
    option = options_of(config)
    cap = max(option.gate_cap, LEAST_PAIRS)
    first, limit = looks(cap)[0], option.gate_time
    number = f"{first} to {cap}" if first < cap else str(cap)
    text = f"{number} pairs of processes measure {counted(len(cases), 'case')}"
    return text if limit is None else f"{text}, {rough_duration(limit)} at most"


def add_closing_lines(run: Run) -> None:
    """Repeat below the verdicts what they compare and how."""
    against = run.against
    if run.same:
        run.closing.append(run.same)
    if against is None:
        return
    for why, count in sorted(against.not_alternated.items()):
        cases = counted(count, "case")
        run.closing.append(
            f"{cases} measured in alternating processes, not in alternating rounds: {why}"
        )
    packages = against.environment.packages
    modules = packages.modules if packages is not None and not run.results.resumed else ()
    if modules and not any(name in sys.modules for name in modules):
        run.gate_notes.append(
            f"no test has imported {some_of(modules)} in this process: if no process that a test "
            "starts does, both sides ran the same code"
        )
    run.closing.append(f"versions there and here: {against.description()}")
