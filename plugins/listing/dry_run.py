"""`--dry-run`: print the command of each selected case and run nothing.

No device is touched, so an IPU's commands can be read on a machine without one.
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
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.instances.hosts import OPTION, launcher_arguments
from ipubench.fixtures.instances.plan import instances_of, plan
from ipubench.plugins.benchmarks_yml.command import launched
from ipubench.plugins.command_line.own_options import own_arguments
from ipubench.plugins.command_line.words import (
    arguments_of,
    benchmark_arguments,
    given_arguments,
    options_among,
    spellings,
    typed_words,
)
from ipubench.plugins.measure.instance import instance_command
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import run_of

WIDTH = 80
#: Options with a value by which pytest finds plugins, settings and tests.
WHERE_FROM = ("-p", "-c", "--config-file", "--rootdir", "--confcutdir", "--import-mode")
# Stand for what the run chooses when it starts.
PORT, SOCKET = "PORT", "SOCKET"
CACHE = Path("FOLDER")


def list_commands(session: pytest.Session) -> Optional[bool]:
    """Print the commands and end the session without running a case."""
    if not options_of(session.config).dry_run:
        return None
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    for item in session.items:
        for line in commands(item):
            terminal.write_line(line)
    return True


def commands(item: pytest.Item) -> List[str]:
    """Return the lines of a case: what a user types, and below it what it launches."""
    case = case_of(item)
    if case is None:
        return []
    if case.error:
        return ["", case.id, f"  cannot run: {case.error}"]
    typed = typed_words(item.config)
    words = [python(), "-m", "pytest", *where_from(typed)]
    alone = instances_of(case.config) == 1
    given = given_arguments(item.config)
    if alone:
        launching = tuple(spellings(item.config, OPTION))
        given = [word for word in given if not word.startswith(launching)]
    words += test_paths(item)
    given += [*benchmark_arguments(item.config), *own_arguments(item.config, typed, addopts=True)]
    words += mask_words(given)
    if case.tier in (SWEEP, RARE):
        words.append(spellings(item.config, "--sweep")[-1])
    lines = ["", *wrapped(words)]
    if case.config.shown_batch:
        lines.append(f"  global batch size: {case.config.shown_batch}")
    try:
        command = launched(item)
        if command is not None:
            heading, started = command
            return [*lines, heading, *wrapped(started, indent="    ")]
        if alone:
            return lines
        planned = plan(
            case.config,
            run_of(item.config).selection.device,
            os.sched_getaffinity(0),
            launcher_arguments(options_of(item.config).launcher_args),
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
    """Return what a user types for this Python."""
    found = shutil.which("python")
    # A virtual environment's is a link to the one that made it, whose packages are others.
    folders = [os.path.dirname(path) for path in (found or "", sys.executable)]
    alike = found and os.path.samefile(found, sys.executable) and os.path.samefile(*folders)
    return "python" if alike else sys.executable


def where_from(typed: Sequence[str]) -> List[str]:
    """Return the typed words that lead pytest to the suite, and to a case by the name it has."""
    return [word for words in options_among(typed, WHERE_FROM) for word in words]


def test_paths(item: pytest.Item) -> List[str]:
    """Return the words that name the case from the folder of this run."""
    here = str(item.config.invocation_params.dir)
    named = run_of(item.config).selection.named_files
    parts = (word.partition("::") for word in arguments_of(item.config, item.nodeid, named))
    # An identifier such as http://HOST stays as it is.
    return [os.path.relpath(path, here) + separator + rest for path, separator, rest in parts]


def wrapped(words: Sequence[str], indent: str = "") -> List[str]:
    r"""Return a command as lines of a shell, with `\` at the end of all but the last."""
    lines = [indent]
    for word in map(shlex.quote, words):
        separator = "" if lines[-1].strip() == "" else " "
        if separator and len(lines[-1]) + len(word) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append(f"{indent}  ")
            separator = ""
        lines[-1] += separator + word
    return lines
