"""The step of a case of the suite without pytest, for other programs that time functions.

    python -m scripts.gate_study.standalone CASE

prints as JSON how many batches a round of a tenth of a second has, and how many calls of the extra
work take one such round. with_asv.py puts both into the benchmark that it gives to asv.
"""

from __future__ import annotations

import inspect
import json
import statistics
import sys
from typing import Any, Callable, Dict, List, NamedTuple

from ipubench.fixtures.case.cases import NO_AXES, Case, Family
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure import rounds
from ipubench.plugins.run.conditions import apply_conditions
from ipubench.plugins.selection.expand import expand
from scripts.gate_study import bench_pool
from scripts.gate_study.extra_work import ExtraWork


def prepared_step(case: str, device: CpuDevice) -> Step:
    """Return the step of a case, compiled, with one batch a call; the process is tuned for it."""
    device.info = device.attach()
    apply_conditions("cpu", "cores", "tuned")
    named = case_of_name(case)
    found: List[Step] = []

    def meter(step: Step, **_: Any) -> None:
        found.append(step)

    def no_files(*_: str) -> Any:
        raise RuntimeError(f"{case} is no case of synthetic data")

    fixtures: Dict[str, Callable[[], Any]] = {
        "config": lambda: named.case.config,
        "data": lambda: Data(no_files),
        "instances": lambda: lambda step: step,
        "meter": lambda: meter,
        "tensorflow": lambda: _runtime("tensorflow.on_host", "TensorFlowHost", device),
        "pytorch": lambda: _runtime("torch.host", "TorchHost", device),
        "popart": lambda: _runtime("onnx.host", "OnnxHost", device),
    }
    wanted = inspect.signature(named.function).parameters
    named.function(**{name: fixtures[name]() for name in wanted})
    (step,) = found
    step.build()
    step.compile()
    step.batches_per_step = 1
    step()
    return step


def slowed_step(case: str, batches: int, calls: int) -> Callable[[], None]:
    """Return a round of a case, warmed up, followed by so many calls of extra work."""
    device = CpuDevice()
    step = prepared_step(case, device)
    step.batches_per_step = batches
    rounds.warm_up(step, device.clock)
    return ExtraWork(device.clock).after(step, calls)


class Named(NamedTuple):
    """A case and the bench function that measures it."""

    function: Callable[..., None]
    case: Case


def case_of_name(name: str) -> Named:
    """Return the case that pytest calls FUNCTION[ID]. Raises ValueError where there is none."""
    function_name, _, identifier = name.rstrip("]").partition("[")
    function = getattr(bench_pool, function_name)
    for mark in function.pytestmark:
        axes = {key: value for key, value in mark.kwargs.items() if key not in NO_AXES}
        for entry in mark.args:
            for case in expand(Family.of(entry, axes), {}):
                if case.id == identifier:
                    return Named(function, case)
    raise ValueError(f"{function_name} has no case {identifier}")


def _runtime(module: str, name: str, device: CpuDevice) -> Any:
    imported = __import__(f"ipubench.fixtures.runtimes.{module}", fromlist=[name])
    return getattr(imported, name)(device)


def main() -> None:
    """Calibrate a case and the extra work."""
    device = CpuDevice()
    step = prepared_step(sys.argv[1], device)
    rounds.calibrate(step, device.clock)
    rounds.warm_up(step, device.clock)
    usual = statistics.median(rounds.timed(step, device.clock) for _ in range(9))
    extra = ExtraWork(device.clock)
    facts = {"batches": step.batches_per_step, "calls": extra.calls(usual, 1.0), "seconds": usual}
    step.close()
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
