"""Makes the cases that a bench file declares, one for each combination of options."""

from __future__ import annotations

import dataclasses
import itertools
from typing import (
    Any,
    Collection,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import (
    NO_AXES,
    RARE,
    SWEEP,
    USUAL,
    Case,
    CaseSet,
    Entry,
    Sweep,
)
from ipubench.fixtures.case.masking import mask_value
from ipubench.fixtures.case.options import (
    CaseConfig,
    check_value,
    is_masked,
    options_with,
    resolve_key,
)
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.arguments import only_tests
from ipubench.plugins.command_line.set_option import assign, convert, parse_assignments
from ipubench.plugins.selection.order import SERVERS
from ipubench.plugins.selection.selected import COMMON, FRAMEWORKS, NOT_OFFERED, Selection

NO_CACHE_WITH_PROFILE = (
    "model_cache_path: with --profile an IPU gets a program that also writes reports; later runs "
    "would find it in that folder and time it, so leave the option out"
)


def selection_of(config: pytest.Config) -> Selection:
    """Return the selection of the command line. Raises UsageError for a bad ``--set``."""
    option = options_of(config)
    assignments = parse_assignments(option.case_options)
    for key in ("batches_per_step", "steps"):
        if getattr(option, key) is not None:
            flag = f"--{key.replace('_', '-')}={getattr(option, key)}"
            assign(assignments, key, [str(getattr(option, key))], flag)
    if option.zero_values:
        assign(assignments, "use_zero_values", ["true"], "--zero-values")
    device = devices.choose(option.device)
    why_not = devices.of(device).without_number
    if option.device_id is not None and why_not:
        raise pytest.UsageError(f"--device-id: {why_not}")
    return Selection(assignments, device, only_tests(config))


def parametrize_cases(metafunc: pytest.Metafunc, selection: Selection) -> None:
    """Make cases of the declared configurations; bad values become errors of the cases."""
    marks = list(metafunc.definition.iter_markers("cases"))
    if not marks:
        return
    option = options_of(metafunc.config)
    function = metafunc.definition.nodeid
    params: Dict[str, Any] = {}
    declared: Dict[str, CaseConfig] = {}
    kind = devices.of(selection.device)
    profiled = option.profile is not None and kind.poplar
    for mark in marks:
        axes = {key: values for key, values in mark.kwargs.items() if key not in NO_AXES}
        quick, tier = mark.kwargs.get("quick"), mark.kwargs.get("tier", USUAL)
        everything = not (kind.on_cpu and kind.in_process) or option.data is not None
        for entry in mark.args:
            case_set = CaseSet.of(entry, axes)
            _refuse_duplicates(case_set, declared)
            named = {"data", case_set.swept, *axes}
            for case in expand(
                case_set,
                selection.assignments,
                option.data,
                option.precision,
                _quick(entry, quick),
                profiled,
                _without(case_set, metafunc.fixturenames),
            ):
                before, now = (f"{function}[{name}]" for name in (case.base_id, case.id))
                selection.nodeids |= {before, now}
                # Setting a swept option makes several cases into one.
                selection.base_ids.setdefault(now, set()).add(case.base_id)
                if case.tier == USUAL:
                    here = tier if everything else _tier_on_cpu(case, mark.kwargs, named) or tier
                    case = dataclasses.replace(case, tier=here)
                params.setdefault(case.id, _parameter(case, metafunc.fixturenames))
    metafunc.parametrize("ipubench_case", list(params.values()), indirect=True)


def _without(case_set: CaseSet, fixturenames: Collection[str]) -> List[str]:
    """Return which of ``data`` and ``precision`` change nothing in the cases of a function.

    It uses neither a device nor a runtime of ours, and its options do not declare them.
    """
    if not {"device", *FRAMEWORKS, *SERVERS}.isdisjoint(fixturenames):
        return []
    classes = type(case_set.configurations[0][0]).__mro__
    declared = {
        name
        for cls in classes[: classes.index(CaseConfig)]
        for name in vars(cls).get("__annotations__", ())
    }
    return [
        key
        for key in COMMON
        if not (key in declared or key in case_set.axes or key in fixturenames)
    ]


def _refuse_duplicates(case_set: CaseSet, declared: Dict[str, CaseConfig]) -> None:
    """Refuse two configurations with one identifier; ``declared``: the function's so far."""
    for config, _ in case_set.configurations:
        name = case_set.identifier(config, frozenset())
        if declared.setdefault(name, config) != config:
            raise pytest.Collector.CollectError(
                f"@cases: two configurations have the identifier {name}; give them different names"
            )


def _tier_on_cpu(case: Case, declared: Mapping[str, Any], named: Set[str]) -> str:
    """Return the tier of a case that a usual run on a CPU leaves out, else ''.

    ``named``: the options in identifiers; a user who sets one of these has chosen among the cases.
    """
    if case.config.data in declared.get("rare_on_cpu", ()):
        return RARE
    endings = tuple(f"-{end}" for end in declared.get("sweep_on_cpu", ()))
    return SWEEP if case.base_id.endswith(endings) and not case.overrides & named else ""


def _quick(entry: Entry, names: Optional[Sequence[str]]) -> Optional[Sequence[str]]:
    """Return the names that -m quick runs; the entry's setting comes before the function's."""
    if not isinstance(entry, Sweep) or entry.quick is None:
        return names
    return (entry.base.name,) if entry.quick else ()


def _parameter(case: Case, fixturenames: Sequence[str]) -> Any:
    marks = [getattr(pytest.mark, case.config.mode)]
    marks += [getattr(pytest.mark, FRAMEWORKS[name]) for name in fixturenames if name in FRAMEWORKS]
    if case.config.ipus:
        marks.append(pytest.mark.ipus(case.config.ipus))
    if case.tier != USUAL:
        marks.append(pytest.mark.sweep)
    if case.quick:
        marks.append(pytest.mark.quick)
    return pytest.param(case, id=case.id, marks=marks)


def expand(
    case_set: CaseSet,
    assignments: Dict[str, List[str]],
    data: Optional[str] = None,
    precision: Optional[str] = None,
    quick_names: Optional[Sequence[str]] = None,
    profiled: bool = False,
    without: Collection[str] = (),
) -> Iterator[Case]:
    """Yield the cases of a set under the command line's options.

    If the set has cases in several modes, ``data`` and ``precision`` exclude the other modes.
    Otherwise they replace the single mode, if the set accepts the value.
    ``profiled``: an IPU reports every batch of a call, so a call has as few as the case can run.
    ``without``: those of ``data`` and ``precision`` that would change nothing in these cases.
    """
    cls = type(case_set.configurations[0][0])
    asked = {"data": data, "precision": precision}
    wanted = {key: value for key, value in asked.items() if value is not None}
    lacking = {key for key in without if wanted.pop(key, None) is not None}
    keys = {key: resolve_key(cls, key) for key in assignments}
    lacks = frozenset({key for key, name in keys.items() if name is None} | lacking)
    usual = [config for config, tier in case_set.configurations if tier == USUAL]
    last_swept = getattr(usual[-1], case_set.swept) if case_set.swept else None
    settable = {key: name for key, name in keys.items() if name is not None}
    one_value = ""
    for key, name in settable.items():
        same_case = name in options_with(cls, "same_case")
        hidden = [one for one in assignments[key] if same_case or is_masked(name, one)]
        if len(hidden) > 1:
            one_value = f"--set={key}: cases do not differ by {name}; give one value"
    for config, tier in case_set.configurations:
        changes, excluded = _narrowed(case_set, config, wanted)
        start = dataclasses.replace(config, **changes)
        declared = {key: getattr(config, key) for key in changes}
        narrowed = {f"--{key}={value}" for key, value in changes.items()}
        swept_here = case_set.swept in keys.values()
        modes = case_set.axes.get("data", (config.data,))
        quick = (
            config.system == "host"
            and (quick_names is None or config.name in quick_names)
            # The last mode includes the work of the others.
            and config.mode == case_set.axes.get("mode", (config.mode,))[-1]
            and config.data == (data if data in modes else modes[0])
            and (swept_here or not case_set.swept or getattr(config, case_set.swept) == last_swept)
        )
        common = {
            "tier": USUAL if swept_here else tier,
            "quick": quick,
            "lacks": lacks,
            "excluded": excluded,
            "base_id": case_set.identifier(config, frozenset()),
        }
        for texts in itertools.product(*(assignments[key] for key in settable)):
            names = list(settable.values())
            shown = map(mask_value, names, texts)
            given = {f"--set={key}={text}" for key, text in zip(settable, shown)}
            case = _overridden(case_set, start, declared, names, texts, common, profiled)
            error = case.error or one_value
            yield dataclasses.replace(case, given=frozenset(narrowed | given), error=error)


def _narrowed(
    case_set: CaseSet, config: CaseConfig, wanted: Mapping[str, str]
) -> Tuple[Dict[str, Any], str]:
    """Return the changes of a configuration by the ``wanted`` values, and the one excluding it."""
    changes: Dict[str, Any] = {}
    excluded = ""
    for key, value in wanted.items():
        if getattr(config, key) == value:
            continue
        if len(case_set.axes.get(key, ())) > 1 or not _accepts(config, key, value):
            excluded = f"--{key}={value}{NOT_OFFERED}"
        else:
            changes[key] = value
    return changes, excluded


def _accepts(config: CaseConfig, key: str, value: Any) -> bool:
    try:
        check_value(type(config), key, value)
    except ValueError:
        return False
    return True


def _overridden(
    case_set: CaseSet,
    config: CaseConfig,
    narrowed: Dict[str, Any],
    names: Sequence[str],
    texts: Sequence[str],
    common: Dict[str, Any],
    profiled: bool,
) -> Case:
    """Return the case with the values ``texts`` of the options ``names``.

    ``narrowed`` are the declared values of options that --data and --precision have changed. A case
    that is valid only with these is left out.
    """
    error = ""
    values: Dict[str, Any] = {}
    for name, text in zip(names, texts):
        try:
            values[name] = convert(type(config), name, text)
        except ValueError as problem:
            shown = mask_value(name, text)
            error = error or f"--set={name}={shown}: {str(problem).replace(text, shown)}"
    before, config = config, dataclasses.replace(config, **values).settled(frozenset(names))
    if profiled and "batches_per_step" not in names:
        config = dataclasses.replace(config, batches_per_step=config.fewest_batches)
    if profiled and hasattr(config, "model_cache_path") and config.model_cache_path:
        error = error or f"{config.name}: {NO_CACHE_WITH_PROFILE}"
    contradiction = _contradiction(config)
    if contradiction and not _contradiction(dataclasses.replace(config, **narrowed)):
        options = " ".join(f"--{key}={getattr(config, key)}" for key in narrowed)
        common = {**common, "excluded": common["excluded"] or f"{options}: {contradiction}"}
    elif contradiction:
        error = error or f"{config.name}: {contradiction}"
    error = error or _idle(before, config, names)
    changed = frozenset([*narrowed, *names])
    identifier = case_set.identifier(config, changed)
    if error:
        # With the old value, the identifier would be that of another case.
        identifier += "-invalid"
    return Case(config, identifier, overrides=changed, error=error, **common)


def _contradiction(config: CaseConfig) -> str:
    """Return why the options of a configuration contradict each other, or ''."""
    try:
        config.check()
    except ValueError as problem:
        return str(problem)
    return ""


def _idle(before: CaseConfig, config: CaseConfig, names: Sequence[str]) -> str:
    """Return why an option that was set changes nothing, or ''.

    A host records the options for IPUs; the header lists them.
    """
    ipu_only = {item.name for item in dataclasses.fields(config) if item.metadata.get("ipu_only")}
    declared = set() if config.ipus else ipu_only
    for name, why in config.idle().items():
        changed = name in names and getattr(config, name) != getattr(before, name)
        if changed and name not in declared:
            value = mask_value(name, str(getattr(config, name)))
            return f"{config.name}: {name}={value} would change nothing: {why}"
    return ""
