"""No text leaves a session with a secret: what pytest writes to a terminal, and what it reports.

A report becomes JUnit XML, and what other plugins write. Our own files are masked when they are
written (plugins/record/files.py).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
from typing import Any, Dict, Generator, Optional

import pytest
from _pytest._io import TerminalWriter

from ipubench.fixtures.case.masking import (
    MASK,
    mask_output,
    mask_text,
    names_secret,
    remember,
    remember_environment,
    secrets_in,
)
from ipubench.fixtures.case.options import secrets_of
from ipubench.plugins.command_line.words import typed_words
from ipubench.plugins.record.files import storable
from ipubench.plugins.selection.selected import case_of

#: The parts of a report that hold texts.
SHOWN = ("longrepr", "sections", "wasxfail", "user_properties", "context")


def mask_terminals() -> None:
    """Have all that pytest writes to a terminal masked: its tables, warnings and usage errors."""
    write: Any = TerminalWriter.write
    if hasattr(write, "__wrapped__"):
        return

    @functools.wraps(write)
    def masked_write(self: TerminalWriter, msg: str, **markup: bool) -> None:
        write(self, mask_output(msg), **markup)

    TerminalWriter.write = masked_write  # type: ignore[method-assign]


mask_terminals()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Know the secrets on the command line."""
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    words = [*added, *typed_words(config)]
    remember(secrets_in([*words, *shlex.split(config.option.against_setup or "")]))


def pytest_make_parametrize_id(val: object, argname: str) -> Optional[str]:
    """Name a test by the mask of a parameter that is a secret; pytest numbers several."""
    if not isinstance(val, str) or val.isalpha():  # a word is no secret in the name of a test
        return None
    if names_secret(argname, val):
        remember([val])
        return MASK
    shown = mask_text(val)
    return None if shown == val else shown.encode("unicode_escape").decode()


# Inside of those that read the report.
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Know the secrets of a case, and those that a test has put into the environment."""
    case = case_of(item)
    remember_environment()
    if case is not None:
        remember(secrets_of(case.config))
    mask_report((yield).get_result())


def mask_report(report: Any) -> None:
    """Take the secrets out of all that a report shows."""
    for name in SHOWN:
        if hasattr(report, name):
            setattr(report, name, _masked(getattr(report, name)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: Any) -> None:
    """Mask what others have added: a subtest its output, an expected failure its reason."""
    mask_report(report)


pytest_collectreport = pytest_runtest_logreport


@pytest.hookimpl(trylast=True, optionalhook=True)
def pytest_benchmark_update_json(output_json: Dict[str, Any]) -> None:
    """Take them out of pytest-benchmark's own file."""
    output_json.update(storable(output_json))


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(_masked, value))
    if isinstance(value, dict):
        return {key: _masked(inner) for key, inner in value.items()}
    if type(value).__module__.startswith("_pytest.") and hasattr(value, "__dict__"):
        for name, inner in vars(value).items():
            setattr(value, name, _masked(inner))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (one.name for one in dataclasses.fields(value) if one.init)
        return dataclasses.replace(value, **{name: _masked(getattr(value, name)) for name in names})
    return value
