"""One case as a row of key figures, with its processes and its environment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from ipubench.fixtures.case.untrusted import typed
from ipubench.plugins.baseline.format import Document
from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.gate.shown_throughput import (
    ShownCompute,
    ShownThroughput,
    shown_compute,
    shown_throughput,
)
from ipubench.plugins.record.record import (
    COMPILED,
    THROUGHPUT,
    clean_rounds,
    facts_in,
    number_of,
    processes_of,
    rounds_of,
)
from ipubench.plugins.record.structs import (
    Benchmark,
    Facts,
    Part,
    Process,
    Profile,
    Record,
)
from ipubench.plugins.record.text import parts_of
from ipubench.plugins.record.verdict import NO_VERDICT, Verdict

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


class Ratio(NamedTuple):
    """A case's time per item over that of the fastest, and its 95% interval if that is known."""

    value: float
    low: Optional[float] = None
    high: Optional[float] = None

    @property
    def interval(self) -> str:
        """The interval, such as 1.67 to 2.01; '-' if it is unknown."""
        if self.low is None or self.high is None:
            return "-"
        return f"{_three_digits(self.low)} to {_three_digits(self.high)}"


@dataclass(frozen=True)
class CaseRow:
    """A case of a table: its result, the verdict on it, and how it ended."""

    #: Its node id, plus its machine if it ran on several.
    id: str
    name: str
    nodeid: str
    #: None if it has no result.
    benchmark: Optional[Benchmark] = None
    verdict: Verdict = NO_VERDICT
    #: How it ended (plugins/baseline/run_facts.py) and why, including its verdict.
    kind: str = ""
    reasons: Sequence[str] = ()
    profile: Optional[Profile] = None
    #: The stored entry that it was compared with, if known.
    before: Optional[Benchmark] = None
    skipped: bool = False
    ratio: Optional[Ratio] = None

    @property
    def result(self) -> Benchmark:
        """The result of a measured case."""
        assert self.benchmark is not None
        return self.benchmark

    @property
    def record(self) -> Record:
        """The record of a measured case."""
        return self.result.record

    @cached_property
    def rate(self) -> ShownThroughput:
        """The throughput that its verdict compared."""
        return shown_throughput(self.result, self.verdict)

    @property
    def compute(self) -> ShownCompute:
        """The FLOP/s at this throughput."""
        return shown_compute(self.result, self.rate)

    @property
    def processes(self) -> Sequence[Process]:
        """The processes that measured it."""
        return processes_of(self.result)

    @property
    def file(self) -> str:
        """The file of its bench function."""
        return parts_of(self.nodeid)[0]

    @property
    def function(self) -> str:
        """Its bench function."""
        return parts_of(self.nodeid)[1]

    @property
    def series(self) -> str:
        """Its record's name without the batch size, plus its machine if it ran on several."""
        size = f"bs{batch_size_of(self.record)}"
        words = [word for word in self.record.name.split("-") if word != size]
        return "-".join(words) + self.id[len(self.nodeid) :]

    @property
    def implausible(self) -> bool:
        """Whether its result cannot be right."""
        return self.benchmark is not None and self.record.implausible

    @property
    def load(self) -> List[LoadPoint]:
        """The load and the delay of a served case."""
        return [] if self.benchmark is None else load_points(self.record)


def batch_size_of(record: Record) -> Optional[float]:
    """Return the batch size of a case."""
    config = record.config
    return number_of(config, "batch_size" if "batch_size" in config else "micro_batch_size")


def canary_ms_of(processes: Sequence[Process]) -> Optional[float]:
    """Return the median of the canaries in milliseconds."""
    canaries = [value for process in processes for value in process.canaries]
    return 1000 * median(canaries) if canaries else None


def instances_of(record: Record) -> Optional[float]:
    """Return how many instances ran: a host with few cores runs fewer than configured."""
    ran = number_of(facts_in(record.effective.get("instances")), "ran")
    return number_of({"instances": 1, **record.config}, "instances") if ran is None else ran


def compile_seconds_of(compiled: Union[Record, Process]) -> Optional[float]:
    """Return the seconds of a compilation, or None if 0 s means that they are unknown.

    They are unknown if the network was compiled before, and for code that compiles on its own.
    """
    return compiled.compile_seconds if compiled.compile in COMPILED else None


def load_points(record: Record) -> List[LoadPoint]:
    """Return the load and the delay of a served case that has a rate."""
    load = facts_in(record.finish.get("load"))
    milliseconds = facts_in(load.get("latency_ms"))
    own = {
        "target_qps": load.get("target_qps"),
        "p50_ms": milliseconds.get("p50"),
        "p99_ms": milliseconds.get("p99"),
        "held": load.get("valid"),
    }
    try:
        return [typed(own, LoadPoint)]
    except ValueError:  # it was not measured
        return []


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


def times_text(value: float) -> str:
    """Return a ratio as text: 1.83x."""
    return f"{_three_digits(value)}x"


def _three_digits(value: float) -> str:
    """Return a ratio with three digits: 1.83, 12.4 or 1,240."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


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
