"""The words of a command line: what kind of session they make, and those for another process."""

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
    "--results-dir",
    "--baseline",
    "--baseline-save",
    "--profile",
    "--save-graph",
    "--gate-policy",
    "--against",
    "--against-python",
    "--hosts",
    "--report",
)
# Options that decide what a case measures and how; a fresh process of a case gets the same ones.
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
    "launcher_args",
)
# Options that name a folder into which each case puts something.
LOOKING_INSIDE = ("--profile", "--save-graph")
# Options of pytest-benchmark that say how it measures, with a value and without one.
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

#: How our options begin in their long spelling, which nobody else has.
LONG = "--ipubench-"

#: Our part of xdist's workerinput and workeroutput, and of a report's user_properties.
PART = "ipubench"


def typed_words(config: pytest.Config) -> List[str]:
    """Return the words of the command line."""
    return list(map(str, config.invocation_params.args))


def spellings(config: pytest.Config, flag: str) -> List[str]:
    """Return how an option of ours can be written in this run; the last is what people write."""
    long = LONG + flag[2:]
    return [long] if flag in options_of(config).given_up else [long, flag]


def all_spellings(config: pytest.Config, flags: Sequence[str]) -> List[str]:
    """Return how several options of ours can be written."""
    return [written for flag in flags for written in spellings(config, flag)]


def options_among(
    words: Sequence[str], options: Sequence[str], flags: Sequence[str] = ()
) -> List[List[str]]:
    """Return the words that give ``options``, each with the word that is its value, or ``flags``.

    What is both has a value that may be missing.
    """
    attached = tuple(name if len(name) == 2 else f"{name}=" for name in options)
    found: List[List[str]] = []
    for word, following in zip(words, [*words[1:], ""]):
        is_flag = word in flags
        if word in options and not (is_flag and following[:1] in ("", "-")):
            found.append([word, following])
        elif is_flag or word.startswith(attached):
            found.append([word])
    return found


def only_lists(config: pytest.Config) -> bool:
    """Whether this session lists cases and runs none."""
    option = options_of(config)
    return bool(config.option.collectonly or option.describe or option.dry_run)


def measures(config: pytest.Config) -> bool:
    """Whether this session measures: it runs cases, and is no instance that another one directs."""
    return not only_lists(config) and options_of(config).instance is None


def is_worker(config: pytest.Config) -> bool:
    """Whether this session is a worker of pytest-xdist; its controller has the whole run."""
    return hasattr(config, "workerinput")


def worker_count(config: pytest.Config) -> int:
    """Return how many workers measure this run: 1 without pytest-xdist."""
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def workers_in_turns(config: pytest.Config) -> int:
    """Return how many workers of a run measure one case at a time, this one among them."""
    given = getattr(config, "workerinput", {}).get(PART, {})
    return worker_count(config) if given.get("in_turns") else 1


def only_tests(config: pytest.Config) -> bool:
    """Whether the paths of the command line lead to our own tests, which time nothing."""
    tests = IMPORT_ROOT / "tests"
    paths = [config.invocation_params.dir / word.split("::")[0] for word in config.args]
    return all(tests in (path, *path.parents) for path in paths)


def measuring_arguments(
    config: pytest.Config, known: Sequence[str] = MEASURING_OPTIONS, prefix: str = LONG
) -> List[str]:
    """Return the command-line words that make another process measure as this one does.

    ``known``: the options that it knows, where it runs another revision; ``prefix``: how they begin
    there.
    """
    words: List[str] = []
    for dest in MEASURING_OPTIONS:
        value = getattr(options_of(config), dest) if dest in known else None
        values = value if isinstance(value, list) else [value]
        name = prefix + _flag(dest)[2:]
        words += [f"{name}={_as_word(dest, item)}" for item in values if item is not None]
    return words


def looking_inside_arguments(config: pytest.Config, own: str) -> List[str]:
    """Return the options that have a case leave something; their folders as absolute paths.

    ``own`` is as for :func:`folder_above`.
    """
    option = options_of(config)
    given = {f"{LONG}profile": option.profile, f"{LONG}save-graph": option.save_graph}
    return [f"{flag}={folder_above(config, root, own)}" for flag, root in given.items() if root]


def folder_above(config: pytest.Config, root: str, own: str) -> Path:
    """Return where the folder of a case is that it leaves something in.

    ``root`` is seen from where the run began: its test may have changed the working directory.
    """
    return config.invocation_params.dir / user_path(root) / own


def unknown_arguments(config: pytest.Config, known: Sequence[str]) -> List[str]:
    """Return the measuring options that were given and are none of those ``known``."""
    unknown = [_flag(dest) for dest in MEASURING_OPTIONS if dest not in known]
    flags = all_spellings(config, unknown)
    return [word for word in given_arguments(config) if word.split("=", 1)[0] in flags]


def arguments_of(
    config: pytest.Config, nodeid: str, named: Mapping[str, Path], root: Optional[Path] = None
) -> List[str]:
    """Return the words by which another pytest runs the case with this node id.

    ``root`` is the project's folder, where it is not this run's. A file outside the project does
    not lead to the project's conftest.py, which is named as well.
    """
    root = config.rootpath if root is None else root
    name, separator, rest = nodeid.partition("::")
    path = named.get(name)
    if path is not None and config.rootpath not in path.parents:
        return [str(root / "conftest.py"), f"{path}{separator}{rest}"]
    # Of a path as a whole, `http://` in a parameter's identifier would become `http:/`.
    return [f"{root / name}{separator}{rest}"]


def given_arguments(config: pytest.Config) -> List[str]:
    """Return those words of the command line that decide what a case does, as given."""
    options = all_spellings(config, [*map(_flag, MEASURING_OPTIONS), *LOOKING_INSIDE])
    flags = spellings(config, "--zero-values")
    return list(map("=".join, options_among(typed_words(config), options, flags)))


def given_words(config: pytest.Config) -> List[str]:
    """Return the words of the environment and of the command line, in pytest's order."""
    return [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *typed_words(config)]


def all_words(config: pytest.Config) -> List[str]:
    """Return the words of the settings, of the environment and of the command line."""
    return [*config.getini("addopts"), *given_words(config)]


def benchmark_arguments(config: pytest.Config) -> List[str]:
    """Return the words that tell pytest-benchmark how to measure, wherever they are written."""
    words = all_words(config)
    return list(map("=".join, options_among(words, BENCHMARK_OPTIONS, BENCHMARK_FLAGS)))


def _flag(dest: str) -> str:
    """Return how an option of MEASURING_OPTIONS is written."""
    return "--set" if dest == "case_options" else "--" + dest.replace("_", "-")


def _as_word(dest: str, value: Any) -> str:
    return f"{value:.6%}" if dest == "target_precision" else str(value)
