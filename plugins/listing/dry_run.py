"""`--dry-run`: print the command of each selected case and run nothing.

This needs no device, so it also shows an IPU's commands on a machine without one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import List, Optional, Sequence

import pytest

from ipubench.fixtures.case.cases import RARE, SWEEP
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.masking import mask_words
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.instances.hosts import OPTION, launcher_arguments
from ipubench.fixtures.instances.plan import instances_of, plan
from ipubench.plugins.benchmarks_yml.command import launched
from ipubench.plugins.command_line.arguments import (
    arguments_of,
    benchmark_arguments,
    options_among,
    spellings,
    typed_arguments,
    typed_measuring_arguments,
)
from ipubench.plugins.command_line.own_options import own_arguments
from ipubench.plugins.measure.instance import instance_command
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import run_of

WIDTH = 80
#: Options with a value that decide which plugins, settings and tests pytest loads.
LOADING = ("-p", "-c", "--config-file", "--rootdir", "--confcutdir", "--import-mode")
# Placeholders for values that a run chooses at its start.
PORT, SOCKET = "PORT", "SOCKET"
CACHE = Path("FOLDER")


def list_commands(session: pytest.Session) -> Optional[bool]:
    """Print the commands and end the session without running a case."""
    if not options_of(session.config).dry_run:
        return None
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    for item in session.items:
        for line in commands(item):
            terminal.write_line(printable(line))
    return True


def commands(item: pytest.Item) -> List[str]:
    """Return the lines of a case: the command to type, and the command that it launches."""
    case = case_of(item)
    if case is None:
        return []
    if case.error:
        return ["", case.id, f"  cannot run: {case.error}"]
    typed = typed_arguments(item.config)
    command = [python(), "-m", "pytest", *loading_arguments(typed)]
    alone = instances_of(case.config) == 1
    given = typed_measuring_arguments(item.config)
    if alone:
        launching = tuple(spellings(item.config, OPTION))
        given = [argument for argument in given if not argument.startswith(launching)]
    command += test_paths(item)
    given += [*benchmark_arguments(item.config), *own_arguments(item.config, typed, addopts=True)]
    command += mask_words(given)
    if case.tier in (SWEEP, RARE):
        command.append(spellings(item.config, "--sweep")[-1])
    lines = ["", *wrapped(command)]
    if case.config.shown_batch:
        lines.append(f"  global batch size: {case.config.shown_batch}")
    try:
        launch = launched(item)
        if launch is not None:
            heading, started = launch
            return [*lines, heading, *wrapped(started, indent="    ")]
        if alone:
            return lines
        option = options_of(item.config)
        planned = plan(
            case.config,
            run_of(item.config).selection.device,
            os.sched_getaffinity(0),
            launcher_arguments(option.launcher_args),
            option.device_id,
        )
        address = f"{planned.address}:{PORT}" if planned.address else SOCKET
        program = instance_command(run_of(item.config), item.nodeid, address, CACHE)
    except CaseError as error:
        return [*lines, f"  cannot run: {error}"]
    count = f"{planned.ran} instances"
    if planned.ran < planned.requested:
        count = f"{planned.ran} of {planned.requested} instances, one per core,"
    return [
        *lines,
        f"  which starts {count} with",
        *wrapped(mask_words([*planned.launcher.arguments, *program]), indent="    "),
    ]


def python() -> str:
    """Return the name of this Python on a command line."""
    found = shutil.which("python")
    # A virtual environment's python links to one with other packages, so compare the folders.
    folders = [os.path.dirname(path) for path in (found or "", sys.executable)]
    alike = found and os.path.samefile(found, sys.executable) and os.path.samefile(*folders)
    return "python" if alike else sys.executable


def loading_arguments(typed: Sequence[str]) -> List[str]:
    """Return the typed options that decide which plugins, settings and tests pytest loads."""
    return [argument for given in options_among(typed, LOADING) for argument in given]


def test_paths(item: pytest.Item) -> List[str]:
    """Return the paths that name the case, relative to the folder of this run."""
    here = str(item.config.invocation_params.dir)
    named = run_of(item.config).selection.named_files
    parts = (word.partition("::") for word in arguments_of(item.config, item.nodeid, named))
    # An identifier such as http://HOST stays as it is.
    return [os.path.relpath(path, here) + separator + rest for path, separator, rest in parts]


def wrapped(arguments: Sequence[str], indent: str = "") -> List[str]:
    r"""Return a command as lines for a shell, with `\` at the end of all but the last."""
    lines = [indent]
    for word in map(shlex.quote, arguments):
        separator = "" if lines[-1].strip() == "" else " "
        if separator and len(lines[-1]) + len(word) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append(f"{indent}  ")
            separator = ""
        lines[-1] += separator + word
    return lines
