"""Makes cases of tests without ``@cases`` that use ``meter`` or ``benchmark``.

Such a case has the name of its test. It is recorded, stored in baselines, judged, compared by
``--against``, resumed and reported like any other.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import List

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import MEASURING, REACHING, Case, CaseSet, case_key
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import CaseConfig, option
from ipubench.fixtures.command_line import options_of, value_of
from ipubench.fixtures.instances.plan import instances_of
from ipubench.fixtures.runtimes.call import OWN
from ipubench.plugins.command_line.arguments import (
    is_disabled,
    spellings,
    typed_arguments,
    typed_measuring_arguments,
)
from ipubench.plugins.selection.expand import expand
from ipubench.plugins.selection.selected import COMMON, Selection, case_of, cases_among

#: Options that use the results, apart from those that decide how a case is measured.
JUDGING = ("--baseline", "--baseline-save", "--against", "--report", "--history", "--resume")
#: Those that a project's settings may have also for runs that measure nothing.
STANDING = ("--report", "--history")

#: Settings of a marked test that pytest-benchmark lacks: the number of calls.
ROUNDS = ("rounds", "max_rounds")


@dataclass(frozen=True)
class Function(CaseConfig):
    """The configuration of a test without ``@cases``, which chooses its data and precision."""

    data: str = option(OWN, "what the test works on", choices=(OWN,))
    precision: str = option(OWN, "what the test computes with", choices=(OWN,))


def note_collected(
    collector: pytest.Collector, report: pytest.CollectReport, selection: Selection
) -> None:
    """Note all tests of a file or a class, also those that the command line does not name."""
    selection.collected.add(collector.nodeid)
    if report.skipped:
        selection.skipped.add(collector.nodeid)
    for node in report.result:
        if isinstance(node, pytest.Collector):
            selection.found.add(node.nodeid)
        elif _measures_without_cases(node):
            selection.nodeids.add(node.nodeid)
        elif case_of(node) is None:
            selection.tests.add(node.nodeid)


def make_case_of(item: pytest.Item, selection: Selection) -> None:
    """Make a case of a test that measures and has none."""
    if not selection.own_tests and _measures_without_cases(item):
        make_case(item, selection)


def make_case(item: pytest.Item, selection: Selection) -> Case:
    """Make the case of a test; return it."""
    if isinstance(item, pytest.Function) and _is_marked(item):
        _measure_call(item, selection)
    name, option = case_name(item), options_of(item.config)
    case_set = CaseSet.of(Function(name=name), {})
    first, *more = expand(
        case_set, selection.assignments, option.data, option.precision, without=COMMON
    )
    error = first.error
    if more:
        error = f"{name}: it can be measured with one value of an option, not with several"
    case = item.stash[case_key] = replace(first, id=name, base_id=name, error=error)
    item.extra_keyword_matches.add(name)  # -k finds it by its name in tables
    return case


def _measures_without_cases(item: pytest.Item) -> bool:
    """Return whether a test without a case uses a measuring fixture or the marker."""
    measures = any(asks_for(item, name) for name in MEASURING) or _is_marked(item)
    return measures and case_of(item) is None


def _is_marked(item: pytest.Item) -> bool:
    """Return whether a function has the marker ``benchmark`` and uses no measuring fixture."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("benchmark") is None:
        return False
    return not (_is_of_unittest(item) or set(MEASURING).intersection(item.fixturenames))


def _is_of_unittest(item: pytest.Function) -> bool:
    classes = item.cls.__mro__ if item.cls is not None else ()
    return any(cls.__module__ == "unittest.case" for cls in classes)


def _measure_call(item: pytest.Function, selection: Selection) -> None:
    """Give a marked test the fixture, and remember the settings that pytest-benchmark lacks."""
    marker = item.get_closest_marker("benchmark")
    settings = dict(marker.kwargs) if marker is not None else {}
    given = [settings.pop(name) for name in ROUNDS if name in settings]
    selection.calls[item.nodeid] = given[0] if given else None
    if given:
        item.add_marker(pytest.mark.benchmark(**settings), append=False)
    item.fixturenames = [*item.fixturenames, "benchmark"]


def asks_for(item: pytest.Item, name: str) -> bool:
    """Return whether a test uses our fixture of this name, perhaps through a project's override."""
    known = getattr(item, "_fixtureinfo", None)
    found = known.name2fixturedefs.get(name, ()) if known is not None else ()
    for definition in reversed(found):
        if str(definition.func.__module__).startswith("ipubench."):
            return True
        if name not in definition.argnames:
            break
    return False


def case_name(item: pytest.Item) -> str:
    """Return the name of a test's case: ``test_sum-10`` for ``test_sum[10]``."""
    return plain_name(item.name) or "test"


def plain_name(text: str) -> str:
    """Return a text with ``-`` for all but letters, digits, ``-``, ``_`` and ``.``."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-")


def refuse_idle_options(
    config: pytest.Config, items: List[pytest.Item], selection: Selection
) -> None:
    """Refuse options without effect on any selected test: silence would look like success."""
    try:
        for item in items:
            if case_of(item) is not None:
                claim(item, selection)
    except CaseError as error:
        raise pytest.UsageError(str(error)) from None
    cases = cases_among(items)
    launched = any(case.error or instances_of(case.config) > 1 for case in cases)
    fresh = devices.borrows()  # a fresh process runs one case of its run
    if options_of(config).launcher_args and cases and not launched and not fresh:
        raise pytest.UsageError(
            "--launcher-args: no selected case runs in several processes; add --set=instances=N"
        )
    if not items or cases:
        return
    written = {word.split("=", 1)[0] for word in typed_arguments(config)}
    given = [
        flag
        for flag in JUDGING
        if value_of(config, flag)
        and (flag not in STANDING or not written.isdisjoint(spellings(config, flag)))
    ]
    given += typed_measuring_arguments(config)
    if given and not any(map(_may_measure, items)):
        raise pytest.UsageError(
            f"{given[0]}: no selected test measures anything; a test measures with the fixture "
            "benchmark or meter"
        )


def refuse_disabled(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Refuse options that use results if pytest-benchmark's options let no case be measured."""
    if config.getoption("benchmark_skip"):
        off = "--benchmark-skip; take it out of the command line or the settings (addopts)"
    elif is_disabled(config):
        off = "--benchmark-disable; add --benchmark-enable"
    else:
        return
    given = [flag for flag in JUDGING if value_of(config, flag) and flag not in STANDING]
    if given and cases_among(items):
        raise pytest.UsageError(f"{given[0]}: nothing is measured with {off}")


def claim(item: pytest.Item, selection: Selection) -> None:
    """Reserve a node id for this test's file. Raises CaseError if another file has it."""
    config = item.config
    other = selection.files.setdefault(item.nodeid, item.path)
    if other != item.path:
        settings = "" if config.inipath is None else f"-c {config.inipath} "
        above = os.path.commonpath([other, item.path])
        raise CaseError(
            f"{other} and {item.path} have a test with the same node id, {item.nodeid}, so their "
            f"results would mix: add {settings}--rootdir={above}, or run one file at a time"
        )


def _may_measure(item: pytest.Item) -> bool:
    """Return whether a test, or a fixture of it, can reach pytest-benchmark while it runs."""
    known = getattr(item, "_fixtureinfo", None)
    if known is None:
        return False
    definitions = [found[-1] for found in known.name2fixturedefs.values()]
    others = [one for one in definitions if not str(one.func.__module__).startswith("_pytest.")]
    names = {*known.argnames, *(name for one in others for name in one.argnames)}
    return not names.isdisjoint(REACHING)
