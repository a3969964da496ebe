"""Reads files of pytest-benchmark (``--benchmark-save``, ``--benchmark-json``) as baselines.

A file is one process of each of its cases. Without ``--benchmark-save-data`` it has only statistics
of the rounds, and the median stands for them.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from typing import Any, Dict, Mapping, Optional, Sequence

from ipubench.fixtures.case.cases import config_hash, effective_options
from ipubench.fixtures.case.options import plain_options
from ipubench.fixtures.case.untrusted import typed
from ipubench.plugins.record.record import IMPORTED, ITSELF, facts_in, text_of
from ipubench.plugins.record.statistics import latency, spread, throughput
from ipubench.plugins.record.structs import (
    NAMESPACE,
    Amount,
    AtLeastOne,
    Canary,
    Device,
    Facts,
    Json,
    Memory,
    Part,
    Positive,
    Record,
    Rounds,
    Throughput,
    as_plain,
)
from ipubench.plugins.selection.functions import Function, plain_name

UNIT = "calls"
#: A median's 95% interval is the median ± this times the interquartile range, over the root of
#: the number of rounds (McGill, Tukey and Larsen, Variations of Box Plots, 1978).
NOTCH = 1.57
COMMIT = re.compile("[0-9a-f]{1,64}")


class Statistics(Part, frozen=True):
    """What we read of the statistics of a case: seconds per call."""

    min: Positive
    max: Positive
    mean: Positive
    median: Positive
    iqr: Amount
    rounds: AtLeastOne
    iterations: AtLeastOne
    data: Sequence[Positive] = ()


def is_saved_file(plain: Json) -> bool:
    """Return whether a document is a file of pytest-benchmark, and no baseline of ours."""
    wanted = {"benchmarks": list, "machine_info": dict, "commit_info": dict, "datetime": str}
    return (
        isinstance(plain, dict)
        and NAMESPACE not in plain
        and all(isinstance(plain.get(name), kind) for name, kind in wanted.items())
    )


def with_records(plain: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the document with a record in each benchmark. Raises ValueError for a damaged one.

    A benchmark that has a record of ours and its rounds stays as it is.
    """
    return {**plain, "benchmarks": [_with_record(one, plain) for one in plain["benchmarks"]]}


def _with_record(one: Any, document: Mapping[str, Any]) -> Any:
    benchmark = facts_in(one)
    stats, extra = facts_in(benchmark.get("stats")), facts_in(benchmark.get("extra_info"))
    if NAMESPACE in extra and "data" in stats:
        return one
    try:
        found = typed(stats, Statistics)
    except ValueError as error:
        raise ValueError(f"{benchmark.get('fullname')}: stats: {error}") from None
    record = _record(text_of(benchmark, "name"), found, document)
    data = found.data or [found.median]
    return {
        **benchmark,
        "stats": {**stats, "data": data},
        "extra_info": {**extra, NAMESPACE: as_plain(record)},
    }


def _record(test: str, stats: Statistics, document: Mapping[str, Any]) -> Record:
    """Return a record that has what the file has; all other facts are unknown."""
    config = Function(name=plain_name(test) or "test")
    machine, commit = document["machine_info"], document["commit_info"]
    python = {"python": text_of(machine, "python_version"), "python-build": _build(machine)}
    rates = _throughput(stats)
    return Record(
        format=1,
        name=config.name,
        config=plain_options(config),
        overrides=(),
        effective_options=effective_options(config, frozenset()),
        config_hash=config_hash(config, frozenset()),
        framework="python",
        device=_device(machine),
        conditions={},
        workers=1,
        versions={**python, "pytest-benchmark": text_of(document, "version")},
        git=_revision(commit),
        time=_time(document["datetime"]),
        effective={"measured_by": IMPORTED},
        build_seconds=0.0,
        compile_seconds=0.0,
        compile="none",
        first_step_seconds=0.0,
        rounds=Rounds(stats.rounds, stats.iterations, ITSELF, ()),
        canary=Canary("none", (), "never"),
        items_per_round=float(stats.iterations),
        throughput=rates,
        throughput_mean=rates.mean,
        latency=latency(stats.data or [stats.median], ITSELF),
        compute=None,
        implausible=False,
        memory=Memory(0, "unknown", None),
        counters={},
        input=None,
        data={},
    )


def _throughput(stats: Statistics) -> Throughput:
    if stats.data:
        seconds = [value * stats.iterations for value in stats.data]
        return throughput(seconds, stats.iterations, UNIT)
    half = NOTCH * stats.iqr / math.sqrt(stats.rounds)
    low = 1 / min(stats.median + half, stats.max)
    high = 1 / max(stats.median - half, stats.min)
    return Throughput(
        unit=f"{UNIT}/s",
        spread=spread(1 / stats.median, low, high),
        median=1 / stats.median,
        low=low,
        high=high,
        mean=1 / stats.mean,
        min=1 / stats.max,
        max=1 / stats.min,
    )


def _device(machine: Facts) -> Device:
    """Return the machine's CPU, with a fingerprint that names pytest-benchmark."""
    cpu = facts_in(machine.get("cpu"))
    names = (text_of(cpu, "brand_raw"), text_of(machine, "processor"), text_of(machine, "machine"))
    name = next(filter(None, names), "unknown CPU")
    fingerprint = f"{ITSELF}/{name}/{cpu.get('count', '?')} CPUs"
    return Device("cpu", name, fingerprint, {"node": text_of(machine, "node")})


def _build(machine: Facts) -> str:
    """Return Python's compiler and build time, as our own records have them."""
    build = machine.get("python_build")
    moment = build[1] if isinstance(build, list) and len(build) == 2 else ""
    return " ".join(f"{text_of(machine, 'python_compiler')}, {moment}".split())


def _revision(commit: Facts) -> Optional[str]:
    revision = text_of(commit, "id")
    dirty = "-dirty" if commit.get("dirty") is True else ""
    return f"{revision}{dirty}" if COMMIT.fullmatch(revision) else None


def _time(text: str) -> str:
    """Return a time as records have it. Raises ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
