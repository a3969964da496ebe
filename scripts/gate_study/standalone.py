"""The step of a case of the suite without pytest, for other programs that time functions.

    python -m scripts.gate_study.standalone CASE

prints as JSON how many batches a round of a tenth of a second has, and how many calls of the extra
work take one such round. with_asv.py puts both into the benchmark that it gives to asv.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from typing import Callable, Tuple

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure import rounds
from ipubench.plugins.run.conditions import apply_conditions
from ipubench.plugins.selection.expand import expand
from scripts.gate_study import bench_pool
from scripts.gate_study.extra_work import ExtraWork
from scripts.steps import families, runtime_name, step_of

RUNTIMES = {
    "tensorflow": ("tensorflow.on_host", "TensorFlowHost"),
    "pytorch": ("torch.host", "TorchHost"),
    "popart": ("onnx.host", "OnnxHost"),
}


def prepared_step(name: str, device: CpuDevice) -> Step:
    """Return the step of a case, compiled, with one batch a call; the process is tuned for it."""
    device.info = device.attach()
    apply_conditions("cpu", "cores", "tuned")
    function, case = case_of_name(name)
    module, runtime = RUNTIMES[runtime_name(function)]
    imported = importlib.import_module(f"ipubench.fixtures.runtimes.{module}")
    step: Step = step_of(function, case.config, getattr(imported, runtime)(device))[0]
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


def case_of_name(name: str) -> Tuple[Callable[..., None], Case]:
    """Return the bench function and the case of FUNCTION[ID]. Raises ValueError: there is none."""
    function_name, _, identifier = name.rstrip("]").partition("[")
    function = getattr(bench_pool, function_name)
    for family in families(function):
        for case in expand(family, {}):
            if case.id == identifier:
                return function, case
    raise ValueError(f"{function_name} has no case {identifier}")


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
