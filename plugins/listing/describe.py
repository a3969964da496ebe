"""`--describe`: list the options of the selected cases instead of running them."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Type

import pytest

from ipubench.fixtures.case.masking import masked
from ipubench.fixtures.case.options import ALIASES, CaseConfig, option_types
from ipubench.fixtures.case.values import type_name
from ipubench.plugins.record.text import without_identifier
from ipubench.plugins.selection.expand import case_of


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Optional[bool]:
    """Print the options and end the session without running a case."""
    if not session.config.option.describe:
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
        lines += ["", f"{function}: {len(configs)} case{'s' if len(configs) > 1 else ''}"]
        lines += [_line(type(configs[0]), field, configs) for field in _options(configs[0])]
    return lines or ["no case is selected, so there is no option to describe"]


def _options(config: CaseConfig) -> List[Any]:
    return [field for field in dataclasses.fields(config) if field.name != "name"]


def _line(cls: Type[CaseConfig], field: Any, configs: List[CaseConfig]) -> str:
    values = list(
        dict.fromkeys(str(masked(getattr(config, field.name), field.name)) for config in configs)
    )
    shown = "|".join(values[:4]) + ("|..." if len(values) > 4 else "")
    kind = type_name(option_types(cls)[field.name])
    return f"  {field.name}={shown} ({kind}): {meaning(field)}"


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
