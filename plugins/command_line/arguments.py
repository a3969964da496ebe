"""The arguments of a command line: the kind of session, and the arguments for other processes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.files import IMPORT_ROOT, user_path

# Options that take a path: pytest mistakes `--option PATH` for a test path (see refusals.py).
PATH_OPTIONS = (
    "--dataset-dir",
    "--executable-cache",
    "--results-dir",
    "--baseline",
    "--baseline-save",
    "--profile",
    "--save-graph",
    "--gate-policy",
    "--against",
    "--against-python",
    "--report",
)
# Options that decide what a case measures and how; a fresh process of a case gets them too.
MEASURING_OPTIONS = (
    "device",
    "device_id",
    "data",
    "precision",
    "case_options",
    "budget",
    "target_precision",
    "batches_per_step",
    "steps",
    "dataset_dir",
    "device_timeout",
    "allocator",
    "affinity",
    "wait_for_quiet",
    "energy",
    "launcher_args",
)
# Those of them without a value.
MEASURING_FLAGS = ("energy",)
# Options with a folder into which each case writes files.
INSPECTION_OPTIONS = ("--profile", "--save-graph")
# Options of pytest-benchmark that change how it measures: with a value, and without.
BENCHMARK_OPTIONS = (
    "--benchmark-min-time",
    "--benchmark-max-time",
    "--benchmark-min-rounds",
    "--benchmark-timer",
    "--benchmark-precision",
    "--benchmark-confidence",
    "--benchmark-calibration-precision",
    "--benchmark-warmup",
    "--benchmark-warmup-iterations",
    "--benchmark-cprofile",
)
BENCHMARK_FLAGS = ("--benchmark-warmup", "--benchmark-disable-gc")

#: The prefix of our options in their long spelling, which no other plugin has.
LONG = "--ipubench-"

#: Our key in xdist's workerinput and workeroutput, and in a report's user_properties.
XDIST_KEY = "ipubench"


def typed_arguments(config: pytest.Config) -> List[str]:
    """Return the arguments of the command line."""
    return list(map(str, config.invocation_params.args))


def spellings(config: pytest.Config, flag: str) -> List[str]:
    """Return the spellings of our option in this run; the last is the usual one."""
    long = LONG + flag[2:]
    return [long] if flag in options_of(config).taken_flags else [long, flag]


def all_spellings(config: pytest.Config, flags: Sequence[str]) -> List[str]:
    """Return the spellings of several of our options."""
    return [written for flag in flags for written in spellings(config, flag)]


def options_among(
    arguments: Sequence[str], options: Sequence[str], flags: Sequence[str] = ()
) -> List[List[str]]:
    """Return the arguments that are ``options``, each with its value, or ``flags``.

    The value of an option that is also a flag may be missing.
    """
    attached = tuple(name if len(name) == 2 else f"{name}=" for name in options)
    found: List[List[str]] = []
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        is_flag = argument in flags
        if argument in options and not (is_flag and following[:1] in ("", "-")):
            found.append([argument, following])
        elif is_flag or argument.startswith(attached):
            found.append([argument])
    return found


def names_yaml(config: pytest.Config) -> bool:
    """Return whether the command line names a YAML file, or a case of one."""
    paths = getattr(config, "args", ())  # missing in pytest 7 with --help
    return any(path.split("::")[0].endswith((".yml", ".yaml")) for path in paths)


def is_disabled(config: pytest.Config) -> bool:
    """Return whether pytest-benchmark's options leave only our own meter to measure."""
    option = config.getoption
    return bool(option("benchmark_disable", False) and not option("benchmark_enable"))


def worker_count(config: pytest.Config) -> int:
    """Return how many workers measure this run: 1 without pytest-xdist."""
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def workers_in_turns(config: pytest.Config) -> int:
    """Return the number of workers that take turns with this one, including it."""
    given = getattr(config, "workerinput", {}).get(XDIST_KEY, {})
    return worker_count(config) if given.get("in_turns") else 1


def only_tests(config: pytest.Config) -> bool:
    """Return whether the command line names only this project's tests, which time nothing."""
    tests = IMPORT_ROOT / "tests"
    paths = [config.invocation_params.dir / word.split("::")[0] for word in config.args]
    return all(tests in (path, *path.parents) for path in paths)


def measuring_arguments(
    config: pytest.Config, known: Sequence[str] = MEASURING_OPTIONS, prefix: str = LONG
) -> List[str]:
    """Return the options with values that make another process measure as this one does.

    For a process of another revision, ``known`` are its options and ``prefix`` is their prefix.
    """
    arguments: List[str] = []
    for dest in MEASURING_OPTIONS:
        if dest in MEASURING_FLAGS or dest not in known:
            continue
        value = getattr(options_of(config), dest)
        values = value if isinstance(value, list) else [value]
        name = prefix + _flag(dest)[2:]
        arguments += [f"{name}={_as_text(dest, item)}" for item in values if item is not None]
    return arguments


def inspection_arguments(config: pytest.Config, own: str) -> List[str]:
    """Return the options that make a case write files, with absolute paths.

    ``own``: see :func:`folder_above`.
    """
    option = options_of(config)
    given = {f"{LONG}profile": option.profile, f"{LONG}save-graph": option.save_graph}
    return [f"{flag}={folder_above(config, root, own)}" for flag, root in given.items() if root]


def folder_above(config: pytest.Config, root: str, own: str) -> Path:
    """Return the folder that contains the folder of a case's files.

    ``root`` is relative to the run's first folder: a test may have changed the working directory.
    ``own`` is a subfolder for a case that shares its identifier, else ''.
    """
    return config.invocation_params.dir / user_path(root) / own


def unknown_arguments(config: pytest.Config, known: Sequence[str]) -> List[str]:
    """Return the given measuring options that are not ``known`` to another revision."""
    unknown = [_flag(dest) for dest in MEASURING_OPTIONS if dest not in known]
    flags = all_spellings(config, unknown)
    return [given for given in typed_measuring_arguments(config) if given.split("=", 1)[0] in flags]


def arguments_of(
    config: pytest.Config, nodeid: str, named: Mapping[str, Path], root: Optional[Path] = None
) -> List[str]:
    """Return the arguments that make another pytest run the case with this node id.

    ``root`` is the project's folder there, if it differs. For a file outside the project, the
    arguments include the project's conftest.py, which pytest would not find.
    """
    root = config.rootpath if root is None else root
    name, separator, rest = nodeid.partition("::")
    path = named.get(name)
    if path is not None and config.rootpath not in path.parents:
        return [str(root / "conftest.py"), f"{path}{separator}{rest}"]
    # As one Path, `http://` in a parameter's identifier would become `http:/`.
    return [f"{root / name}{separator}{rest}"]


def typed_measuring_arguments(config: pytest.Config) -> List[str]:
    """Return the arguments of the command line that decide what a case does, as given."""
    valued = [_flag(dest) for dest in MEASURING_OPTIONS if dest not in MEASURING_FLAGS]
    options = all_spellings(config, [*valued, *INSPECTION_OPTIONS])
    flags = all_spellings(config, ["--zero-values", *map(_flag, MEASURING_FLAGS)])
    return list(map("=".join, options_among(typed_arguments(config), options, flags)))


def passed_arguments(config: pytest.Config) -> List[str]:
    """Return the arguments of PYTEST_ADDOPTS and of the command line, in pytest's order."""
    return [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *typed_arguments(config)]


def all_arguments(config: pytest.Config) -> List[str]:
    """Return the arguments of settings, PYTEST_ADDOPTS and the command line."""
    return [*config.getini("addopts"), *passed_arguments(config)]


def benchmark_arguments(config: pytest.Config) -> List[str]:
    """Return the arguments, from any source, that change how pytest-benchmark measures."""
    arguments = all_arguments(config)
    return list(map("=".join, options_among(arguments, BENCHMARK_OPTIONS, BENCHMARK_FLAGS)))


def _flag(dest: str) -> str:
    """Return the flag of an option in MEASURING_OPTIONS."""
    return "--set" if dest == "case_options" else "--" + dest.replace("_", "-")


def _as_text(dest: str, value: Any) -> str:
    return f"{value:.6%}" if dest == "target_precision" else str(value)
