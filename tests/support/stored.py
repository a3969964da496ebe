"""Benchmarks and records for tests: what a file holds as plain JSON, and copies with changes."""

from __future__ import annotations

from typing import Any, Dict, Sequence, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ipubench.plugins.record.record import BEFORE_ROUNDS
from ipubench.plugins.record.statistics import latency, throughput
from ipubench.plugins.record.structs import (
    Benchmark,
    Canary,
    Device,
    ExtraInfo,
    Memory,
    Record,
    Rounds,
    Stats,
)

Value = TypeVar("Value")


def record_of(plain: Dict[str, Any]) -> Dict[str, Any]:
    """Return the record in a benchmark that was read as JSON; {} where there is none."""
    record: Dict[str, Any] = plain["extra_info"].get("ipubench", {})
    return record


def changed(benchmark: Value, changes: Dict[str, Any]) -> Value:
    """Return a copy with other values at places such as ``record.rounds.count``."""
    value: Any = benchmark
    for place, new in changes.items():
        name, _, rest = place.partition(".")
        if name == "record":
            name, rest = "extra_info", f"ipubench.{rest}" if rest else "ipubench"
        if isinstance(value, Struct):
            inner = changed(getattr(value, name), {rest: new}) if rest else new
            value = replace(value, **{name: inner})
        elif isinstance(value, dict):
            value = {**value, name: changed(value[name], {rest: new}) if rest else new}
        else:
            index = int(name)
            inner = changed(value[index], {rest: new}) if rest else new
            value = [*value[:index], inner, *value[index + 1 :]]
    found: Value = value
    return found


def a_benchmark(seconds: Sequence[float], items: float = 10, **changes: Any) -> Benchmark:
    """Return a measured case of rounds that took these seconds; ``changes`` of its record."""
    rates = throughput(seconds, items, "items")
    record = Record(
        format=1,
        name="case",
        config={},
        overrides=(),
        effective_options={"batch_size": 8},
        config_hash="h",
        framework=None,
        device=Device("cpu", "x", "cpu/x", {}),
        conditions={"allocator": "tuned"},
        workers=1,
        versions={},
        git=None,
        time="2026-01-01T00:00:00Z",
        effective={"precision": "bfloat16"},
        build_seconds=0.0,
        compile_seconds=2.0,
        compile="fresh",
        first_step_seconds=0.0,
        rounds=Rounds(len(seconds), 1, "budget", ()),
        canary=Canary("arithmetic", [0.001] * 3, BEFORE_ROUNDS),
        items_per_round=items,
        throughput=rates,
        throughput_mean=rates.mean,
        latency=latency([0.005], "rounds"),
        compute=None,
        implausible=False,
        memory=Memory(10**9, "case", None),
        counters={},
        input=None,
        data={"mode": "real", "source": "a", "corrupt": []},
    )
    figures: Dict[str, Any] = dict.fromkeys(Stats.__struct_fields__, 0)
    stats = Stats(**{**figures, "data": list(seconds), "iterations": 1, "outliers": "0;0"})
    return Benchmark(
        fullname="bench.py::bench[case]",
        name="bench[case]",
        group=None,
        param=None,
        params=None,
        options={},
        stats=stats,
        extra_info=ExtraInfo(changed(record, changes)),
    )
