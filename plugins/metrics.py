"""The figures of a process that a policy can set a threshold for, beside its throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional

THROUGHPUT = "throughput"


@dataclass(frozen=True)
class Metric:
    """A figure of one process; of all of them less is better."""

    key: str  # in a sample (see plugins/samples.py)
    unit: str
    words: str


SCALARS: Dict[str, Metric] = {
    "latency_p99": Metric("latency_p99_ms", "ms", "99% latency of a batch"),
    "compile_time": Metric("compile_seconds", "s", "time to compile"),
    "peak_memory": Metric("memory_bytes", "bytes", "peak memory of the host process"),
}
METRICS = (THROUGHPUT, *SCALARS)


def value_of(sample: Dict[str, Any], metric: str) -> Optional[float]:
    """Return a scalar metric of one process, or None where the process has none to compare.

    A model that was kept from an earlier compilation says nothing of the time to compile.
    """
    if metric == "compile_time" and sample.get("compile") != "fresh":
        return None
    value = sample.get(SCALARS[metric].key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
