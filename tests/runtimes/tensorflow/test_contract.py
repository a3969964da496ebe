"""The stand-in for the SDK's TensorFlow offers nothing that the SDK does not.

The SDK's API comes from a description of its published sources. The runtime runs on the stand-in,
so the SDK accepts every call that the stand-in accepts and records.
"""

from __future__ import annotations

import enum
import inspect
import re
from types import ModuleType
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.poplar.poplar_options import ASKED_BY, case_flags
from tests.doubles import tensorflow_ipu as double
from tests.doubles.tensorflow_ipu import config as double_config
from tests.support.sdk_api import described_parameters, description, parameters, public, source

ROOT = "tensorflow.python.ipu"
# Members of a class's TensorFlow base class, which the SDK does not describe.
INHERITED = {"distribute_lib.StrategyV1": ("scope", "run", "reduce", "extended")}


@pytest.fixture(scope="module")
def api() -> Dict[str, Any]:
    """The description of the SDK's TensorFlow and its addons."""
    return description("tensorflow_ipu.json")


def differences(name: str, offered: ModuleType, api: Dict[str, Any]) -> List[str]:
    """Return how module ``name`` differs from the SDK; empty if it agrees."""
    described = api["modules"].get(api["module_aliases"].get(name, name))
    if described is None:
        return [f"{name}: the SDK has no such module"]
    found: List[str] = []
    for thing_name, thing in public(vars(offered)):
        where = f"{name}.{thing_name}"
        if inspect.isclass(thing) and thing_name in described["classes"]:
            found += _class_differences(where, thing, described["classes"][thing_name])
        elif inspect.isfunction(thing) and thing_name in described["functions"]:
            params = described["functions"][thing_name]["params"]
            found += _parameter_differences(where, thing, params)
        elif inspect.ismodule(thing) and thing_name in described.get("submodules", ()):
            found += differences(where, thing, api)
        else:
            found.append(f"{where}: the SDK has no such {type(thing).__name__}")
    return found


def _class_differences(path: str, cls: type, described: Dict[str, Any]) -> List[str]:
    if issubclass(cls, enum.Enum):
        ours, real = [member.name for member in cls], described["enum_values"]
        return [] if ours == real else [f"{path}: {ours} is not the SDK's {real}"]
    found: List[str] = []
    if described["init"] is not None:
        found += _parameter_differences(path, cls.__init__, described["init"])
    inherited = {name for base in described["bases"] for name in INHERITED.get(base, ())}
    for name, thing in public(vars(cls)):
        where = f"{path}.{name}"
        if isinstance(thing, property):
            if name not in described["properties"] and name not in inherited:
                found.append(f"{where}: the SDK has no such property")
        elif name in described["methods"]:
            found += _parameter_differences(where, thing, described["methods"][name]["params"])
        elif name not in inherited:
            found.append(f"{where}: the SDK has no such method")
    return found


def _parameter_differences(path: str, function: Any, described: Any) -> List[str]:
    """Compare names, order, kinds and defaults."""
    ours, real = parameters(function), described_parameters(described)
    # The SDK's source writes an enumeration member with or without its module.
    real = [
        (name, kind, default and re.sub(r"^\w+\.(\w+\.[A-Z_]+)$", r"\1", default))
        for name, kind, default in real
    ]
    return [] if ours == real else [f"{path}: {ours} is not the SDK's {real}"]


def test_every_name_of_the_stand_in_is_the_sdks(api: Dict[str, Any]) -> None:
    assert differences(ROOT, double.modules()[ROOT], api) == []
    ((name, module),) = double.strategies().items()
    assert differences(name, module, api) == []


def test_a_name_that_the_sdk_lacks_is_found(api: Dict[str, Any]) -> None:
    wrong = ModuleType("config")
    wrong.reset_ipu_configuration = lambda device: None  # type: ignore[attr-defined]
    wrong.reset = lambda: None  # type: ignore[attr-defined]
    assert len(differences(f"{ROOT}.config", wrong, api)) == 2
    assert len(differences(f"{ROOT}.feeds", wrong, api)) == 1


@pytest.mark.framework
@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU"])
def test_the_fused_layers_are_the_addons(api: Dict[str, Any], name: str) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    layers = double.modules()[double.ADDONS]
    assert name in api["modules"][double.ADDONS]["reexports"]
    described = api["modules"][f"{double.ADDONS}.rnn"]["classes"][name]
    cls = getattr(layers, name)
    wanted = {p: default for p, _, default in described_parameters(described["init"])}
    for base in cls.__mro__[:2]:
        for given, _, default in parameters(base.__init__):
            assert given == "kwargs" or wanted[given] == default
    call = described["methods"]["call"]["params"]
    assert _parameter_differences(f"{name}.call", cls.call, call) == []
    with pytest.raises(AttributeError):
        _ = layers.PopnnRNN


def test_instances_are_configured_as_popdist_says() -> None:
    described = description("popdist.json")["modules"]["popdist.tensorflow"]
    (module,) = double.distribution().values()
    (name,) = [name for name, _ in public(vars(module))]
    wanted = described["functions"][name]["params"]
    # The defaults are not published; the runtime passes all arguments.
    assert [p[:2] for p in parameters(getattr(module, name))] == [
        p[:2] for p in described_parameters(wanted)
    ]


def test_the_configuration_has_exactly_the_sdks_options(api: Dict[str, Any]) -> None:
    described = api["modules"][f"{ROOT}.config"]["classes"]["IPUConfig"]["attributes"]
    assert {name: source(value) for name, value in double_config.DEFAULTS.items()} == {
        name: option["default"] for name, option in described.items()
    }
    for name, option in described.items():
        kind = type(double_config.DEFAULTS[name]).__name__
        numbers = "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"
        assert option["type"] == (numbers if name in double_config.NUMBERS else kind)
    for name, members in vars(double_config).items():
        if isinstance(members, enum.EnumMeta):
            wanted = api["modules"][f"{ROOT}.config"]["classes"][name]["enum_values"]
            assert list(members.__members__) == wanted


def test_the_flags_are_the_sdks(api: Dict[str, Any]) -> None:
    flags = api["tf_poplar_flags"]["flags"]
    assert set(case_flags(True, True, True, True)) <= set(flags)
    assert set(ASKED_BY) <= set(flags)
