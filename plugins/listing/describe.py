"""`--describe`: list the options of the selected cases instead of running them."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.masking import mask_value, masked
from ipubench.fixtures.case.options import ALIASES, CaseConfig, option_types
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.case.values import type_name
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.benchmarks_yml.cases import SETTABLE, SpecConfig
from ipubench.plugins.command_line.set_option import can_be_set
from ipubench.plugins.record.text import terminal_width, without_identifier
from ipubench.plugins.selection.functions import Function
from ipubench.plugins.selection.selected import case_of


def list_options(session: pytest.Session) -> Optional[bool]:
    """Print the options and end the session without running a case."""
    if not options_of(session.config).describe:
        return None
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    verbose = session.config.get_verbosity() > 0
    for line in describe(session.items, verbose, terminal_width()):
        terminal.write_line(printable(line))
    return True


def describe(items: List[pytest.Item], verbose: bool = False, width: int = 80) -> List[str]:
    """Return the lines: for each bench function, the options of its cases and their values.

    With -v, or for a single function, each line also has the option's type and meaning. Otherwise
    options with the same values in all functions come once, at the end.
    """
    groups: Dict[str, List[CaseConfig]] = {}
    for item in items:
        case = case_of(item)
        if case is not None:
            groups.setdefault(without_identifier(item.nodeid), []).append(case.config)
    if not groups:
        return ["no case is selected, so there is no option to describe"]
    in_full = verbose or len(groups) == 1
    found = {function: _found(configs) for function, configs in groups.items()}
    shared = set() if in_full else _shared(list(found.values()))
    lines = []
    for function, configs in groups.items():
        lines += ["", f"{function}: {counted(len(configs), 'case')}"]
        batches = list(filter(None, (config.shown_batch for config in configs)))
        lines += [f"  global batch size: {_some(batches)}"] if batches else []
        lines += _parameters([one for one in configs if isinstance(one, SpecConfig)])
        if in_full:
            lines += map(_line, found[function].values())
        else:
            lines += _wrapped(_values(found[function], lambda text: text not in shared), width)
    if shared:
        lines += ["", "all of them:", *_wrapped(sorted(shared), width)]
    if not in_full:
        lines += ["", "-v, or one bench function alone, shows what each option means"]
    return lines


#: The options of a bench function, each with the configurations that have it.
Found = Dict[str, List[Tuple[CaseConfig, Any]]]


def _found(configs: Iterable[CaseConfig]) -> Found:
    """Return the options of some configurations, which may be of several classes."""
    found: Found = {}
    for config in configs:
        for field in _options(config):
            found.setdefault(field.name, []).append((config, field))
    return found


def _values(found: Found, wanted: Callable[[str], bool] = lambda text: True) -> List[str]:
    """Return NAME=VALUE of each option."""
    texts = (f"{name}={_given(configs)}" for name, configs in found.items())
    return list(filter(wanted, texts))


def _given(found: Sequence[Tuple[CaseConfig, Any]]) -> str:
    return _some(str(masked(getattr(config, field.name), field.name)) for config, field in found)


def _shared(functions: Sequence[Found]) -> Set[str]:
    """Return the options that have the same values in all functions, as NAME=VALUE."""
    return set.intersection(*(set(_values(found)) for found in functions))


def _wrapped(options: Sequence[str], width: int) -> List[str]:
    text = ", ".join(options)
    indent = "  "
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _options(config: CaseConfig) -> List[Any]:
    """Return the options that can be set; a command or a test decides most of them itself."""
    fields = [field for field in dataclasses.fields(config) if field.name != "name"]
    settable = SETTABLE if isinstance(config, SpecConfig) else ("batches_per_step", "steps")
    if isinstance(config, (SpecConfig, Function)):
        return [field for field in fields if field.name in settable]
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
    kind = type_name(option_types(type(first))[field.name])
    return f"  {field.name}={_given(found)} ({kind}): {meaning(field)}"


def _some(values: Iterable[str]) -> str:
    different = list(dict.fromkeys(values))
    return "|".join(different[:4]) + ("|..." if len(different) > 4 else "")


def meaning(field: Any) -> str:
    """Return an option's meaning, its accepted values and its other names, in one line."""
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
