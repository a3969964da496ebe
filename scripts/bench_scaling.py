"""Does twice the work take twice the time?

    pytest scripts/bench_scaling.py

Each kernel's step runs n and 2n batches in turns, in one process. Work that a compiler had moved
out of the loop, or left out, would not double. A ratio of medians outside 1.85 to 2.15 fails.
"""

from __future__ import annotations

import statistics
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.machine.output import uncaptured
from ipubench.plugins.measure.rounds import calibrate, timed
from scripts.steps import kernel_cases, runtime_name, step_of

CASES = kernel_cases()
FUNCTIONS = {config.name: function for config, function in CASES}
TURNS = 21


@cases(*(config for config, _ in CASES))
def bench_scaling(config: Any, request: pytest.FixtureRequest, device: Any) -> None:
    function = FUNCTIONS[config.name]
    runtime = request.getfixturevalue(runtime_name(function))
    step, _ = step_of(function, config, runtime)
    step.build()
    try:
        step.compile()
        step()
        calibrate(step, device.clock, target=0.05)
        once = step.batches_per_step
        seconds: Dict[int, List[float]] = {once: [], 2 * once: []}
        for _ in range(TURNS):
            for batches, times in seconds.items():
                step.batches_per_step = batches
                times.append(timed(step, device.clock))
    finally:
        step.close()
    medians = [statistics.median(times) for times in seconds.values()]
    ratio = medians[1] / medians[0]
    with uncaptured(request.config):
        print(
            f"\n{config.name}: {2 * once} batches take {ratio:.3f} times as long as {once}", end=""
        )
    assert 1.85 < ratio < 2.15
