"""The stand-in for PopART offers nothing that the SDK does not.

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

from tests.doubles import popart as double
from tests.doubles.popart import builder
from tests.support.sdk_api import description, members, parameters, public, source


@pytest.fixture(scope="module")
def popart() -> Dict[str, Any]:
    """Functions and classes of the SDK's module popart."""
    found: Dict[str, Any] = description("popart.json")["modules"]["popart"]
    return found


def differences(offered: ModuleType, popart: Dict[str, Any]) -> List[str]:
    """Return what ``offered`` has that PopART has not, or has otherwise; empty: all agrees."""
    found: List[str] = []
    for name, thing in public(vars(offered)):
        if inspect.isclass(thing) and name in popart["classes"]:
            found += _class_differences(name, thing, popart)
        elif inspect.isfunction(thing) and name in popart["functions"]:
            found += _signature_differences(name, thing, [popart["functions"][name]["params"]])
        else:
            found.append(f"{name}: PopART has no such {type(thing).__name__}")
    return found


def _class_differences(name: str, cls: type, popart: Dict[str, Any]) -> List[str]:
    described = popart["classes"][name]
    if issubclass(cls, enum.Enum):
        unknown = {member.name for member in cls} - set(described["enum_values"])
        return [f"{name}.{member}: PopART has no such member" for member in sorted(unknown)]
    if issubclass(cls, Exception):
        return []
    found: List[str] = []
    if described["init"] is not None:
        signatures = described.get("init_overloads") or [described["init"]]
        found += _signature_differences(name, cls.__init__, signatures)
    for member, thing in public(members(cls)):
        where = f"{name}.{member}"
        if isinstance(thing, property):
            found += _property_differences(where, thing, described["properties"], popart)
        elif member in described["methods"]:
            method = described["methods"][member]
            signatures = [o["params"] for o in method.get("overloads", ())] or [method["params"]]
            found += _signature_differences(where, thing, signatures)
        else:
            found.append(f"{where}: PopART has no such method")
    return found


def _property_differences(
    where: str, thing: property, described: Dict[str, Any], popart: Dict[str, Any]
) -> List[str]:
    owner, _, name = where.rpartition(".")
    if name not in described:
        return [f"{where}: PopART has no such property"]
    if thing.fset is None:
        opset = name[0].upper() + name[1:]
        part = getattr(builder, f"_{opset}", None)
        # An operator set, as AiOnnxOpset11, is reached through a builder's property.
        return _class_differences(opset, part, popart) if part else []
    if not described[name]["settable"]:
        return [f"{where}: PopART's cannot be set"]
    ours = _qualified(source(getattr(getattr(double, owner)(), name)))
    real = described[name].get("default")  # not every default is described
    return [] if real in (None, ours) else [f"{where}: {ours} is not PopART's default, {real}"]


def _signature_differences(where: str, function: Any, signatures: List[Any]) -> List[str]:
    """Compare names, order, kinds and defaults with each overload of PopART's.

    Parameters at the end that have defaults may be missing here. None: the binding names none.
    """
    ours = [(name, kind, _qualified(default)) for name, kind, default in parameters(function)]
    for params in (signature or [] for signature in signatures):
        real = [(p["name"], p["kind"], _normal(p["default"])) for p in params]
        left_out = params[len(ours) :]
        if real[: len(ours)] == ours and all(p["has_default"] for p in left_out):
            return []
    return [f"{where}: {ours} is none of PopART's {signatures}"]


def _qualified(default: Any) -> Any:
    """Return a default's source text as PopART's bindings are described: members of popart."""
    if default is None:
        return None
    kind = default.partition(".")[0]
    if isinstance(getattr(double, kind, None), enum.EnumMeta):
        return f"popart.{default}"
    # What the stand-in does not offer stands there as text.
    return default[1:-1] if default.startswith("'popart.") else default


def _normal(default: Any) -> Any:
    """Return a described default with Python's own quotes."""
    return default if default is None else default.replace('"', "'")


def test_every_name_of_the_stand_in_is_the_sdks(popart: Dict[str, Any]) -> None:
    assert differences(double.as_module(), popart) == []


def test_the_walk_reaches_everything_that_is_offered(popart: Dict[str, Any]) -> None:
    empty: Dict[str, Any] = {"functions": {}, "classes": {}}
    named = {text.split(":")[0] for text in differences(double.as_module(), empty)}
    assert named == set(double.__all__)

    bare = json.loads(json.dumps(popart))
    for cls in bare["classes"].values():
        cls["methods"] = {}
    named = {text.split(":")[0] for text in differences(double.as_module(), bare)}
    assert {
        "AiGraphcoreOpset1.nllloss",
        "AiOnnxOpset11.softmax",
        "Builder.addInputTensor",
        "DeviceManager.acquireDeviceById",
        "InferenceSession.prepareDevice",
        "PyStepIO.enableRuntimeAsserts",
        "TrainingSession.weightsFromHost",
    } <= named
    for cls in bare["classes"].values():
        cls["properties"] = {}
    named = {text.split(":")[0] for text in differences(double.as_module(), bare)}
    assert {"SessionOptions.convolutionOptions", "DeviceInfo.numIpus"} <= named


class _Session:
    def __init__(self, fnModel: Any, deviceInfo: Any) -> None: ...

    def run(self, stepio: Any, debugName: str = "step") -> None: ...

    def getThroughput(self) -> None: ...

    @property
    def latency(self) -> float:
        return 0.0


class _Mode(enum.Enum):
    Zeros = 0
    Ones = 1


class _Options:
    def __init__(self) -> None: ...

    @property
    def numberOfIpus(self) -> int:
        return 1


def _version(verbose: bool) -> None: ...


@pytest.mark.parametrize(
    ("name", "thing", "expected"),
    [
        ("runModel", _version, ["runModel"]),
        ("VERSION", "3.4", ["VERSION"]),
        ("versionString", _version, ["versionString"]),
        ("SyntheticDataMode", _Mode, ["SyntheticDataMode.Ones"]),
        ("SessionOptions", _Options, ["SessionOptions.numberOfIpus"]),
        (
            "InferenceSession",
            _Session,
            [
                "InferenceSession",
                "InferenceSession.getThroughput",
                "InferenceSession.latency",
                "InferenceSession.run",
            ],
        ),
    ],
)
def test_a_name_that_the_sdk_lacks_is_found(
    popart: Dict[str, Any], name: str, thing: Any, expected: List[str]
) -> None:
    module = ModuleType("popart")
    setattr(module, name, thing)
    assert [text.split(":")[0] for text in differences(module, popart)] == expected
