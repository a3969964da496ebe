"""The processes that measured a case, as the page draws them."""

from __future__ import annotations

import itertools
import math
from statistics import median
from typing import List, Sequence

from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.record.record import THROUGHPUT, clean_rounds, processes_of, rounds_of
from ipubench.plugins.record.structs import Benchmark, Facts
from ipubench.plugins.results.case_row import compile_seconds_of

# Rounds per process; with more, only every n-th is shown, so that the file stays small.
MOST_ROUNDS = 300


def processes_shown(benchmark: Benchmark) -> List[Facts]:
    """Return each process: rates of its rounds, milliseconds of its canaries.

    ``speed``: what the gate compares, relative to the first process. ``disturbed``: rounds of the
    first process that do not count, because other programs disturbed them: [number, rate].
    """
    found: List[Facts] = []
    processes = processes_of(benchmark)
    costs = [log_cost(process, THROUGHPUT) or 0.0 for process in processes]
    own, counts = rounds_of(benchmark), clean_rounds(benchmark)
    for process, cost in zip(processes, costs):
        items, count = process.items_per_round, len(process.seconds)
        first = not found
        at = [*itertools.compress(range(len(own)), counts)] if first else []
        left_out = [
            (index, items / own[index]) for index in range(len(own)) if first and not counts[index]
        ]
        every = max(1, math.ceil(count / MOST_ROUNDS))
        found.append(
            {
                "fresh": process.fresh,
                "clean": process.clean is not False,
                "throughput": items / median(process.seconds),
                "speed": math.exp(costs[0] - cost),
                "rounds": count,
                "every": every,
                "at": (at if len(at) == count else list(range(count)))[::every],
                "rates": _thinned([items / value for value in process.seconds], every),
                "canaries_ms": _thinned([1000 * value for value in process.canaries], every),
                "disturbed": left_out[::every],
                "left_out": len(left_out),
                "p99_ms": process.latency_p99_ms,
                "compile_seconds": compile_seconds_of(process),
                "compile": process.compile,
                "memory_bytes": process.memory_bytes,
            }
        )
    return found


def _thinned(values: Sequence[float], every: int) -> List[float]:
    return [float(f"{value:.5g}") for value in values[::every]]
