"""Asks another place, in a process that measures nothing, which cases this run's selection has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Set

import pytest

from ipubench.fixtures.case.untrusted import read_json, typed
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import user_path
from ipubench.fixtures.machine.process import LAST_LINES, TIDY_SECONDS, ServerProcess
from ipubench.plugins.command_line.arguments import options_among, passed_arguments
from ipubench.plugins.processes import names_plugin
from ipubench.plugins.processes.place import CHECK_SECONDS, Place
from ipubench.plugins.processes.remote_case import (
    GRACE_SECONDS,
    MOST_LINES,
    child_environment,
    common_words,
    known_reason,
)
from ipubench.plugins.run.recording import Recording

MODULE = "ipubench_names_of_cases"
#: pytest's options that select tests.
SELECTING = ("-k", "-m", "--deselect", "--ignore", "--ignore-glob")
#: pytest's exit code if a file cannot be collected.
INTERRUPTED = 2


class Collected(NamedTuple):
    """What a place has collected: its cases, or the last lines of why it could not start."""

    #: The node ids of the selected cases without a mark that skips; None if pytest did not start.
    names: Optional[Set[str]]
    lines: List[str] = []


def collect(ours: Recording, place: Place) -> Collected:
    """Collect in a place with this run's options, paths, ``-k`` and ``-m``."""
    config = ours.config
    paths = _paths(config, place)
    given = [word.partition("::")[0] for word in config.option.file_or_dir]
    if given and not paths:
        return Collected(set())  # all of them are new here
    with scratch.folder("names") as folder:
        found = folder / "names.json"
        shutil.copy(names_plugin.__file__, folder / f"{MODULE}.py")
        environment: Dict[str, str] = child_environment(place)
        path = [environment.get("PYTHONPATH", ""), str(folder)]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        environment[names_plugin.VARIABLE] = str(found)
        process = ServerProcess(
            "the process that collects the cases there",
            [
                *common_words(ours, place, folder / "cache"),
                *("-p", MODULE, "--collect-only", "--disable-warnings"),
                *_selection(config, place),
                *paths,
            ],
            folder / "output",
            environment,
            GRACE_SECONDS,
            folder=place.folder(config),
            tidy=TIDY_SECONDS,
        )
        try:
            process.start()
            failed = process.ends_within(CHECK_SECONDS) and process.exit_code == INTERRUPTED
        finally:
            process.stop()
        names = set(typed(read_json(found), List[str])) if found.exists() else set()
        if not found.exists() or (failed and not names):
            return Collected(None, _reason(process.last_lines(MOST_LINES)))
    return Collected({name for name in names if _is_named(config, name)})


def _reason(lines: List[str]) -> List[str]:
    known = known_reason(lines)
    return [known] if known else lines[-LAST_LINES:]


def _paths(config: pytest.Config, place: Place) -> List[str]:
    """Return the paths of the command line that exist there; of ``FILE::TEST`` the file.

    pytest collects nothing at all if one is not found.
    """
    if config.option.pyargs:
        return list(config.option.file_or_dir)
    here = Path(config.invocation_params.dir)
    words = (word.partition("::")[0] for word in config.option.file_or_dir)
    there = [place.path(here / user_path(word), config) for word in words]
    return list(dict.fromkeys(str(path) for path in there if path.exists()))


def _is_named(config: pytest.Config, name: str) -> bool:
    """Return whether the command line names a case: with ``FILE::TEST`` only that test of a file.

    A node id begins at the root folder, and a path at the folder of the run.
    """
    base, inside = name.partition("::")[::2]
    root, here = config.rootpath, Path(config.invocation_params.dir)
    parts = [word.partition("::")[::2] for word in config.option.file_or_dir]
    tests = [test for path, test in parts if here / path == root / base]
    return not tests or any(
        not test or inside == test or inside.startswith((f"{test}::", f"{test}[")) for test in tests
    )


def _selection(config: pytest.Config, place: Place) -> List[str]:
    """Return the options that select cases, with paths of the place.

    Those of the command line alone: the settings of this side may be part of the change.
    """
    here = Path(config.invocation_params.dir)
    found = []
    for option, *values in options_among(passed_arguments(config), SELECTING):
        name, equals, value = option.partition("=")
        value = value if equals else "".join(values)
        if name == "--ignore":
            found.append(f"{name}={place.path(here / value, config)}")
        else:
            found += [option, *values]
    return [*found, *([f"{place.prefix}sweep"] if options_of(config).sweep else [])]
