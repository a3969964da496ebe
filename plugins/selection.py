"""Which cases exist, what the command line makes of them, and which of them run here.

All cases always collect. Those that the device cannot run, inner sweep points and those that
``--data`` or ``--precision`` leave out are deselected after ``-k`` and ``-m``, and counted in
header lines that say what they need.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any, Counter, Dict, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

import pytest

from fixtures import devices
from fixtures.config import Case, CaseConfig, Family, check_value, resolve_key
from plugins.overrides import assign, convert, parse_assignments, unknown_key_message

# Fixture name -> marker: a case's framework is the runtime it asks for.
FRAMEWORKS = {
    "tensorflow": "tensorflow",
    "pytorch": "torch",
    "popart": "popart",
    "triton": "triton",
}


@dataclasses.dataclass
class Selection:
    """What was asked for and what was left out, for the header and for the gate."""

    assignments: Dict[str, List[str]]
    device: str
    #: All cases of the collected files, with the command line's overrides and without.
    nodeids: Set[str] = dataclasses.field(default_factory=set)
    unused: Set[str] = dataclasses.field(default_factory=set)  # given, without effect on a host
    left_out: Counter[str] = dataclasses.field(default_factory=collections.Counter)
    warnings: Dict[str, List[str]] = dataclasses.field(default_factory=dict)  # -> their cases


selection_key = pytest.StashKey[Selection]()


def case_of(item: pytest.Item) -> Optional[Case]:
    """Return the case that a collected item runs, or None for an ordinary test."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec is not None else None
    return case if isinstance(case, Case) else None


def framework_of(item: pytest.Item) -> Optional[str]:
    """Return the framework that a case is marked with: tensorflow, torch, popart, triton."""
    marked = (name for name in FRAMEWORKS.values() if item.get_closest_marker(name))
    return next(marked, None)


def pytest_configure(config: pytest.Config) -> None:
    """Parse ``--set``; a syntax error ends here."""
    option = config.option
    assignments = parse_assignments(option.case_options)
    for key in ("batches_per_step", "steps"):
        if getattr(option, key) is not None:
            flag = f"--{key.replace('_', '-')}={getattr(option, key)}"
            assign(assignments, key, [str(getattr(option, key))], flag)
    if option.zero_values:
        assign(assignments, "use_zero_values", ["true"], "--zero-values")
    device = devices.choose(option.device)
    if option.device_id is not None and device == "cpu":
        raise pytest.UsageError(
            "--device-id: a CPU has no number; a run takes it as a whole, taskset chooses cores"
        )
    if option.profile is not None and device in devices.IPU_KINDS:
        # A report of thousands of batches fills a disk and shows no more than one batch does.
        assignments.setdefault("batches_per_step", ["1"])
    config.stash[selection_key] = Selection(assignments, device)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn the declared configurations into cases. Never raises: bad values are judged later."""
    marks = list(metafunc.definition.iter_markers("cases"))
    if not marks:
        return
    selection = metafunc.config.stash[selection_key]
    option = metafunc.config.option
    params: Dict[str, Any] = {}
    for mark in marks:
        axes = dict(mark.kwargs)
        quick = axes.pop("quick", None)
        further = axes.pop("further", False)
        for entry in mark.args:
            family = Family.of(entry, axes)
            for case in expand(family, selection.assignments, option.data, option.precision, quick):
                for identifier in (case.base_id, case.id):
                    selection.nodeids.add(f"{metafunc.definition.nodeid}[{identifier}]")
                case = dataclasses.replace(case, further=further)
                params.setdefault(case.id, _parameter(case, metafunc.fixturenames))
    metafunc.parametrize("case", list(params.values()), indirect=True)


def _parameter(case: Case, fixturenames: Sequence[str]) -> Any:
    marks = [getattr(pytest.mark, case.config.mode)]
    marks += [getattr(pytest.mark, FRAMEWORKS[name]) for name in fixturenames if name in FRAMEWORKS]
    if case.config.ipus:
        marks.append(pytest.mark.ipus(case.config.ipus))
    if case.inner or case.further:
        marks.append(pytest.mark.sweep)
    if case.quick:
        marks.append(pytest.mark.quick)
    return pytest.param(case, id=case.id, marks=marks)


def expand(
    family: Family,
    assignments: Dict[str, List[str]],
    data: Optional[str] = None,
    precision: Optional[str] = None,
    quick_names: Optional[Sequence[str]] = None,
) -> Iterator[Case]:
    """Yield the cases of a family under the command line's options.

    ``data`` and ``precision`` narrow a family that has cases in several modes (the others are
    yielded as excluded) and override the one mode of any other family that accepts the value.
    """
    cls = type(family.points[0][0])
    keys = {key: resolve_key(cls, key) for key in assignments}
    lacks = frozenset(key for key, name in keys.items() if name is None)
    wanted = {"data": data, "precision": precision}
    usual = [config for config, inner in family.points if not inner]
    last_swept = getattr(usual[-1], family.swept) if family.swept else None
    for config, inner in family.points:
        start, excluded = config, ""
        overrides: Set[str] = set()
        for key, value in wanted.items():
            if value is None or getattr(config, key) == value:
                continue
            if len(family.axes.get(key, ())) > 1 or not _accepts(config, key, value):
                excluded = f"--{key}={value}"
            else:
                changes: Dict[str, Any] = {key: value}
                start = dataclasses.replace(start, **changes)
                overrides.add(key)
        swept_here = family.swept in keys.values()
        modes = family.axes.get("data", (config.data,))
        quick = (
            config.system == "host"
            and (quick_names is None or config.name in quick_names)
            # The last mode does what the others do, and more.
            and config.mode == family.axes.get("mode", (config.mode,))[-1]
            and config.data == (data if data in modes else modes[0])
            and (swept_here or not family.swept or getattr(config, family.swept) == last_swept)
        )
        common = {
            "inner": inner and not swept_here,
            "quick": quick,
            "lacks": lacks,
            "excluded": excluded,
            "base_id": family.identifier(config, frozenset()),
        }
        settable = [(name, assignments[key]) for key, name in keys.items() if name is not None]
        for values in itertools.product(*(texts for _, texts in settable)):
            names = [name for name, _ in settable]
            yield _overridden(family, start, frozenset(overrides), names, values, common)


def _accepts(config: CaseConfig, key: str, value: Any) -> bool:
    try:
        check_value(type(config), key, value)
    except ValueError:
        return False
    return True


def _overridden(
    family: Family,
    config: CaseConfig,
    overrides: FrozenSet[str],
    names: Sequence[str],
    texts: Sequence[str],
    common: Dict[str, Any],
) -> Case:
    error = ""
    values: Dict[str, Any] = {}
    for name, text in zip(names, texts):
        try:
            values[name] = convert(type(config), name, text)
        except ValueError as problem:
            error = error or f"--set={name}={text}: {problem}"
    config = dataclasses.replace(config, **values)
    try:
        config.check()
    except ValueError as problem:
        error = error or f"{config.name}: {problem}"
    changed = overrides | frozenset(names)
    identifier = family.identifier(config, changed)
    if error:
        # The configuration kept its old value, so its identifier is another case's.
        identifier += "-invalid"
    return Case(config, identifier, overrides=changed, error=error, **common)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Keep what this device can run; judge ``--set`` on what is left."""
    selection = config.stash[selection_key]
    kept: List[pytest.Item] = []
    dropped: List[pytest.Item] = []
    for item in items:
        case = case_of(item)
        reason = _why_left_out(case, selection.device, config.option) if case else ""
        if case and selection.device == "fake" and set(FRAMEWORKS) & set(_fixtures(item)):
            reason = "need a framework, which the fake device has none of"
        if reason:
            selection.left_out[reason] += 1
        (dropped if reason else kept).append(item)
    kept, lacking = _judge_overrides(selection, kept, config.option.dry_run)
    dropped += lacking
    if not config.option.dry_run:  # each printed command is a run of its own
        kept, mixed = _one_data_mode(selection, kept)
        dropped += mixed
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    items[:] = kept
    for case in filter(None, map(case_of, kept)):
        for warning in case.config.warnings if not case.error else ():
            selection.warnings.setdefault(warning, []).append(case.id)
    selection.unused = {
        field.name
        for case in filter(None, map(case_of, kept))
        for field in dataclasses.fields(case.config)
        if field.metadata.get("ipu_only") and field.name in case.overrides and not case.config.ipus
    }


def _fixtures(item: pytest.Item) -> List[str]:
    names: List[str] = getattr(item, "fixturenames", [])
    return names


def _why_left_out(case: Case, device: str, option: Any) -> str:
    """Return what a case needs to run, or '' if it runs."""
    needs = case.config.ipus
    if case.excluded:
        return f"left out by {case.excluded}"
    if device in devices.IPU_KINDS:
        if not needs:
            return "for a host: --device=cpu or --device=cuda"
    elif needs:
        return f"need {needs} IPU{'s' if needs > 1 else ''}: --device=ipu"
    if case.inner and not option.sweep:
        return "inner points of a batch-size sweep: --sweep"
    named = any(case.config.name in text for text in (option.keyword, *option.file_or_dir))
    if case.further and not option.sweep and not named:
        return "further configurations: --sweep, or -k with a full name"
    return ""


def _one_data_mode(
    selection: Selection, items: List[pytest.Item]
) -> Tuple[List[pytest.Item], List[pytest.Item]]:
    """Keep one data mode of TensorFlow's cases on an IPU: the first that is selected.

    The SDK's TensorFlow reads once a process whether data is synthetic (TF_POPLAR_FLAGS).
    """
    kept: List[pytest.Item] = []
    mixed: List[pytest.Item] = []
    mode = ""
    for item in items:
        case = case_of(item)
        if selection.device in devices.IPU_KINDS and case and "tensorflow" in _fixtures(item):
            mode = mode or case.config.data
            if case.config.data != mode:
                reason = f"need a run of their own on an IPU: --data={case.config.data}"
                selection.left_out[reason] += 1
                mixed.append(item)
                continue
        kept.append(item)
    return kept, mixed


def _judge_overrides(
    selection: Selection, items: List[pytest.Item], dry_run: bool
) -> Tuple[List[pytest.Item], List[pytest.Item]]:
    """Return (kept, left out). Of a contradiction a dry run tells where it shows the case."""
    found = [(item, case_of(item)) for item in items]
    selected = [case for _, case in found if case is not None]
    if not selected:
        return items, []
    for key in selection.assignments:
        if all(key in case.lacks for case in selected):
            classes = {type(case.config) for case in selected}
            raise pytest.UsageError(unknown_key_message(key, classes))
    kept: List[pytest.Item] = []
    lacking: List[pytest.Item] = []
    for item, case in found:
        if case is not None and case.lacks:
            selection.left_out[f"without the option {', '.join(sorted(case.lacks))}"] += 1
            lacking.append(item)
            continue
        if case is not None and case.error and not dry_run:
            raise pytest.UsageError(case.error)
        kept.append(item)
    return kept, lacking


def pytest_report_collectionfinish(config: pytest.Config) -> List[str]:
    """Say what was left out and what it needs."""
    selection = config.stash[selection_key]
    lines = [
        f"{count} cases {reason}" if count > 1 else f"1 case {reason.replace('need ', 'needs ', 1)}"
        for reason, count in sorted(selection.left_out.items())
    ]
    if selection.unused:
        names = ", ".join(sorted(selection.unused))
        lines.append(f"recorded and not used on a host, where they change nothing: {names}")
    for warning, cases in selection.warnings.items():
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        lines.append(f"{cases[0]}{more}: {warning}")
    return lines
