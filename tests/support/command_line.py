"""Command lines for stand-ins of pytest's configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from _pytest.config.argparsing import Parser

from ipubench.fixtures.command_line import NAMES, PREFIX
from ipubench.plugins.command_line.registration import add_options


def given_options(**given: Any) -> SimpleNamespace:
    """Return a run's ``config.option`` with these values and defaults for the others."""
    parser, found = Parser(_ispytest=True), SimpleNamespace(collectonly=False)
    config: Any = SimpleNamespace(
        option=found, pluginmanager=SimpleNamespace(get_plugins=lambda: [])
    )
    add_options(parser, config)
    vars(found).update(vars(parser.parse([])))
    prefixed = {PREFIX + name if name in NAMES else name: value for name, value in given.items()}
    vars(found).update(prefixed)
    return found
