"""One case as a row of its key figures, its processes, and what all cases ran with."""

from __future__ import annotations

import math
from statistics import median
from typing import Any, Dict, List, Optional, Tuple

from ipubench.fixtures.case.untrusted import NUMBER, has_fields
from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.gate.shown_throughput import shown_compute, shown_throughput
from ipubench.plugins.record.record import (
    COMPILED,
    REUSED,
    THROUGHPUT,
    clean_rounds,
    processes_of,
    ran_by,
    record_of,
    rounds_of,
)
from ipubench.plugins.record.text import parts_of

#: A point of a latency over the load.
LOAD_POINT: Dict[str, Any] = {
    "target_qps": NUMBER,
    "p50_ms": NUMBER,
    "p99_ms": NUMBER,
    "held": bool,
}
#: The number of a round, from 0, and its seconds.
Round = Tuple[int, float]
# Words of a bench function's name that say what its cases run on; any other kernel is TensorFlow's.
FRAMEWORK_WORDS = ("tensorflow", "torch", "popart", "triton", "serving")
#: The figures of a case: heading in results.csv, key of a row, and where a record has it; None
#: where :func:`row_of` makes it. Throughput is in items per second; the column `unit` names them.
COLUMNS: Tuple[Tuple[str, str, Optional[Tuple[str, ...]]], ...] = (
    ("case", "id", None),
    ("name", "name", None),
    ("function", "function", None),
    ("network", "network", ("config", "name")),
    ("framework", "framework", None),
    ("mode", "mode", ("config", "mode")),
    ("data", "data", ("config", "data")),
    ("batch size", "batch_size", None),
    ("instances", "instances", None),
    ("precision", "precision", ("effective", "precision")),
    ("engine", "engine", None),
    ("unit", "unit", ("throughput", "unit")),
    ("throughput (items/s)", "throughput", ("throughput", "median")),
    ("throughput low (items/s)", "low", ("throughput", "low")),
    ("throughput high (items/s)", "high", ("throughput", "high")),
    ("throughput mean (items/s)", "mean", ("throughput", "mean")),
    ("throughput min (items/s)", "min", ("throughput", "min")),
    ("throughput max (items/s)", "max", ("throughput", "max")),
    ("instructions (1/call)", "instructions", ("instructions", "per_call")),
    ("latency p50 (ms)", "p50_ms", ("latency", "p50_ms")),
    ("latency p90 (ms)", "p90_ms", ("latency", "p90_ms")),
    ("latency p99 (ms)", "p99_ms", ("latency", "p99_ms")),
    ("latency samples", "latency_samples", ("latency", "samples")),
    ("latency source", "latency_source", ("latency", "source")),
    ("build (s)", "build_seconds", None),
    ("compile (s)", "compile_seconds", None),
    ("compile", "compile", ("compile",)),
    ("first step (s)", "first_step_seconds", None),
    ("rounds", "rounds", ("rounds", "count")),
    ("batches per step", "batches_per_step", ("rounds", "batches_per_step")),
    ("stopped by", "stopped_by", ("rounds", "stopped_by")),
    ("processes", "processes", None),
    ("canary (ms)", "canary_ms", None),
    ("host memory peak (bytes)", "host_memory_bytes", ("memory", "host_peak_rss_bytes")),
    ("device memory peak (bytes)", "device_memory_bytes", ("memory", "device_peak_bytes")),
    ("work (FLOP/item)", "flops_per_item", ("compute", "flops_per_item")),
    ("achieved (FLOP/s)", "achieved_flops", ("compute", "achieved")),
    ("peak (FLOP/s)", "peak_flops", ("compute", "peak")),
    ("share of peak (1)", "share", ("compute", "share")),
    ("loader alone (items/s)", "loader", ("input", "loader")),
    ("model alone (items/s)", "model_alone", ("input", "model")),
    ("implausible", "implausible", None),
    ("device", "device", ("device", "name")),
    ("fingerprint", "fingerprint", ("device", "fingerprint")),
    ("allocator", "allocator", ("conditions", "allocator")),
    ("configuration", "config_hash", ("config_hash",)),
    ("git", "git", ("git",)),
    ("time (UTC)", "time", ("time",)),
    ("weights (bytes/item)", "weight_bytes_per_item", ("compute", "weight_bytes_per_item")),
    ("copy peak (bytes/s)", "peak_bytes", ("compute", "copy_peak_bytes_per_s")),
)


def dig(value: Any, *keys: str) -> Any:
    """Return ``value[key][key]...``, or None where a part is not there."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def row_of(benchmark: Dict[str, Any], verdict: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Return the key figures of a benchmark, None where it has none: rates in items per second.

    The throughput is the one that its verdict compared, where there is one.
    """
    record = record_of(benchmark)
    nodeid = str(benchmark["fullname"])
    path, function, identifier = parts_of(nodeid)
    config = dig(record, "config") or {}
    batch_size = config.get("batch_size", config.get("micro_batch_size"))
    name = str(record.get("name") or identifier or nodeid)
    processes = processes_of(benchmark) if record else []
    canaries = [value for process in processes for value in process["canaries"]]
    throughput = shown_throughput(benchmark, verdict)
    compute = {**(dig(record, "compute") or {}), **shown_compute(benchmark, throughput)}
    shown = {**record, "throughput": throughput, "compute": compute}
    return {
        "id": nodeid,
        "name": name,
        "function": function,
        "file": path,
        "framework": framework_name(function, record) if record else None,
        "batch_size": batch_size,
        "engine": ran_by(record),
        "instances": _instances(record) if record else None,
        "series": "-".join(word for word in name.split("-") if word != f"bs{batch_size}"),
        **{key: dig(shown, *place) for _, key, place in COLUMNS if place is not None},
        **compilation_of(record),
        "spread": shown["throughput"].get("spread"),
        "processes": len(processes) or None,
        "canary_ms": 1000 * median(canaries) if canaries else None,
        "implausible": bool(record.get("implausible")),
        "load": load_points(dig(record, "finish", "load")),
    }


def _instances(record: Dict[str, Any]) -> Any:
    """Return how many instances a figure is of: a host with few cores runs fewer than asked."""
    ran = dig(record, "effective", "instances", "ran")
    return (dig(record, "config") or {}).get("instances", 1) if ran is None else ran


def compilation_of(record: Dict[str, Any]) -> Dict[str, Optional[float]]:
    """Return the seconds until the first step, None where a record's 0 s mean nobody knows.

    So it is of a network that was compiled before, and of code that builds and compiles by itself.
    """
    how = record.get("compile")
    return {
        "build_seconds": record.get("build_seconds") if how in (*COMPILED, REUSED) else None,
        "compile_seconds": record.get("compile_seconds") if how in COMPILED else None,
        "first_step_seconds": record.get("first_step_seconds") or None,
    }


def load_points(load: Any) -> List[Dict[str, Any]]:
    """Return what a served case was asked and how late it answered, by requests a second.

    The probes of its search, and its own run; milliseconds from when a request was due. ``held``:
    whether the run was valid and within the bound.
    """
    if not isinstance(load, dict):
        return []
    own = {
        "target_qps": load.get("target_qps"),
        "p50_ms": dig(load, "latency_ms", "p50"),
        "p99_ms": dig(load, "latency_ms", "p99"),
        "held": load.get("valid"),
    }
    searched = load.get("searched")
    probes = searched if isinstance(searched, list) else []
    points = [point for point in (*probes, own) if has_fields(point, LOAD_POINT)]
    return sorted(points, key=lambda point: float(point["target_qps"]))


def framework_name(function: str, record: Dict[str, Any]) -> str:
    """Return the record's framework, or what the function's name says; else Python."""
    named = next((word for word in FRAMEWORK_WORDS if word in function), "")
    return str(record.get("framework") or named or "python")


def process_rows(benchmark: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return what each process of a case measured: rates of its rounds, milliseconds of canaries.

    ``speed``: what the gate compares, relative to the first process. ``disturbed``: rounds of the
    first that count for nothing, because other programs took a part of them: [number, rate].
    """
    rows: List[Dict[str, Any]] = []
    processes = processes_of(benchmark)
    costs = [log_cost(process, THROUGHPUT) or 0.0 for process in processes]
    for number, (process, cost) in enumerate(zip(processes, costs)):
        items = process["items_per_round"]
        rounds = list(enumerate(process["seconds"]))
        kept, left_out = (rounds, []) if number else _own_rounds(benchmark)
        rows.append(
            {
                "fresh": bool(process.get("fresh")),
                "clean": process.get("clean") is not False,
                "at": [index for index, _ in (kept if len(kept) == len(rounds) else rounds)],
                "disturbed": [(index, items / seconds) for index, seconds in left_out],
                "throughput": items / median(process["seconds"]),
                "speed": math.exp(costs[0] - cost),
                "rates": [items / value for value in process["seconds"]],
                "canaries_ms": [1000 * value for value in process["canaries"]],
                "p99_ms": process.get("latency_p99_ms"),
                "compile_seconds": compilation_of(process)["compile_seconds"],
                "compile": process.get("compile"),
                "memory_bytes": process.get("memory_bytes"),
            }
        )
    return rows


def _own_rounds(benchmark: Dict[str, Any]) -> Tuple[List[Round], List[Round]]:
    """Return the session's own rounds that count, and those that others disturbed."""
    rounds = list(enumerate(rounds_of(benchmark)))
    flagged = list(zip(rounds, clean_rounds(benchmark)))
    kept = [one for one, counts in flagged if counts]
    return kept, [one for one, counts in flagged if not counts]


def environment(document: Dict[str, Any]) -> Dict[str, Dict[str, str]]:
    """Return group -> key -> value of what the cases ran with; all values where they differ."""
    groups: Dict[str, Dict[str, List[str]]] = {}
    for benchmark in document["benchmarks"]:
        record = record_of(benchmark)
        device = dig(record, "device") or {}
        parts = {
            "versions": dig(record, "versions") or {},
            "device": {
                **{key: device.get(key) for key in ("kind", "name", "fingerprint")},
                **(dig(device, "details") or {}),
            },
            "conditions": dig(record, "conditions") or {},
            "code": {"git": record.get("git")},
        }
        for group, values in parts.items():
            for key, value in _flat(values):
                seen = groups.setdefault(group, {}).setdefault(key, [])
                if value not in seen:
                    seen.append(value)
    machine = dict(dig(document, "machine_info") or {})
    if isinstance(machine.get("cpu"), dict):  # a hundred words that nobody reads
        machine["cpu"] = {k: v for k, v in machine["cpu"].items() if k != "flags"}
    for key, value in _flat(machine):
        groups.setdefault("machine", {})[key] = [value]
    return {
        group: {key: " | ".join(seen) for key, seen in values.items()}
        for group, values in groups.items()
    }


def _flat(values: Any, prefix: str = "") -> List[Tuple[str, str]]:
    """Return nested values as (dotted key, text)."""
    found: List[Tuple[str, str]] = []
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            found.append((f"{prefix}{key}", ", ".join(map(str, value))))
        elif value is not None:
            found.append((f"{prefix}{key}", str(value)))
    return found
