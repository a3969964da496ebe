"""What follows from a record alone: who ran its case, which rounds count, what a process is."""

from __future__ import annotations

import itertools
import statistics
from typing import List, NamedTuple, Optional, Sequence

from msgspec.structs import replace

from ipubench.fixtures.runtimes.step import MAY_BE_CACHED
from ipubench.plugins.record.statistics import quantile
from ipubench.plugins.record.structs import (
    Benchmark,
    Facts,
    Json,
    Process,
    Record,
)

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
# What a latency is of: calls of one batch each, which the rounds may be, or of a few batches.
ONE_BATCH, ONE_BATCH_ROUNDS = "single-batch calls", "rounds"
SEVERAL_BATCHES = "calls of several batches"
# Of items, FLOP, rates and times that a record is told: what it makes of them fits a baseline.
LEAST_AMOUNT, MOST_AMOUNT = 1e-20, 1e20


def named(nodeid: str, member: str) -> str:
    """Return what a case is called that is measured on each host: ``file::function[case@host]``."""
    return f"{nodeid[:-1]}@{member}]" if nodeid.endswith("]") else f"{nodeid}@{member}"


def unnamed(name: str, member: str) -> str:
    """Return what a case was called before."""
    bare, end = (name[:-1], "]") if name.endswith("]") else (name, "")
    return bare[: -len(member) - 1] + end if bare.endswith(f"@{member}") else name


def facts_in(facts: Json) -> Facts:
    """Return what is kept by names; nothing where it is of another form."""
    return facts if isinstance(facts, dict) else {}


def text_of(facts: Facts, name: str) -> str:
    """Return a text that is kept by a name; '' where there is none."""
    found = facts.get(name)
    return found if isinstance(found, str) else ""


def number_of(facts: Facts, name: str) -> Optional[float]:
    """Return a number that is kept by a name; None where there is none."""
    found = facts.get(name)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def of_test(benchmark: Benchmark) -> str:
    """Return the node id of the test that measured a benchmark, one of several or its own."""
    return benchmark.record.test or benchmark.fullname


def with_record(benchmark: Benchmark, record: Record) -> Benchmark:
    """Return a benchmark that holds this record."""
    return replace(benchmark, extra_info=replace(benchmark.extra_info, ipubench=record))


def is_timed(record: Record) -> bool:
    """Whether a record has times; else its instructions were counted, and one call was made."""
    return record.rounds.stopped_by != BY_COUNTS


def compile_text(compile: Optional[str], seconds: Optional[float]) -> str:
    """Return the seconds of a compilation, or how there was none; '' where nobody saw it.

    A command of a benchmarks.yml compiles by itself.
    """
    if compile in COMPILED and seconds is not None:
        return f"{seconds:.1f}"
    return REUSED if compile == REUSED else ""


def ran_by(record: Record) -> str:
    """Return what ran a case other than the framework as it is; '' where that did.

    An engine or XLA, and ``f32`` where a CPU that cannot compute with 16 bits took float32.
    """
    effective = record.effective
    engine = text_of(effective, "engine")
    words = [] if engine in PLAIN_ENGINES else [engine]
    if effective.get("xla") is True:
        words.append("XLA")
    asked, found = text_of(record.config, "precision"), effective.get("precision")
    if record.device.kind == "cpu" and asked.startswith("16") and found == "float32":
        words.append("f32")
    return " ".join(words)


def rounds_of(benchmark: Benchmark) -> List[float]:
    """Return the seconds of each round; the format has seconds per iteration, ours are batches."""
    stats = benchmark.stats
    return [value * stats.iterations for value in stats.data]


def was_disturbed(record: Record) -> bool:
    """Tell whether others left too few rounds of a case alone to judge by."""
    return record.contention.enough is False


def mean_lost(record: Record) -> float:
    """Return the mean share of its rounds' time that other programs took from a case."""
    return statistics.fmean(record.contention.lost)


def in_changing_states(lost: float) -> bool:
    """Tell whether too few rounds of a process are clean because the machine changed its state.

    ``lost`` is the mean share that others took. Where they are the cause, it is more than 2% of one
    round in three.
    """
    return lost < LEAST_TAKEN


def clean_rounds(benchmark: Benchmark) -> Sequence[bool]:
    """Tell of each round whether figures are made of it.

    Those that others disturbed are left out where enough others are left; where too few are left,
    or where nothing is known of others, all rounds count.
    """
    contention, rounds = benchmark.record.contention, len(benchmark.stats.data)
    known = contention.enough and len(contention.kept) == rounds
    return contention.kept if known else [True] * rounds


def sample_of(benchmark: Benchmark, fresh: bool) -> Process:
    """Return what a baseline keeps of the process that measured a benchmark.

    ``fresh``: the process measured this case alone. If it is clean only its clean rounds are kept;
    ``copy_ms`` is that of these, or the first quartile of all if none is clean.
    """
    record = benchmark.record
    contention = record.contention
    kept = clean_rounds(benchmark)
    canaries = record.canary.seconds
    one_each = record.canary.when != BEFORE_ROUNDS
    if one_each and len(canaries) == len(kept):
        canaries = list(itertools.compress(canaries, kept))
    process = Process(
        fresh=fresh,
        time=record.time,
        items_per_round=record.items_per_round,
        seconds=list(itertools.compress(rounds_of(benchmark), kept)),
        canaries=canaries,
        compile=record.compile,
        compile_seconds=record.compile_seconds,
        latency_p99_ms=record.latency.p99_ms,
        memory_bytes=record.memory.host_peak_rss_bytes,
    )
    if not contention.lost:
        return process
    copy, used = contention.copy_ms, contention.cpu_seconds
    if copy is None and contention.copies_ms:  # others lengthen some of them
        copy = quantile(contention.copies_ms, 0.25)
    return replace(
        process,
        clean=contention.enough,
        lost=mean_lost(record),
        copy_ms=copy,
        cpu_seconds=statistics.median(itertools.compress(used, kept))
        if len(used) == len(kept)
        else None,
    )


def processes_of(benchmark: Benchmark) -> Sequence[Process]:
    """Return the processes that measured a benchmark, the session's own first."""
    return benchmark.record.processes or [sample_of(benchmark, fresh=False)]


def with_processes(benchmark: Benchmark, fresh: Sequence[Benchmark] = ()) -> Benchmark:
    """Return a copy of a benchmark whose record holds its own process and the ``fresh`` ones."""
    processes = [sample_of(benchmark, fresh=False), *(sample_of(one, fresh=True) for one in fresh)]
    return with_record(benchmark, replace(benchmark.record, processes=processes))


THROUGHPUT = "throughput"
# Counted, not timed: plugins/count has the rule.
INSTRUCTIONS = "instructions"


class Metric(NamedTuple):
    """A figure of one process; of all of them less is better."""

    unit: str
    words: str


SCALARS = {
    "latency_p99": Metric("ms", "99% latency of a batch"),
    "compile_time": Metric("s", "time to compile"),
    "peak_memory": Metric("bytes", "peak memory of the host process"),
}
METRICS = (THROUGHPUT, *SCALARS, INSTRUCTIONS)


def value_of(process: Process, metric: str) -> Optional[float]:
    """Return a scalar metric of one process, or None where the process has none to compare.

    A model that was kept from an earlier compilation says nothing of the time to compile.
    """
    if metric == "latency_p99":
        value: float = process.latency_p99_ms
    elif metric == "peak_memory":
        value = process.memory_bytes
    else:
        value = process.compile_seconds if process.compile == "fresh" else 0.0
    return value if value > 0 else None


def items_per_batch(record: Record) -> float:
    """Return the items of one batch; of a round where that has no batches."""
    return record.items_per_round / max(1, record.rounds.batches_per_step)
