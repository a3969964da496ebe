"""Adds our options to pytest's parser: as ``--ipubench-NAME``, and as ``--NAME`` if that is free.

A plugin or a conftest.py may declare an option of the same name later than we do. So the short
spellings are added after pytest has loaded the first conftest.py files.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from ipubench.fixtures.command_line import PREFIX, options_of
from ipubench.fixtures.devices import CHOICES
from ipubench.plugins.command_line import spelling
from ipubench.plugins.command_line.arguments import LONG, spellings, typed_arguments
from ipubench.plugins.command_line.options import sections

GROUP = "ipubench"
TAKEN_FLAGS = f"{PREFIX}taken_flags"
HELP = f"{PREFIX}help"


def add_options(parser: pytest.Parser, config: pytest.Config) -> None:
    """Add the long spellings, which pytest's ``--help`` does not show."""
    group = parser.getgroup(GROUP)
    group.addoption(
        "--help-ipubench", dest=HELP, action="store_true", help="show the options of ipubench"
    )
    for section in sections():
        for option in section.options:
            group.addoption(LONG + option.name, dest=option.dest, **option.hidden())
    if not hasattr(config.option, TAKEN_FLAGS):  # a worker already has its controller's
        setattr(config.option, TAKEN_FLAGS, [])
    files = [str(getattr(one, "__file__", "")) for one in config.pluginmanager.get_plugins()]
    if any(Path(file).name == "conftest.py" for file in files):
        add_short(parser, config)  # a conftest.py has loaded this plugin


def find_paths(config: pytest.Config, parser: pytest.Parser, args: List[str]) -> None:
    """Set the paths of the command line, before pytest looks for conftest.py files there.

    Without our short spellings pytest would take the values after them for paths.
    """
    short = {f"--{option.name}" for section in sections() for option in section.options}
    short -= _names_in(parser).keys()
    long = [LONG + given[2:] if given.split("=")[0] in short else given for given in args]
    try:
        found = parser.parse_known_args(long, namespace=copy.copy(config.option))
    except pytest.UsageError:
        return  # pytest reports it later
    config.known_args_namespace.file_or_dir = found.file_or_dir


def add_short(parser: pytest.Parser, config: pytest.Config) -> None:
    """Add the short spellings that are free, and record those that are taken."""
    names, group = _names_in(parser), parser.getgroup(GROUP)
    taken_flags = []
    for section in sections():
        for option in section.options:
            flag = f"--{option.name}"
            if option.is_hidden:
                continue
            if flag not in names:
                group.addoption(flag, dest=option.dest, **option.hidden())
            elif names[flag] != option.dest:
                taken_flags.append(flag)
    setattr(config.option, TAKEN_FLAGS, taken_flags)
    spelling.name_unknown_options(parser, _names_in(parser), typed_arguments(config))


def _names_in(parser: pytest.Parser) -> Dict[str, str]:
    """Return all options of the parser -> their names in ``config.option``."""
    groups = [*getattr(parser, "_groups", ()), getattr(parser, "_anonymous", None)]
    found = [option for group in groups for option in getattr(group, "options", ())]
    return {name: option.dest for option in found for name in option.names()}


def withdraw_short(parser: pytest.Parser) -> None:
    """Remove our options from the parser, so that a conftest.py loaded later can declare them.

    pytest 9 has a single argparse parser, which refuses a name twice.
    """
    declared = getattr(parser.optparser, "_option_string_actions", {})
    for name, action in list(declared.items()):
        if str(action.dest).startswith(PREFIX):
            del declared[name]


def check_device(config: pytest.Config) -> None:
    """Raise UsageError if there is no such kind of device.

    pytest parses options before it loads a conftest.py, which may add a kind.
    """
    try:
        spelling.one_of(CHOICES, spelling.DEVICES)(options_of(config).device)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"argument --device: {error}") from None


def show_help(config: pytest.Config) -> Optional[int]:
    """With ``--help-ipubench`` show our options and return the exit code."""
    if not getattr(config.option, HELP):
        return None
    shown = argparse.ArgumentParser(
        usage="pytest [options] [file_or_dir] [file_or_dir] [...]",
        description=f"Each option is spelled {LONG}NAME as well.",
        add_help=False,
    )
    for section in sections():
        group = shown.add_argument_group(section.title)
        for option in section.options:
            if not option.is_hidden:
                name = spellings(config, f"--{option.name}")[-1]
                group.add_argument(name, dest=option.dest, **option.settings)
    print(shown.format_help(), end="")
    return 0


def header(config: pytest.Config) -> Optional[str]:
    """Return a line about our short spellings that other plugins have taken."""
    taken_flags = options_of(config).taken_flags
    if not taken_flags:
        return None
    return (
        f"ipubench: a conftest.py or another plugin has {', '.join(taken_flags)}; "
        f"write {', '.join(LONG + flag[2:] for flag in taken_flags)}"
    )
