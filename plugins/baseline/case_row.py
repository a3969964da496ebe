"""One case as a row of key figures, with its processes and its environment."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from statistics import median
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from ipubench.fixtures.case.untrusted import typed
from ipubench.plugins.baseline.format import Document
from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.gate.shown_throughput import shown_compute, shown_throughput
from ipubench.plugins.record.record import (
    COMPILED,
    REUSED,
    THROUGHPUT,
    clean_rounds,
    facts_in,
    joules_per_item,
    number_of,
    processes_of,
    ran_by,
    rounds_of,
    text_of,
)
from ipubench.plugins.record.structs import (
    Benchmark,
    Compute,
    Facts,
    Part,
    Process,
    Profile,
    Record,
)
from ipubench.plugins.record.text import parts_of
from ipubench.plugins.record.verdict import Verdict

#: The number of a round, from 0, and its seconds.
Round = Tuple[int, float]
# Parts of a bench function's name that name the framework; any other kernel uses TensorFlow.
FRAMEWORK_WORDS = ("tensorflow", "torch", "popart", "triton", "serving")


class LoadPoint(Part, frozen=True, omit_defaults=False):
    """How late a served case answered, in milliseconds from when a request was due.

    ``held``: whether the run was valid and within the bound.
    """

    target_qps: float
    p50_ms: float
    p99_ms: float
    held: bool


#: The figures of a case: heading in results.csv, and field of a row. Throughput is in items per
#: second; the column `unit` names them.
COLUMNS: Tuple[Tuple[str, str], ...] = (
    ("case", "id"),
    ("name", "name"),
    ("function", "function"),
    ("network", "network"),
    ("framework", "framework"),
    ("mode", "mode"),
    ("data", "data"),
    ("batch size", "batch_size"),
    ("instances", "instances"),
    ("precision", "precision"),
    ("engine", "engine"),
    ("unit", "unit"),
    ("throughput (items/s)", "throughput"),
    ("throughput low (items/s)", "low"),
    ("throughput high (items/s)", "high"),
    ("throughput mean (items/s)", "mean"),
    ("throughput min (items/s)", "min"),
    ("throughput max (items/s)", "max"),
    ("instructions (1/call)", "instructions"),
    ("energy (J/item)", "energy"),
    ("energy source", "energy_source"),
    ("latency p50 (ms)", "p50_ms"),
    ("latency p90 (ms)", "p90_ms"),
    ("latency p99 (ms)", "p99_ms"),
    ("latency samples", "latency_samples"),
    ("latency source", "latency_source"),
    ("build (s)", "build_seconds"),
    ("compile (s)", "compile_seconds"),
    ("compile", "compile"),
    ("first step (s)", "first_step_seconds"),
    ("rounds", "rounds"),
    ("batches per step", "batches_per_step"),
    ("stopped by", "stopped_by"),
    ("processes", "processes"),
    ("canary (ms)", "canary_ms"),
    ("host memory peak (bytes)", "host_memory_bytes"),
    ("device memory peak (bytes)", "device_memory_bytes"),
    ("work (FLOP/item)", "flops_per_item"),
    ("achieved (FLOP/s)", "achieved_flops"),
    ("peak (FLOP/s)", "peak_flops"),
    ("share of peak (1)", "share"),
    ("loader alone (items/s)", "loader"),
    ("model alone (items/s)", "model_alone"),
    ("implausible", "implausible"),
    ("device", "device"),
    ("fingerprint", "fingerprint"),
    ("allocator", "allocator"),
    ("configuration", "config_hash"),
    ("git", "git"),
    ("time (UTC)", "time"),
    ("weights (bytes/item)", "weight_bytes_per_item"),
    ("copy peak (bytes/s)", "peak_bytes"),
)


@dataclass
class CaseRow:
    """A case and its key figures, None if unknown; rates in items per second."""

    id: str
    name: str
    function: str
    file: str
    series: str
    #: How it ended (plugins/baseline/run_facts.py) and why, including its verdict.
    kind: str = ""
    reasons: Sequence[str] = ()
    profile: Optional[Profile] = None
    before: Optional[float] = None
    now: Optional[float] = None
    change: Optional[float] = None
    change_low: Optional[float] = None
    change_high: Optional[float] = None
    threshold: Optional[float] = None
    allowed: Optional[float] = None
    metric: str = ""
    processes_now: Optional[int] = None
    processes_before: Optional[int] = None
    in_turns: bool = False
    network: str = ""
    framework: str = ""
    mode: str = ""
    data: str = ""
    batch_size: Optional[float] = None
    instances: Optional[float] = None
    precision: str = ""
    engine: str = ""
    unit: str = ""
    throughput: Optional[float] = None
    spread: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    mean: Optional[float] = None
    min: Optional[float] = None
    max: Optional[float] = None
    instructions: Optional[float] = None
    energy: Optional[float] = None
    energy_source: str = ""
    p50_ms: Optional[float] = None
    p90_ms: Optional[float] = None
    p99_ms: Optional[float] = None
    latency_samples: Optional[int] = None
    latency_source: str = ""
    build_seconds: Optional[float] = None
    compile_seconds: Optional[float] = None
    compile: str = ""
    first_step_seconds: Optional[float] = None
    rounds: Optional[int] = None
    batches_per_step: Optional[int] = None
    stopped_by: str = ""
    processes: Optional[int] = None
    canary_ms: Optional[float] = None
    host_memory_bytes: Optional[int] = None
    device_memory_bytes: Optional[int] = None
    flops_per_item: Optional[float] = None
    achieved_flops: Optional[float] = None
    peak_flops: Optional[float] = None
    share: Optional[float] = None
    loader: Optional[float] = None
    model_alone: Optional[float] = None
    implausible: bool = False
    device: str = ""
    fingerprint: str = ""
    allocator: str = ""
    config_hash: str = ""
    git: str = ""
    time: str = ""
    weight_bytes_per_item: Optional[float] = None
    peak_bytes: Optional[float] = None
    load: Sequence[LoadPoint] = ()


def row_of(benchmark: Benchmark, verdict: Optional[Verdict] = None) -> CaseRow:
    """Return the key figures of a benchmark, with the throughput that its verdict compared."""
    record = benchmark.record
    path, function, _ = parts_of(benchmark.fullname)
    config, latency, rates = record.config, record.latency, record.input
    compute = record.compute or Compute(None)
    batch_size = number_of(config, "batch_size" if "batch_size" in config else "micro_batch_size")
    processes = processes_of(benchmark)
    canaries = [value for process in processes for value in process.canaries]
    throughput = shown_throughput(benchmark, verdict)
    shown = shown_compute(benchmark, throughput)
    return CaseRow(
        id=benchmark.fullname,
        name=record.name,
        function=function,
        file=path,
        series="-".join(word for word in record.name.split("-") if word != f"bs{batch_size}"),
        network=text_of(config, "name"),
        framework=framework_name(function, record),
        mode=text_of(config, "mode"),
        data=text_of(config, "data"),
        batch_size=batch_size,
        instances=_instances(record),
        precision=text_of(record.effective, "precision"),
        engine=ran_by(record),
        unit=throughput.unit,
        throughput=throughput.median,
        spread=throughput.spread,
        low=throughput.low,
        high=throughput.high,
        mean=throughput.mean,
        min=throughput.min,
        max=throughput.max,
        instructions=record.instructions.per_call if record.instructions else None,
        energy=joules_per_item(record),
        energy_source=record.energy.source if record.energy else "",
        p50_ms=latency.p50_ms,
        p90_ms=latency.p90_ms,
        p99_ms=latency.p99_ms,
        latency_samples=latency.samples,
        latency_source=latency.source,
        build_seconds=record.build_seconds if record.compile in (*COMPILED, REUSED) else None,
        compile_seconds=compile_seconds_of(record),
        compile=record.compile,
        first_step_seconds=record.first_step_seconds or None,
        rounds=record.rounds.count,
        batches_per_step=record.rounds.batches_per_step,
        stopped_by=record.rounds.stopped_by,
        processes=len(processes),
        canary_ms=1000 * median(canaries) if canaries else None,
        host_memory_bytes=record.memory.host_peak_rss_bytes or None,
        device_memory_bytes=record.memory.device_peak_bytes,
        flops_per_item=compute.flops_per_item,
        achieved_flops=shown.achieved,
        peak_flops=compute.peak,
        share=shown.share,
        loader=None if rates is None else rates.loader,
        model_alone=None if rates is None else rates.model,
        implausible=record.implausible,
        device=record.device.name,
        fingerprint=record.device.fingerprint,
        allocator=text_of(record.conditions, "allocator"),
        config_hash=record.config_hash,
        git=record.git or "",
        time=record.time,
        weight_bytes_per_item=compute.weight_bytes_per_item,
        peak_bytes=compute.copy_peak_bytes_per_s,
        load=load_points(facts_in(record.finish.get("load"))),
    )


def unmeasured_row(nodeid: str) -> CaseRow:
    """Return the row of a case without a result."""
    path, function, identifier = parts_of(nodeid)
    name = identifier or nodeid
    return CaseRow(id=nodeid, name=name, function=function, file=path, series=name)


def _instances(record: Record) -> Optional[float]:
    """Return how many instances ran: a host with few cores runs fewer than configured."""
    ran = number_of(facts_in(record.effective.get("instances")), "ran")
    return number_of({"instances": 1, **record.config}, "instances") if ran is None else ran


def compile_seconds_of(compiled: Union[Record, Process]) -> Optional[float]:
    """Return the seconds of a compilation, or None if 0 s means that they are unknown.

    They are unknown if the network was compiled before, and for code that compiles on its own.
    """
    return compiled.compile_seconds if compiled.compile in COMPILED else None


def load_points(load: Facts) -> List[LoadPoint]:
    """Return the load and the delay of a served case, in order of requests per second.

    Includes the probes of its search and its own run.
    """
    milliseconds = facts_in(load.get("latency_ms"))
    own = {
        "target_qps": load.get("target_qps"),
        "p50_ms": milliseconds.get("p50"),
        "p99_ms": milliseconds.get("p99"),
        "held": load.get("valid"),
    }
    searched = load.get("searched")
    found = []
    for point in (*(searched if isinstance(searched, list) else ()), own):
        with contextlib.suppress(ValueError):  # it was not measured
            found.append(typed(point, LoadPoint))
    return sorted(found, key=lambda point: point.target_qps)


def framework_name(function: str, record: Record) -> str:
    """Return the record's framework, else the one in the function's name, else Python."""
    named = next((word for word in FRAMEWORK_WORDS if word in function), "")
    return record.framework or named or "python"


class ProcessRow(NamedTuple):
    """The measurements of one process: rates of its rounds, milliseconds of its canaries.

    ``speed``: what the gate compares, relative to the first process. ``disturbed``: rounds of the
    first process that do not count, because other programs disturbed them: [number, rate].
    """

    fresh: bool
    clean: bool
    at: Sequence[int]
    disturbed: Sequence[Tuple[int, float]]
    throughput: float
    speed: float
    rates: Sequence[float]
    canaries_ms: Sequence[float]
    p99_ms: float
    compile_seconds: Optional[float]
    compile: str
    memory_bytes: int


def process_rows(benchmark: Benchmark) -> List[ProcessRow]:
    """Return a row for each process of a case."""
    rows: List[ProcessRow] = []
    processes = processes_of(benchmark)
    costs = [log_cost(process, THROUGHPUT) or 0.0 for process in processes]
    for number, (process, cost) in enumerate(zip(processes, costs)):
        items = process.items_per_round
        rounds = list(enumerate(process.seconds))
        kept, left_out = (rounds, []) if number else _own_rounds(benchmark)
        rows.append(
            ProcessRow(
                fresh=process.fresh,
                clean=process.clean is not False,
                at=[index for index, _ in (kept if len(kept) == len(rounds) else rounds)],
                disturbed=[(index, items / seconds) for index, seconds in left_out],
                throughput=items / median(process.seconds),
                speed=math.exp(costs[0] - cost),
                rates=[items / value for value in process.seconds],
                canaries_ms=[1000 * value for value in process.canaries],
                p99_ms=process.latency_p99_ms,
                compile_seconds=compile_seconds_of(process),
                compile=process.compile,
                memory_bytes=process.memory_bytes,
            )
        )
    return rows


def _own_rounds(benchmark: Benchmark) -> Tuple[List[Round], List[Round]]:
    """Return the session's own rounds that count, and the disturbed ones."""
    rounds = list(enumerate(rounds_of(benchmark)))
    flagged = list(zip(rounds, clean_rounds(benchmark)))
    kept = [one for one, counts in flagged if counts]
    return kept, [one for one, counts in flagged if not counts]


def environment(document: Document) -> Dict[str, Dict[str, str]]:
    """Return the environment as group -> key -> value; all values if cases differ."""
    groups: Dict[str, Dict[str, List[str]]] = {}
    for benchmark in document.benchmarks:
        record = benchmark.record
        device = record.device
        parts: Dict[str, Facts] = {
            "versions": record.versions,
            "device": {
                "kind": device.kind,
                "name": device.name,
                "fingerprint": device.fingerprint,
                **device.details,
            },
            "conditions": record.conditions,
            "code": {"git": record.git},
        }
        for group, values in parts.items():
            for key, value in _flat(values):
                seen = groups.setdefault(group, {}).setdefault(key, [])
                if value not in seen:
                    seen.append(value)
    machine = dict(document.machine_info)
    cpu = facts_in(machine.get("cpu"))
    if cpu:  # a list of a hundred flags
        machine["cpu"] = {k: v for k, v in cpu.items() if k != "flags"}
    for key, value in _flat(machine):
        groups.setdefault("machine", {})[key] = [value]
    return {
        group: {key: " | ".join(seen) for key, seen in values.items()}
        for group, values in groups.items()
    }


def _flat(values: Facts, prefix: str = "") -> List[Tuple[str, str]]:
    """Return nested values as (dotted key, text)."""
    found: List[Tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            found.append((f"{prefix}{key}", ", ".join(map(str, value))))
        elif value is not None:
            found.append((f"{prefix}{key}", str(value)))
    return found
