"""The stand-in for PopTorch offers nothing that the SDK does not.

The SDK's API is read from a description made from its published sources. A call of the runtime
that the stand-in accepts and records is thereby one that the SDK accepts.
"""

from __future__ import annotations

import enum
import inspect
import json
from types import ModuleType
from typing import Any, Dict, List

import pytest

from tests.doubles import poptorch as double
from tests.doubles.poptorch_options import POPART_OPTIONS
from tests.support.sdk_api import described_parameters, description, members, parameters, public


@pytest.fixture(scope="module")
def modules() -> Dict[str, Any]:
    """Module name -> functions and classes of the SDK's PopTorch."""
    described: Dict[str, Any] = description("poptorch.json")["modules"]
    return described


def differences(offered: ModuleType, modules: Dict[str, Any]) -> List[str]:
    """Return what ``offered`` has that PopTorch has not, or has otherwise; empty: all agrees."""
    functions = modules["poptorch"]["functions"]
    classes = modules["poptorch"]["classes"]
    found: List[str] = []
    for name, thing in public(vars(offered)):
        if inspect.isclass(thing) and name in classes:
            found += _class_differences(name, thing, classes[name], modules)
        elif inspect.isfunction(thing) and name in functions:
            found += _parameter_differences(name, thing, functions[name]["params"])
        else:
            found.append(f"{name}: PopTorch has no such {type(thing).__name__}")
    return found


def _class_differences(
    path: str, cls: type, described: Dict[str, Any], modules: Dict[str, Any]
) -> List[str]:
    if issubclass(cls, enum.Enum):
        real = dict(described.get("enum_numbers", {}))
        ours = {member.name: repr(member.value) for member in cls}
        wrong = sorted(set(ours.items()) - set(real.items()))
        return [f"{path}.{name}: PopTorch has no such member = {value}" for name, value in wrong]
    found: List[str] = []
    if "__init__" in vars(cls) and described["init"] is not None:
        found += _parameter_differences(path, cls.__init__, described["init"])
    methods = _methods(described, modules)
    parts = described.get("sub_objects", {})
    for name, thing in public(members(cls), keep=("__call__", *parts)):
        where = f"{path}.{name}"
        if isinstance(thing, property):
            if name in parts:
                found += _part_differences(where, cls, name, parts[name], modules)
            elif name not in described["properties"]:
                found.append(f"{where}: PopTorch has no such property")
        elif name in methods:
            found += _parameter_differences(where, thing, methods[name]["params"])
        else:
            found.append(f"{where}: PopTorch has no such method")
    return found


def _part_differences(
    path: str, owner: type, name: str, target: str, modules: Dict[str, Any]
) -> List[str]:
    """Check the object behind a property such as ``Options.Precision``."""
    module, _, cls = target.rpartition(".")
    part = type(getattr(owner(), name))
    return _class_differences(path, part, modules[module]["classes"][cls], modules)


def _methods(described: Dict[str, Any], modules: Dict[str, Any]) -> Dict[str, Any]:
    """Return the methods of a class with those of its bases, as far as these are described."""
    methods: Dict[str, Any] = {}
    for base in described["bases"]:
        name = base.rpartition(".")[2]
        for module in modules.values():
            if name in module["classes"]:
                methods.update(_methods(module["classes"][name], modules))
                break
    methods.update(described["methods"])
    return methods


def _parameter_differences(path: str, function: Any, described: Any) -> List[str]:
    """Compare names, order, kinds and defaults; None: the SDK's binding names no parameter."""
    ours = parameters(function)
    if described is None:
        return [f"{path}: PopTorch does not describe its parameters"] if ours else []
    real = described_parameters(described)
    return [] if ours == real else [f"{path}: {ours} is not PopTorch's {real}"]


def test_every_name_of_the_stand_in_is_the_sdks(modules: Dict[str, Any]) -> None:
    assert differences(double.as_module(), modules) == []


def test_the_options_of_popart_that_are_set_by_name_are_popart_s() -> None:
    popart = description("popart.json")["modules"]["popart"]["classes"]["SessionOptions"]
    assert set(POPART_OPTIONS) <= set(popart["properties"])


def test_the_walk_reaches_everything_that_is_offered(modules: Dict[str, Any]) -> None:
    empty: Dict[str, Any] = {"functions": {}, "classes": {}}
    named = {text.split(":")[0] for text in differences(double.as_module(), {"poptorch": empty})}
    assert named == set(double.OFFERED)

    bare = json.loads(json.dumps(modules))
    for module in bare.values():
        for cls in module["classes"].values():
            cls.update(methods={}, bases=[])
    named = {text.split(":")[0] for text in differences(double.as_module(), bare)}
    assert {
        "Options.Precision.setPartialsType",
        "Options._Popart.set",
        "Options.enableSyntheticData",
        "PoplarExecutor.__call__",
        "PoplarExecutor.getLatency",
    } <= named


class _Executor:
    def __init__(self, model: Any, options: Any) -> None: ...

    def getLatency(self, unit: str = "s") -> None: ...

    def getThroughput(self) -> None: ...

    @property
    def latency(self) -> float:
        return 0.0


class _Mode(enum.IntEnum):
    All = 3
    Last = 9


def _begin_block(layer_to_call: Any, ipu_id: Any = None, user_id: Any = None) -> None: ...


def _inference_model(model: Any, options: Any = 0) -> None: ...


@pytest.mark.parametrize(
    ("name", "thing", "expected"),
    [
        ("runModel", _begin_block, ["runModel"]),
        ("VERSION", "3.4", ["VERSION"]),
        ("BeginBlock", _begin_block, ["BeginBlock"]),
        ("inferenceModel", _inference_model, ["inferenceModel"]),
        ("OutputMode", _Mode, ["OutputMode.All", "OutputMode.Last"]),
        (
            "PoplarExecutor",
            _Executor,
            [
                "PoplarExecutor",
                "PoplarExecutor.getLatency",
                "PoplarExecutor.getThroughput",
                "PoplarExecutor.latency",
            ],
        ),
    ],
)
def test_a_name_that_the_sdk_lacks_is_found(
    modules: Dict[str, Any], name: str, thing: Any, expected: List[str]
) -> None:
    module = ModuleType("poptorch")
    setattr(module, name, thing)
    assert [text.split(":")[0] for text in differences(module, modules)] == expected
