"""Refuses command lines that contradict themselves, or that pytest would misread."""

from __future__ import annotations

import os

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.command_line import options_of, value_of
from ipubench.fixtures.instances.hosts import OPTION, launcher_arguments, named_hosts
from ipubench.fixtures.machine.files import check_folder_writable, user_path
from ipubench.plugins.command_line.arguments import (
    INSPECTION_OPTIONS,
    PATH_OPTIONS,
    all_spellings,
    passed_arguments,
    typed_arguments,
)
from ipubench.plugins.command_line.role import Role

#: Options of pytest that list something and run no test.
OF_PYTEST = (
    *("--collect-only", "--collectonly", "--co", "--cache-show", "--markers", "--help", "-h"),
    *("--fixtures", "--funcargs", "--fixtures-per-test"),
)


def refuse_contradictions(config: pytest.Config, role: Role) -> None:
    """Refuse contradictory options and empty values."""
    if not hasattr(config.option, "benchmark_json"):
        raise pytest.UsageError(
            "ipubench builds on pytest-benchmark, which is not loaded: leave out -p no:benchmark, "
            "or with PYTEST_DISABLE_PLUGIN_AUTOLOAD add -p pytest_benchmark.plugin"
        )
    _check_spelling(config)
    for flag in (*PATH_OPTIONS, "--against-setup"):
        value = value_of(config, flag)
        if value is not None and not value:
            raise pytest.UsageError(f"{flag}= is empty; give a value")
    if options_of(config).describe and options_of(config).dry_run:
        raise pytest.UsageError("--describe and --dry-run list different things; give one")
    _check_comparison(config, role)
    _check_hosts(config)
    option = options_of(config)
    kept = {"--baseline": option.baseline, "--baseline-save": option.baseline_save}
    given = [flag for flag, name in kept.items() if name]
    if option.profile is not None and given:
        raise pytest.UsageError(f"{given[0]}: --profile times nothing; leave one of them out")
    if role not in (Role.LISTING, Role.WORKER):
        _check_folders(config)


def _check_comparison(config: pytest.Config, role: Role) -> None:
    """Refuse to judge or explain without anything to compare with."""
    option = options_of(config)
    wanting = {
        "--gate": option.gate is not None,
        "--gate-policy": option.gate_policy is not None,
        "--profile-on-regression": option.profile_on_regression and role.measures,
    }
    given = [flag for flag, wanted in wanting.items() if wanted]
    typed = passed_arguments(config)
    lists = {*OF_PYTEST, *all_spellings(config, ("--describe", "--dry-run"))}
    found = sorted(lists.intersection(config.getini("addopts")))
    if found and option.gate is not None and not lists.intersection(typed):
        raise pytest.UsageError(
            f"--gate compares, but the settings (addopts) only list something: take {found[0]} out "
            "of them"
        )
    if given and option.baseline is None and option.against is None:
        raise pytest.UsageError(
            f"{given[0]} needs something to compare with: add --baseline=NAME, --against=PYTHON, "
            "--against=git:REV or --against=pip:PACKAGE==VERSION"
        )


def _check_folders(config: pytest.Config) -> None:
    """Refuse folders that cannot be written, before any case is built."""
    for flag in INSPECTION_OPTIONS:
        root = value_of(config, flag)
        try:
            if root is not None:
                folder = user_path(root)
                folder.mkdir(parents=True, exist_ok=True)
                check_folder_writable(folder)
        except OSError as error:
            raise pytest.UsageError(
                f"{flag}={root}: nothing can be written there ({error.strerror or error}); name "
                "another folder"
            ) from None


def _check_hosts(config: pytest.Config) -> None:
    """Refuse options that name files on this host, if --launcher-args names other hosts."""
    option = options_of(config)
    try:
        hosts = named_hosts(launcher_arguments(option.launcher_args))
    except CaseError as error:
        raise pytest.UsageError(str(error)) from None
    refused = {
        "--profile": option.profile is not None,
        "--save-graph": option.save_graph is not None,
        "--against=git:REV": str(option.against or "").startswith("git:"),
        "--against=pip:...": str(option.against or "").startswith("pip:"),
    }
    given = [flag for flag, wanted in refused.items() if wanted and hosts]
    if given:
        raise pytest.UsageError(
            f"{given[0]}: its files are on this host, and {OPTION} names others; leave out one"
        )


def _check_spelling(config: pytest.Config) -> None:
    """Refuse `--option PATH`, because pytest takes the PATH for a test path.

    pytest chooses its root folder before it has our options, so such a path changes the root. If no
    other argument is a path in the project, pytest does not load our conftest.py, and reports
    unrecognized arguments instead.
    """
    here = config.invocation_params.dir
    if config.inipath is not None and config.inipath.parent in (here, *here.parents):
        return
    arguments, options = typed_arguments(config), all_spellings(config, PATH_OPTIONS)
    for option, value in zip(arguments, arguments[1:]):
        if option in options and os.path.exists(value):
            raise pytest.UsageError(
                f"pytest takes the word after {option} for a test path; write {option}={value}"
            )
