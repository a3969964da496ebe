"""The default cases of every kernel, for scripts that time their steps in other ways."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List

from ipubench import bench_kernels
from ipubench.fixtures.case.cases import NO_AXES, Family, Sweep
from ipubench.fixtures.case.options import CaseConfig
from ipubench.plugins.selection.expand import FRAMEWORKS


@dataclass(frozen=True)
class KernelCase:
    """One configuration of a kernel, and what its bench function asks for."""

    function: Callable[..., None]
    runtime: str  # the name of its runtime fixture
    config: CaseConfig  # its name carries the mode

    def step(self, runtime: Any, data: Any) -> Any:
        """Return (step, items of a batch) as the bench function hands them to the meter."""
        caught: List[Any] = []

        def meter(step: Any, *, items: float, **_: Any) -> None:
            caught.extend([step, items])

        self.function(
            **{"config": self.config, self.runtime: runtime, "data": data, "meter": meter}
        )
        return tuple(caught)


def kernel_cases() -> List[KernelCase]:
    """Return each kernel's default configuration in each mode, on a host, synthetic data."""
    return [
        KernelCase(function, runtime, dataclasses.replace(config, name=name))
        for function, runtime in _functions()
        for name, config in _configurations(function)
    ]


def _functions() -> Iterator[Any]:
    for module in pkgutil.iter_modules(bench_kernels.__path__, "ipubench.bench_kernels."):
        found = importlib.import_module(module.name)
        for name, function in vars(found).items():
            if name.startswith("bench_"):
                wanted = set(inspect.signature(function).parameters) & set(FRAMEWORKS)
                yield function, wanted.pop()


def _configurations(function: Any) -> Iterator[Any]:
    for mark in function.pytestmark:
        for entry in mark.args:
            if isinstance(entry, Sweep):
                continue
            axes = {key: values for key, values in mark.kwargs.items() if key not in NO_AXES}
            for config, _ in Family.of(entry, axes).points:
                if config.system == "host" and config.data == "synthetic":
                    yield f"{config.name}-{config.mode}", config
