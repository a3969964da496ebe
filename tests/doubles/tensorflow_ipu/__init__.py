"""A stand-in for the part of the SDK's TensorFlow that the project uses, over any TensorFlow 2.

It offers the names and signatures of the SDK and nothing else
(tests/runtimes/tensorflow/test_contract.py checks them against the SDK's published API), records
every call, and runs programs on the CPU. It is as strict as the SDK about the project's possible
mistakes: names and types of options, flags, the life of a queue and of a device, the parameters of
a loop's body.

Tests put :func:`modules` into ``sys.modules`` and control it with :data:`recorder`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, Dict, Optional, Tuple

from tests.doubles.record import module_of
from tests.doubles.tensorflow_ipu import (
    accumulation,
    config,
    distributed,
    feeds,
    layers,
    norms,
    pipelining,
    program,
)
from tests.doubles.tensorflow_ipu.record import recorder

__all__ = ["ADDONS", "OFFERED", "AddonsFinder", "distribution", "modules", "recorder", "strategies"]

ROOT = "tensorflow.python.ipu"
#: Module of the SDK -> its contents.
OFFERED: Dict[str, Tuple[Any, ...]] = {
    f"{ROOT}.config": (
        config.DeviceConnectionType,
        config.IPUConfig,
        config.SchedulingAlgorithm,
        config.StochasticRoundingBehaviour,
        config.reset_ipu_configuration,
    ),
    f"{ROOT}.ipu_strategy": (program.IPUStrategyV1,),
    f"{ROOT}.ipu_infeed_queue": (feeds.IPUInfeedQueue,),
    f"{ROOT}.ipu_outfeed_queue": (feeds.IPUOutfeedMode, feeds.IPUOutfeedQueue),
    f"{ROOT}.gradient_accumulation": (accumulation.GradientAccumulationReductionMethod,),
    f"{ROOT}.normalization_ops": (norms.group_norm,),
    f"{ROOT}.optimizers": (
        accumulation.GradientAccumulationOptimizerV2,
        accumulation.IpuOptimizer,
    ),
    f"{ROOT}.pipelining_ops": (
        pipelining.OptimizerFunctionOutput,
        pipelining.PipelineSchedule,
        pipelining.PipelineStageOptions,
        pipelining.RecomputationMode,
        pipelining.pipeline,
    ),
    f"{ROOT}.loops": (program.repeat,),
    f"{ROOT}.cross_replica_ops": (program.cross_replica_mean, program.cross_replica_sum),
    f"{ROOT}.utils": (program.get_num_of_ipus_in_device, program.reset_ipu_seed),
}
#: The fused layers; they are built on Keras on first use.
ADDONS = "ipu_tensorflow_addons.keras.layers"
#: The versions that the addons of SDK 3.4 need.
BUILT_WITH = {"tensorflow": "2.6.3", "keras": "2.6.0"}


def modules() -> Dict[str, ModuleType]:
    """Return module name -> module, with the offered names only; the recorder starts empty."""
    recorder.reset()
    found: Dict[str, ModuleType] = {ROOT: ModuleType(ROOT)}
    for name, things in OFFERED.items():
        found[name] = ModuleType(name)
        for thing in things:
            setattr(found[name], thing.__name__, thing)
        setattr(found[ROOT], name.rpartition(".")[2], found[name])
    for name in ("ipu_tensorflow_addons", "ipu_tensorflow_addons.keras", ADDONS):
        found[name] = ModuleType(name)
    found[ADDONS].__getattr__ = _layer  # type: ignore[method-assign]
    for name, module in found.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return found


class AddonsFinder(MetaPathFinder):
    """An installed ``ipu_tensorflow_addons``, which checks its dependencies at import.

    In the order of graphcore/ipu_tensorflow_addons, util/_dependency_checker.py. ``versions`` are
    the installed ones; ``ipu_keras`` is whether keras is the SDK's.
    """

    def __init__(self, versions: Dict[str, str], ipu_keras: bool) -> None:
        self._versions = versions
        self._ipu_keras = ipu_keras

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        """Raise ImportError if the package does."""
        if name != "ipu_tensorflow_addons":
            return None
        found = {"TensorFlow": importlib.util.find_spec(ROOT), "Keras": self._ipu_keras}
        for package, installed in found.items():
            if not installed:
                raise ImportError(f"Failed to import IPU {package}.")
        for package, version in BUILT_WITH.items():
            if self._versions[package] != version:
                raise ImportError(f"Incompatible version of {package} was found.")
        return None


def distribution() -> Dict[str, ModuleType]:
    """Return ``popdist.tensorflow``, for use with the modules of tests.doubles.popdist."""
    name = "popdist.tensorflow"
    return {name: module_of(name, ("set_ipu_config",), vars(distributed))}


def strategies() -> Dict[str, ModuleType]:
    """Return the module of PopDist's strategy."""
    name = f"{ROOT}.distributed.popdist_strategy"
    return {name: module_of(name, ("PopDistStrategy",), vars(distributed))}


def _layer(name: str) -> Any:
    if name not in ("PopnnLSTM", "PopnnGRU"):
        raise AttributeError(name)
    return layers.classes()[name]
