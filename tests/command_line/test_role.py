"""The role of a process follows from its command line and its environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict

import pytest

from ipubench.fixtures.devices import HOLDER_VARIABLE
from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.plugins.command_line.role import Role, role_of
from tests.support.command_line import given_options

OWN_TESTS = str(IMPORT_ROOT / "tests" / "run")
WORKER: Dict[str, Any] = {"workerinput": {}}


@pytest.mark.parametrize(
    ("option", "others", "borrows", "role"),
    [
        ({}, {}, False, Role.MAIN),
        ({}, {}, True, Role.CHILD),
        ({"instance": "/socket"}, {}, True, Role.INSTANCE),
        ({"dist": "load", "tx": ["popen"]}, {}, False, Role.CONTROLLER),
        ({"tx": ["2*ssh=there"]}, {}, False, Role.CONTROLLER),
        # pytest-xdist distributes our own tests without us.
        ({"dist": "load", "tx": ["popen"]}, {"args": [OWN_TESTS]}, False, Role.MAIN),
        ({}, WORKER, False, Role.WORKER),
        # A worker uses its controller's device.
        ({}, WORKER, True, Role.WORKER),
        ({"collectonly": True}, {}, False, Role.LISTING),
        ({"describe": True}, {}, False, Role.LISTING),
        ({"dry_run": True, "dist": "load", "tx": ["popen"]}, {}, False, Role.LISTING),
        ({"collectonly": True}, {}, True, Role.LISTING),
    ],
)
def test_the_role_of_a_process(
    option: Dict[str, Any],
    others: Dict[str, Any],
    borrows: bool,
    role: Role,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(HOLDER_VARIABLE, raising=False)
    if borrows:
        monkeypatch.setenv(HOLDER_VARIABLE, "1")
    config: Any = SimpleNamespace(
        option=given_options(**option),
        getoption=lambda name, default: option.get(name, default),
        invocation_params=SimpleNamespace(dir=IMPORT_ROOT),
        **{"args": ["elsewhere"], **others},
    )
    assert role_of(config) is role
