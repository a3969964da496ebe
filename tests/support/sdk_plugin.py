"""A pytest plugin (`-p`) that installs the stand-ins for the SDK in a process of the suite.

Processes that a run starts get its `-p` arguments, and so the stand-ins as well.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
from collections import Counter
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any, List, Optional

import pytest

from tests.doubles import popart, poptorch, tensorflow_ipu
from tests.support.sdk_variables import ATTACH_ERROR, CRASH, LOG

ran: List[str] = []


class Later(MetaPathFinder, Loader):
    """Hides TensorFlow, which the suite server has imported, until the suite imports it."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        return importlib.machinery.ModuleSpec(name, self) if name == "tensorflow" else None

    def create_module(self, spec: Any) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it has run already."""


if "tensorflow" in sys.modules:
    sys.meta_path.insert(0, Later(sys.modules.pop("tensorflow")))

sys.modules.update(tensorflow_ipu.modules())
for name, module in (("poptorch", poptorch.as_module()), ("popart", popart.as_module())):
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = module
tensorflow_ipu.recorder.attach_error = os.environ.get(ATTACH_ERROR, "")


def pytest_configure(config: pytest.Config) -> None:
    """Pretend that the SDK is installed, because stand-ins lack the folder that proves it."""
    from ipubench.fixtures.devices import ipu

    ipu.frameworks = lambda: ["poptorch", "popart", "tensorflow"]


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Record that this process calls the bench function of a case."""
    ran.append(pyfuncitem.nodeid)
    if os.environ.get(CRASH, "nothing") in pyfuncitem.nodeid:
        os._exit(9)


def pytest_unconfigure() -> None:
    """Write what this process has done."""
    if LOG in os.environ and ran:
        names = [
            name for one in (tensorflow_ipu, popart, poptorch) for name in one.recorder.names()
        ]
        line = {
            "pid": os.getpid(),
            "ran": ran,
            "flags": tensorflow_ipu.recorder.flags,
            "calls": Counter(names),
            "attached": sum(device.isAttached for device in popart.recorder.devices),
        }
        with open(os.environ[LOG], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
