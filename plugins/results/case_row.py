"""One case as a row of key figures, with its processes and its environment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import List, NamedTuple, Optional, Sequence, Union

from ipubench.fixtures.case.untrusted import typed
from ipubench.plugins.gate.shown_throughput import (
    ShownCompute,
    ShownThroughput,
    shown_compute,
    shown_throughput,
)
from ipubench.plugins.record.record import (
    COMPILED,
    facts_in,
    number_of,
    processes_of,
)
from ipubench.plugins.record.structs import (
    Benchmark,
    Part,
    Process,
    Profile,
    Record,
)
from ipubench.plugins.record.text import parts_of
from ipubench.plugins.record.verdict import NO_VERDICT, Verdict

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
    #: How it ended (plugins/results/run_facts.py) and why, including its verdict.
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


def times_text(value: float) -> str:
    """Return a ratio as text: 1.83x."""
    return f"{_three_digits(value)}x"


def _three_digits(value: float) -> str:
    """Return a ratio with three digits: 1.83, 12.4 or 1,240."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"
