"""`--describe`: list the options of the selected cases instead of running them."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.masking import mask_value, masked
from ipubench.fixtures.case.options import ALIASES, CaseConfig, option_types
from ipubench.fixtures.case.values import type_name
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.benchmarks_yml.cases import SETTABLE, SpecConfig
from ipubench.plugins.command_line.set_option import can_be_set
from ipubench.plugins.record.text import without_identifier
from ipubench.plugins.selection.selected import case_of


def list_options(session: pytest.Session) -> Optional[bool]:
    """Print the options and end the session without running a case."""
    if not options_of(session.config).describe:
        return None
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    for line in describe(session.items):
        terminal.write_line(line)
    return True


def describe(items: List[pytest.Item]) -> List[str]:
    """Return the lines: for each bench function its cases' options, types, defaults, meaning.

    The default is the one of the function's first selected case; where the cases differ, all
    values are shown.
    """
    groups: Dict[str, List[CaseConfig]] = {}
    for item in items:
        case = case_of(item)
        if case is not None:
            groups.setdefault(without_identifier(item.nodeid), []).append(case.config)
    lines = []
    for function, configs in groups.items():
        lines += ["", f"{function}: {counted(len(configs), 'case')}"]
        batches = list(filter(None, (config.shown_batch for config in configs)))
        lines += [f"  global batch size: {_some(batches)}"] if batches else []
        lines += _parameters([one for one in configs if isinstance(one, SpecConfig)])
        # Configurations of a function may be of several classes, each with options of its own.
        found: Dict[str, List[Tuple[CaseConfig, Any]]] = {}
        for config in configs:
            for field in _options(config):
                found.setdefault(field.name, []).append((config, field))
        lines += map(_line, found.values())
    return lines or ["no case is selected, so there is no option to describe"]


def _options(config: CaseConfig) -> List[Any]:
    """Return what can be set; of a command only what is no part of the command."""
    fields = [field for field in dataclasses.fields(config) if field.name != "name"]
    if isinstance(config, SpecConfig):
        return [field for field in fields if field.name in SETTABLE]
    return fields


def _parameters(configs: Sequence[SpecConfig]) -> List[str]:
    """Return a line for each parameter of commands that --set replaces."""
    found: Dict[str, Dict[str, None]] = {}
    for config in configs:
        for name, value in config.parameters:
            if can_be_set(name):
                found.setdefault(name, {})[mask_value(name, value)] = None
    return [f"  {name}={_some(found[name])} (str): a parameter of the command" for name in found]


def _line(found: Sequence[Tuple[CaseConfig, Any]]) -> str:
    """Return the line of an option, given the configurations that have it."""
    first, field = found[0]
    values = (str(masked(getattr(config, field.name), field.name)) for config, _ in found)
    kind = type_name(option_types(type(first))[field.name])
    return f"  {field.name}={_some(values)} ({kind}): {meaning(field)}"


def _some(values: Iterable[str]) -> str:
    different = list(dict.fromkeys(values))
    return "|".join(different[:4]) + ("|..." if len(different) > 4 else "")


def meaning(field: Any) -> str:
    """Return what an option means, which values it accepts and its other names, in one line."""
    text = str(field.metadata.get("help", ""))
    if field.metadata.get("choices"):
        text += f"; one of {', '.join(map(str, field.metadata['choices']))}"
    if field.metadata.get("minimum") is not None:
        text += f"; at least {field.metadata['minimum']}"
    if field.metadata.get("ipu_only"):
        text += "; recorded and not used on a host"
    if field.metadata.get("needs_ipu"):
        text += "; needs an IPU"
    aliases = [alias for alias, target in ALIASES.items() if target == field.name]
    aliases += [target for alias, target in ALIASES.items() if alias == field.name]
    return text + (f"; also {', '.join(aliases)}" if aliases else "")
