"""The stand-ins for PopART and PopTorch offer nothing that the SDK does not.

The SDK's API comes from a description of its published sources. So the SDK accepts every call of a
runtime that the stand-in accepts and records.
"""

from __future__ import annotations

import enum
from types import ModuleType
from typing import Any, Dict, List

import pytest

from tests.doubles import popart, poptorch
from tests.doubles.poptorch_options import POPART_OPTIONS
from tests.support.sdk_api import description
from tests.support.sdk_contract import differences

DOUBLES: Dict[str, Any] = {"popart": popart, "poptorch": poptorch}


def names(found: List[str]) -> List[str]:
    return [text.split(":")[0] for text in found]


def modules_of(sdk: str) -> Dict[str, Any]:
    found: Dict[str, Any] = description(f"{sdk}.json")["modules"]
    return found


@pytest.mark.parametrize("sdk", DOUBLES)
def test_every_name_of_the_stand_in_is_the_sdks(sdk: str) -> None:
    assert differences(sdk, DOUBLES[sdk].as_module(), modules_of(sdk)) == []


def test_the_popart_options_that_are_set_by_name_are_popart_s() -> None:
    options = modules_of("popart")["popart"]["classes"]["SessionOptions"]
    assert set(POPART_OPTIONS) <= set(options["properties"])


@pytest.mark.parametrize(
    ("sdk", "offered"),
    [
        (
            "popart",
            {
                *("AiGraphcoreOpset1.nllloss", "AiOnnxOpset11.softmax", "Builder.addInputTensor"),
                *("InferenceSession.prepareDevice", "TrainingSession.weightsFromHost"),
                *("SessionOptions.convolutionOptions", "DeviceInfo.numIpus"),
            },
        ),
        (
            "poptorch",
            {
                *("Options.Precision.setPartialsType", "Options._Popart.set"),
                *("Options.enableSyntheticData", "PoplarExecutor.__call__"),
            },
        ),
    ],
)
def test_everything_offered_is_compared(sdk: str, offered: Any) -> None:
    modules = modules_of(sdk)
    for module in modules.values():
        for cls in module["classes"].values():
            cls.update(methods={}, bases=[], properties={})
    found = names(differences(sdk, DOUBLES[sdk].as_module(), modules))
    assert offered <= {name.replace("Builder.ai", "Ai") for name in found}


class _Session:
    def __init__(self, fnModel: Any, deviceInfo: Any) -> None: ...

    def run(self, stepio: Any, debugName: str = "step") -> None: ...

    def getThroughput(self) -> None: ...

    @property
    def latency(self) -> float:
        return 0.0


class _Options:
    @property
    def numberOfIpus(self) -> int:
        return 1


def _member(name: str, number: int) -> Any:
    return enum.IntEnum("Mode", {name: number})


def _other(model: Any, options: Any = 0) -> None: ...


@pytest.mark.parametrize(
    ("sdk", "name", "thing", "expected"),
    [
        ("popart", "runModel", _other, ["runModel"]),
        ("popart", "VERSION", "3.4", ["VERSION"]),
        ("popart", "versionString", _other, ["versionString"]),
        ("popart", "SyntheticDataMode", _member("Ones", 1), ["SyntheticDataMode.Ones"]),
        ("popart", "SessionOptions", _Options, ["SessionOptions.numberOfIpus"]),
        (
            "popart",
            "InferenceSession",
            _Session,
            [
                "InferenceSession",
                "InferenceSession.getThroughput",
                "InferenceSession.latency",
                "InferenceSession.run",
            ],
        ),
        ("poptorch", "inferenceModel", _other, ["inferenceModel"]),
        ("poptorch", "OutputMode", _member("All", 3), ["OutputMode.All"]),
    ],
)
def test_a_name_that_the_sdk_lacks_is_found(
    sdk: str, name: str, thing: Any, expected: List[str]
) -> None:
    module = ModuleType(sdk)
    setattr(module, name, thing)
    assert names(differences(sdk, module, modules_of(sdk))) == expected
