"""Masks secrets in what pytest prints and reports.

Reports also reach JUnit XML and other plugins' files. Our own files are masked when they are
written (plugins/record/files.py).
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from typing import Any, Dict

import pytest
from _pytest._io import TerminalWriter

from ipubench.fixtures.case.masking import (
    mask_output,
    masked,
    remember,
    remember_environment,
    secrets_in,
    secrets_under,
)
from ipubench.fixtures.case.options import secrets_of
from ipubench.fixtures.case.untrusted import printable_lines
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.arguments import passed_arguments
from ipubench.plugins.record.files import storable
from ipubench.plugins.selection.selected import case_of

#: How pytest begins the message of a usage error, which may quote a file.
USAGE_ERROR = "ERROR: "
#: The attributes of a report that contain text.
SHOWN = ("longrepr", "sections", "wasxfail", "user_properties", "context")


def mask_terminals() -> None:
    """Mask everything that pytest writes to a terminal: tables, warnings and usage errors."""
    write: Any = TerminalWriter.write
    if hasattr(write, "__wrapped__"):
        return

    @functools.wraps(write)
    def masked_write(self: TerminalWriter, msg: str, **markup: bool) -> None:
        if msg.startswith(USAGE_ERROR):
            msg = "\n".join(printable_lines(msg))
        write(self, mask_output(msg), **markup)

    TerminalWriter.write = masked_write  # type: ignore[method-assign]


mask_terminals()


def remember_command_line(config: pytest.Config) -> None:
    """Remember the secrets on the command line."""
    setup = shlex.split(options_of(config).against_setup or "")
    remember(secrets_in([*passed_arguments(config), *setup]))


def mask_report_of(item: pytest.Item, report: Any) -> None:
    """Mask a report, including secrets of its case and of variables that its test has set."""
    case = case_of(item)
    remember_environment()
    if case is not None:
        remember(secrets_of(case.config))
    mask_report(report)


def mask_report(report: Any) -> None:
    """Mask the secrets in everything that a report shows."""
    remember(secrets_under(getattr(report, "user_properties", ())))
    for name in SHOWN:
        if hasattr(report, name):
            setattr(report, name, _masked(getattr(report, name)))


def mask_json(output_json: Dict[str, Any]) -> None:
    """Mask the secrets in pytest-benchmark's own file."""
    output_json.update(storable(output_json))


def _masked(value: Any) -> Any:
    if type(value) in (str, list, tuple, dict):
        return masked(value, other=_masked)
    if type(value).__module__.startswith("_pytest.") and hasattr(value, "__dict__"):
        for name, attribute in vars(value).items():
            setattr(value, name, _masked(attribute))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (one.name for one in dataclasses.fields(value) if one.init)
        return dataclasses.replace(value, **{name: _masked(getattr(value, name)) for name in names})
    return value
