"""Runs bench functions without pytest: lists their cases and returns their steps."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Tuple

from ipubench import bench_kernels
from ipubench.fixtures.case.cases import NO_AXES, CaseSet
from ipubench.fixtures.case.options import CaseConfig
from ipubench.fixtures.data.provider import Data
from ipubench.plugins.selection.selected import FRAMEWORKS


def _no_files(*_: str) -> Any:
    raise AssertionError("a script reads no data from a disk")


#: Generated in memory or on the device.
DATA = Data(_no_files)


def tensorflow_module(name: str, before: str) -> Any:
    """Import a module of TensorFlow's runtimes. ``before``: its name at earlier commits, for the
    script that compares with one.
    """
    folder = "ipubench.fixtures.runtimes.tensorflow"
    found = name if importlib.util.find_spec(f"{folder}.{name}") else before
    return importlib.import_module(f"{folder}.{found}")


def families(function: Callable[..., None]) -> Iterator[CaseSet]:
    """Yield the case set of each entry of a bench function's ``@cases``."""
    for mark in function.pytestmark:  # type: ignore[attr-defined]  # @cases has set it
        axes = {key: values for key, values in mark.kwargs.items() if key not in NO_AXES}
        for entry in mark.args:
            yield CaseSet.of(entry, axes)


def runtime_name(function: Callable[..., None]) -> str:
    """Return the name of the runtime fixture that a bench function uses."""
    (name,) = set(inspect.signature(function).parameters) & set(FRAMEWORKS)
    return name


def step_of(function: Callable[..., None], config: Any, runtime: Any) -> Tuple[Any, float]:
    """Return (step, items per batch) as a bench function passes them to the meter.

    The step runs in one process and without load.
    """
    caught: List[Any] = []

    def meter(step: Any, *, items: float, **_: Any) -> None:
        caught.extend([step, items])

    def itself(step: Any) -> Any:
        return step

    fixtures: Dict[str, Any] = {
        **{"config": config, runtime_name(function): runtime, "data": DATA, "meter": meter},
        **{"instances": itself},
    }
    function(**{name: fixtures[name] for name in inspect.signature(function).parameters})
    step, items = caught
    return step, items


def kernel_cases() -> List[Tuple[CaseConfig, Callable[..., None]]]:
    """Return each kernel's default configuration in each mode, on a host with synthetic data.

    Each comes with its bench function. The configuration's name includes the mode.
    """
    return [
        (config, function)
        for function in bench_functions(bench_kernels)
        for family in families(function)
        for config in _defaults(family)
    ]


def bench_functions(*packages: ModuleType) -> List[Callable[..., None]]:
    """Return the bench functions in packages."""
    return [
        function
        for package in packages
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for name, function in vars(importlib.import_module(module.name)).items()
        if name.startswith("bench_") and inspect.isfunction(function)
    ]


def _defaults(family: CaseSet) -> Iterator[CaseConfig]:
    for config, _ in family.configurations:
        if not family.swept and (config.system, config.data) == ("host", "synthetic"):
            yield dataclasses.replace(config, name=f"{config.name}-{config.mode}")
