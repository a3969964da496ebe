"""The record of a case: what its number was, and everything needed to judge it later.

A record is the value of ``extra_info["ipubench"]`` in a benchmark of pytest-benchmark's format.
The rounds themselves stay where that format keeps them, in ``stats["data"]``, in seconds per batch.

A sample is what is kept of one process that measured the case. It is the independent unit of a
comparison: its rounds share its memory layout and are correlated. A record holds its samples under
``processes``; a record of the journal, which one process wrote, has none and stands for itself.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.runtimes.step import MAY_BE_CACHED
from ipubench.plugins.record.statistics import Throughput, quantile

NAMESPACE = "ipubench"
# What frameworks run a case with by themselves.
PLAIN_ENGINES = ("", "eager", "tensorflow", "poptorch", "popart", "tensorflow-ipu")
# How a record says that a case compiled by itself, or took what an earlier run had compiled.
COMPILED = ("fresh", "cached", MAY_BE_CACHED)
# The same of what an earlier case of the run had compiled.
REUSED = "reused"
# Who measured, in a record's ``effective``, where that was not our meter.
ITSELF = "pytest-benchmark"
# What ended the rounds of a case that made one call, because its instructions decide.
BY_COUNTS = "instructions are counted"
# When canaries are timed that are not one for each round.
BEFORE_ROUNDS = "before the rounds"
# The least mean share of the time with which other programs can leave too few rounds alone.
LEAST_TAKEN = 0.006
# A case that claims more than this share of the measured peak did not do its work.
LARGEST_CREDIBLE_SHARE = 1.25
# What a latency is of: calls of one batch each, which the rounds may be, or of a few batches.
ONE_BATCH, ONE_BATCH_ROUNDS = "single-batch calls", "rounds"
SEVERAL_BATCHES = "calls of several batches"
# Of items, FLOP, rates and times that a record is told: what it makes of them fits a baseline.
LEAST_AMOUNT, MOST_AMOUNT = 1e-20, 1e20


@dataclasses.dataclass
class Compute:
    """Floating-point work per second against what the device was seen to reach."""

    flops_per_item: float
    achieved: float
    peak: Optional[float]

    @property
    def share(self) -> Optional[float]:
        """Achieved over peak, or None without a peak."""
        return self.achieved / self.peak if self.peak else None

    @property
    def credible(self) -> bool:
        """Whether the work can have been done."""
        return self.share is None or self.share <= LARGEST_CREDIBLE_SHARE

    def as_dict(self) -> Dict[str, Any]:
        """Return JSON values; FLOP per item and FLOP/s."""
        return {**dataclasses.asdict(self), "share": self.share}


def named(nodeid: str, member: str) -> str:
    """Return what a case is called that is measured on each host: ``file::function[case@host]``."""
    return f"{nodeid[:-1]}@{member}]" if nodeid.endswith("]") else f"{nodeid}@{member}"


def unnamed(name: str, member: str) -> str:
    """Return what a case was called before."""
    bare, end = (name[:-1], "]") if name.endswith("]") else (name, "")
    return bare[: -len(member) - 1] + end if bare.endswith(f"@{member}") else name


def describe_throughput(seconds: List[float], items: float, unit: str) -> Dict[str, Any]:
    """Return the throughput part of a record; ``items`` per round."""
    summary = Throughput.of(seconds, items)
    return {"unit": f"{unit}/s", "spread": summary.spread, **dataclasses.asdict(summary)}


def spread_of(record: Dict[str, Any]) -> Optional[float]:
    """Return half the interval of a record's throughput over it; None where one round was timed."""
    if not record or record.get("rounds", {}).get("count") == 1:
        return None
    return float(record["throughput"]["spread"])


def record_of(benchmark: Dict[str, Any]) -> Dict[str, Any]:
    """Return the record inside a benchmark of pytest-benchmark's format; {} if there is none."""
    extra = benchmark.get("extra_info")
    record = extra.get(NAMESPACE) if isinstance(extra, dict) else None
    return record if isinstance(record, dict) else {}


def of_test(benchmark: Dict[str, Any]) -> str:
    """Return the node id of the test that measured a benchmark, one of several or its own."""
    return str(record_of(benchmark).get("test", benchmark["fullname"]))


def with_record(benchmark: Dict[str, Any], record: Dict[str, Any]) -> Dict[str, Any]:
    """Return a copy of a benchmark that holds this record."""
    return {**benchmark, "extra_info": {**benchmark["extra_info"], NAMESPACE: record}}


def spent_of(benchmark: Dict[str, Any]) -> Dict[str, float]:
    """Return the seconds of each part of a case's time; empty where none is known."""
    spent = record_of(benchmark).get("spent")
    found = spent.items() if isinstance(spent, dict) else ()
    return {part: float(seconds) for part, seconds in found if isinstance(seconds, (int, float))}


def is_timed(record: Mapping[str, Any]) -> bool:
    """Whether a record has times; else its instructions were counted, and one call was made."""
    return bool(record.get("rounds", {}).get("stopped_by") != BY_COUNTS)


def compile_text(record: Mapping[str, Any]) -> str:
    """Return the seconds of a compilation, or how there was none; '' where nobody saw it.

    A command of a benchmarks.yml compiles by itself.
    """
    if record["compile"] in COMPILED:
        return f"{record['compile_seconds']:.1f}"
    return REUSED if record["compile"] == REUSED else ""


def ran_by(record: Dict[str, Any]) -> str:
    """Return what ran a case other than the framework as it is; '' where that did.

    An engine or XLA, and ``f32`` where a CPU that cannot compute with 16 bits took float32.
    """
    effective = record.get("effective") or {}
    engine = str(effective.get("engine") or "")
    words = [] if engine in PLAIN_ENGINES else [engine]
    if effective.get("xla") is True:
        words.append("XLA")
    asked = str((record.get("config") or {}).get("precision", ""))
    on_cpu = (record.get("device") or {}).get("kind") == "cpu"
    if on_cpu and asked.startswith("16") and effective.get("precision") == "float32":
        words.append("f32")
    return " ".join(words)


def rounds_of(benchmark: Dict[str, Any]) -> List[float]:
    """Return the seconds of each round; the format has seconds per iteration, ours are batches."""
    iterations = benchmark["stats"].get("iterations", 1)
    return [value * iterations for value in benchmark["stats"]["data"]]


def was_disturbed(record: Dict[str, Any]) -> bool:
    """Tell whether others left too few rounds of a case alone to judge by."""
    contention = record.get("contention", {})
    return contention.get("enough") is False and bool(contention["lost"])


def mean_lost(record: Dict[str, Any]) -> float:
    """Return the mean share of its rounds' time that other programs took from a case."""
    return statistics.fmean(record["contention"]["lost"])


def in_changing_states(lost: float) -> bool:
    """Tell whether too few rounds of a process are clean because the machine changed its state.

    ``lost`` is the mean share that others took. Where they are the cause, it is more than 2% of one
    round in three.
    """
    return lost < LEAST_TAKEN


def clean_rounds(benchmark: Dict[str, Any]) -> List[bool]:
    """Tell of each round whether figures are made of it.

    Those that others disturbed are left out where enough others are left; where too few are left,
    or where nothing is known of others, all rounds count.
    """
    rounds = len(benchmark["stats"]["data"])
    contention = record_of(benchmark).get("contention", {})
    kept: List[bool] = contention.get("kept", [])
    return kept if contention.get("enough") and len(kept) == rounds else [True] * rounds


def sample_of(benchmark: Dict[str, Any], fresh: bool) -> Dict[str, Any]:
    """Return what a baseline keeps of the process that measured a benchmark.

    ``fresh``: the process measured this case alone. ``seconds`` are those of each round, and
    ``canaries`` those of the canary; ``compile`` says whether ``compile_seconds`` are comparable.
    ``clean``: whether enough rounds were clean to judge by, and only those are kept. ``lost`` is
    the mean share of a round's time that others took; ``copy_ms``: of a
    copy in memory in the rounds that count, or the first quartile of all if none does, which shows
    the machine's state. ``cpu_seconds``: the
    median CPU time of a round. All four are missing where nothing tells.
    """
    record = record_of(benchmark)
    kept = clean_rounds(benchmark)
    canaries = record["canary"]["seconds"]
    one_each = record["canary"].get("when") != BEFORE_ROUNDS
    if one_each and len(canaries) == len(kept):
        canaries = [seconds for seconds, clean in zip(canaries, kept) if clean]
    others = {}
    if record.get("contention", {}).get("lost"):
        contention = record["contention"]
        others = {"clean": contention["enough"], "lost": mean_lost(record)}
        if "copy_ms" in contention:
            others["copy_ms"] = contention["copy_ms"]
        elif contention.get("copies_ms"):  # others lengthen some of them
            others["copy_ms"] = quantile(contention["copies_ms"], 0.25)
        used = contention.get("cpu_seconds", [])
        if len(used) == len(kept):
            others["cpu_seconds"] = statistics.median(itertools.compress(used, kept))
    return {
        "fresh": fresh,
        "time": record["time"],
        "items_per_round": record["items_per_round"],
        "seconds": [one for one, clean in zip(rounds_of(benchmark), kept) if clean],
        "canaries": canaries,
        **others,
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
    return with_record(benchmark, {**record_of(benchmark), "processes": processes})


THROUGHPUT = "throughput"
# Counted, not timed: plugins/count has the rule.
INSTRUCTIONS = "instructions"


@dataclasses.dataclass(frozen=True)
class Metric:
    """A figure of one process; of all of them less is better."""

    key: str  # in a sample
    unit: str
    words: str


SCALARS: Dict[str, Metric] = {
    "latency_p99": Metric("latency_p99_ms", "ms", "99% latency of a batch"),
    "compile_time": Metric("compile_seconds", "s", "time to compile"),
    "peak_memory": Metric("memory_bytes", "bytes", "peak memory of the host process"),
}
METRICS = (THROUGHPUT, *SCALARS, INSTRUCTIONS)


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


def same_latency(now: Dict[str, Any], before: Dict[str, Any]) -> bool:
    """Tell whether the latencies of two records are of calls alike; some do not say."""
    ours, theirs = (one["latency"].get("source") for one in (now, before))
    alike = {ours, theirs} <= {ONE_BATCH, ONE_BATCH_ROUNDS}
    return alike or ours == theirs or None in (ours, theirs)


def items_per_batch(record: Dict[str, Any]) -> Optional[float]:
    """Return the items of one batch; None where a record does not say how many a round has."""
    batches = record.get("rounds", {}).get("batches_per_step")
    return float(record["items_per_round"]) / batches if batches else None


def other_items(now: Dict[str, Any], before: Dict[str, Any]) -> List[str]:
    """Return in words that a batch has other items, or items of another kind; else nothing.

    What a round has is no difference: it depends on the machine, and a rate does not.
    """
    found = []
    units = [one["throughput"]["unit"] for one in (before, now)]
    if units[0] != units[1]:
        found.append(f"unit {units[0]} -> {units[1]}")
    items = [items_per_batch(one) for one in (before, now)]
    if None not in items and not math.isclose(items[0], items[1]):  # type: ignore[arg-type]
        found.append(f"{items[0]:,.12g} items a batch, now {items[1]:,.12g}")
    return found


def changed_extra_info(
    now: Dict[str, Any], before: Dict[str, Any], keys: Optional[Sequence[str]] = None
) -> List[str]:
    """Return in words how the ``extra_info`` of a test differs in two benchmarks.

    ``keys``: look at these only; else at all but the record, which is in it as well.
    """
    ours, theirs = now["extra_info"], before["extra_info"]
    return [
        f"extra_info {key} {shortened(theirs.get(key))} -> {shortened(ours.get(key))}"
        for key in sorted({*ours, *theirs} - {NAMESPACE} if keys is None else keys)
        if ours.get(key) != theirs.get(key)
    ]


def changed_settings(now: Dict[str, Any], before: Dict[str, Any]) -> List[str]:
    """Return in words which settings of pytest-benchmark that decide a result differ.

    The meter has a clock and a warm-up of its own. Records without settings differ in none.
    """
    names = ["disable_gc"]
    if record_of(now)["effective"].get("measured_by"):
        names += ["timer", "warmup"]
    ours, theirs = (one.get("options") or {} for one in (now, before))
    return [
        f"{name} {theirs[name]} -> {ours[name]}"
        for name in names
        if name in ours and name in theirs and ours[name] != theirs[name]
    ]


def differences(now: Dict[str, Any], before: Dict[str, Any]) -> List[str]:
    """Return why two records may not be compared, in words; empty where they may."""
    found = other_items(now, before)
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
    ours, theirs = at_once(now), at_once(before)
    if ours != theirs:
        found.append(f"requests sent at once ({theirs} of those configured, now {ours})")
    ours, theirs = _source(now), _source(before)
    if ours != theirs:
        found.append(f"other data ({theirs}, now {ours})")
    if bool(now["canary"]["seconds"]) != bool(before["canary"]["seconds"]):
        found.append("canaries on one side only")
    return found


def at_once(record: Dict[str, Any]) -> float:
    """Return which share of a round's requests wait at once, as each then waits longer; else 1."""
    asynchronous = record["effective"].get("request_type") == "async"
    share = record.get("rounds", {}).get("shortened", 1.0) if asynchronous else 1.0
    return float(share)


def _source(record: Dict[str, Any]) -> str:
    """Return what the input was, without the unreadable files that happened to be met."""
    return ", ".join(f"{k} {v}" for k, v in sorted(record["data"].items()) if k != "corrupt")
