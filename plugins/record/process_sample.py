"""The processes that measured one case: what a baseline keeps of each, and what the gate compares.

A process is the independent unit of a comparison: its rounds share its memory layout and are
correlated. A record holds its processes under ``processes``; a record of the journal, which one
process wrote, has none and stands for itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from ipubench.plugins.record.record import NAMESPACE, record_of, rounds_of


def sample_of(benchmark: Dict[str, Any], fresh: bool) -> Dict[str, Any]:
    """Return what a baseline keeps of the process that measured a benchmark.

    ``fresh``: the process measured this case alone. ``seconds`` are those of each round, and
    ``canaries`` those of the canary; ``compile`` says whether ``compile_seconds`` are comparable.
    """
    record = record_of(benchmark)
    return {
        "fresh": fresh,
        "time": record["time"],
        "items_per_round": record["items_per_round"],
        "seconds": rounds_of(benchmark),
        "canaries": record["canary"]["seconds"],
        "compile": record["compile"],
        "compile_seconds": record["compile_seconds"],
        "latency_p99_ms": record["latency"]["p99_ms"],
        "memory_bytes": record["memory"]["host_peak_rss_bytes"],
    }


def processes_of(benchmark: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the processes that measured a benchmark, the session's own first."""
    kept: List[Dict[str, Any]] = record_of(benchmark).get("processes") or []
    return kept or [sample_of(benchmark, fresh=False)]


def with_processes(
    benchmark: Dict[str, Any], fresh: Sequence[Dict[str, Any]] = ()
) -> Dict[str, Any]:
    """Return a copy of a benchmark whose record holds its own process and the ``fresh`` ones."""
    processes = [sample_of(benchmark, fresh=False), *(sample_of(one, fresh=True) for one in fresh)]
    record = {**record_of(benchmark), "processes": processes}
    return {**benchmark, "extra_info": {**benchmark["extra_info"], NAMESPACE: record}}


THROUGHPUT = "throughput"


@dataclass(frozen=True)
class Metric:
    """A figure of one process; of all of them less is better."""

    key: str  # in a sample (see plugins/record/process_sample.py)
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


def differences(now: Dict[str, Any], before: Dict[str, Any]) -> List[str]:
    """Return why two records may not be compared, in words; empty where they may."""
    found = []
    if now["device"]["fingerprint"] != before["device"]["fingerprint"]:
        found.append(
            f"another machine ({before['device']['fingerprint']}, "
            f"now {now['device']['fingerprint']})"
        )
    if now["config_hash"] != before["config_hash"]:
        ours, theirs = now["effective_options"], before.get("effective_options", {})
        changed = [
            f"{key} {theirs.get(key)} -> {ours.get(key)}"
            for key in sorted({*ours, *theirs})
            if ours.get(key) != theirs.get(key)
        ]
        found.append(f"another configuration ({', '.join(changed) or 'hash differs'})")
    for group in ("conditions", "effective"):
        for key in sorted({*now[group], *before[group]}):
            if now[group].get(key) != before[group].get(key):
                found.append(f"{key} {before[group].get(key)} -> {now[group].get(key)}")
    ours, theirs = _source(now), _source(before)
    if ours != theirs:
        found.append(f"other data ({theirs}, now {ours})")
    if bool(now["canary"]["seconds"]) != bool(before["canary"]["seconds"]):
        found.append("canaries on one side only")
    if now["throughput"]["unit"] != before["throughput"]["unit"]:
        found.append(f"unit {before['throughput']['unit']} -> {now['throughput']['unit']}")
    return found


def _source(record: Dict[str, Any]) -> str:
    """Return what the input was, without the unreadable files that happened to be met."""
    return ", ".join(f"{k} {v}" for k, v in sorted(record["data"].items()) if k != "corrupt")
