"""Derives facts from a record: who ran the case, which rounds count, what a process measured."""

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

# The engines that frameworks use by default.
PLAIN_ENGINES = ("", "eager", "tensorflow", "poptorch", "popart", "tensorflow-ipu")
# Values of ``compile``: the case compiled, or reused what an earlier run had compiled.
COMPILED = ("fresh", "cached", MAY_BE_CACHED)
# The case reused what an earlier case of the same run had compiled.
REUSED = "reused"
# Value of ``effective["measured_by"]`` if our meter did not measure.
ITSELF = "pytest-benchmark"
# The same for a case of a file of pytest-benchmark.
IMPORTED = "pytest-benchmark's file"
# What ended the rounds of a case that made one call, because its instructions decide.
BY_COUNTS = "instructions are counted"
# When canaries are timed if not once per round.
BEFORE_ROUNDS = "before the rounds"
# Other programs leave too few clean rounds only if they take at least this mean share of the time.
LEAST_TAKEN = 0.006
# The calls that a latency measures: of one batch, which may be the rounds, or of several.
ONE_BATCH, ONE_BATCH_ROUNDS = "single-batch calls", "rounds"
SEVERAL_BATCHES, OVER_BATCHES = "calls of several batches", "rounds over batches per step"
# Limits of given items, FLOP, rates and times, so that derived values fit into a baseline.
LEAST_AMOUNT, MOST_AMOUNT = 1e-20, 1e20


def facts_in(facts: Json) -> Facts:
    """Return a dict of facts; an empty one if the value is not a dict."""
    return facts if isinstance(facts, dict) else {}


def text_of(facts: Facts, name: str) -> str:
    """Return a text among facts, or ''."""
    found = facts.get(name)
    return found if isinstance(found, str) else ""


def number_of(facts: Facts, name: str) -> Optional[float]:
    """Return a number among facts, or None."""
    found = facts.get(name)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def of_test(benchmark: Benchmark) -> str:
    """Return the node id of the test that measured a benchmark; a test may have several."""
    return benchmark.record.test or benchmark.fullname


def with_record(benchmark: Benchmark, record: Record) -> Benchmark:
    """Return a copy of a benchmark with this record."""
    return replace(benchmark, extra_info=replace(benchmark.extra_info, ipubench=record))


def is_imported(record: Record) -> bool:
    """Return whether a record was made from a file of pytest-benchmark, which has few facts."""
    return record.effective.get("measured_by") == IMPORTED


def is_timed(record: Record) -> bool:
    """Whether a record has times; else its instructions were counted, and one call was made."""
    return record.rounds.stopped_by != BY_COUNTS


def compile_text(compile: Optional[str], seconds: Optional[float]) -> str:
    """Return the seconds of a compilation, or that it was reused; '' if unknown.

    It is unknown for a command of a benchmarks.yml, which compiles on its own.
    """
    if compile in COMPILED and seconds is not None:
        return f"{seconds:.1f}"
    return REUSED if compile == REUSED else ""


def ran_by(record: Record) -> str:
    """Return what ran a case, if not the framework's default, or ''.

    This is an engine or XLA, and ``f32`` if a CPU without 16-bit arithmetic used float32.
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
    """Return the seconds of each round; the format stores seconds per iteration (batch)."""
    stats = benchmark.stats
    return [value * stats.iterations for value in stats.data]


def was_disturbed(record: Record) -> bool:
    """Return whether a case has too few clean rounds to be judged."""
    return record.contention.enough is False


def mean_lost(record: Record) -> float:
    """Return the mean share of the rounds' time that other programs took."""
    return statistics.fmean(record.contention.lost)


def in_changing_states(lost: float) -> bool:
    """Return whether too few rounds are clean because the machine changed its state.

    ``lost`` is the mean share that other programs took. If they were the cause, they took more than
    2% of every third round.
    """
    return lost < LEAST_TAKEN


def clean_rounds(benchmark: Benchmark) -> Sequence[bool]:
    """Return, for each round, whether it counts.

    Disturbed rounds do not count if enough clean ones are left. If too few are left, or nothing is
    known about disturbance, all rounds count.
    """
    contention, rounds = benchmark.record.contention, len(benchmark.stats.data)
    known = contention.enough and len(contention.kept) == rounds
    return contention.kept if known else [True] * rounds


def sample_of(benchmark: Benchmark, fresh: bool) -> Process:
    """Return the measurements of one process, as a baseline stores them.

    ``fresh``: the process measured only this case. A clean process keeps only its clean rounds;
    ``copy_ms`` comes from these, or is the first quartile of all if none is clean.
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
        energy=joules_per_item(record),
    )
    if not contention.lost:
        return process
    copy, used = contention.copy_ms, contention.cpu_seconds
    if copy is None and contention.copies_ms:  # other programs lengthen some of them
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
# Measured with --energy only.
ENERGY = "energy"
# Counted, not timed: plugins/count has the rule.
INSTRUCTIONS = "instructions"


class Metric(NamedTuple):
    """A lower-is-better metric of one process."""

    unit: str
    words: str


SCALARS = {
    "latency_p99": Metric("ms", "99% latency of a batch"),
    "compile_time": Metric("s", "time to compile"),
    "peak_memory": Metric("bytes", "peak memory of the host process"),
    ENERGY: Metric("J", "energy per item"),
}
METRICS = (THROUGHPUT, *SCALARS, INSTRUCTIONS)


def value_of(process: Process, metric: str) -> Optional[float]:
    """Return a scalar metric of one process, or None if it has no comparable value.

    A model from the cache has no time to compile.
    """
    if metric == "latency_p99":
        value: float = process.latency_p99_ms
    elif metric == "peak_memory":
        value = process.memory_bytes
    elif metric == ENERGY:
        value = process.energy or 0.0
    else:
        value = process.compile_seconds if process.compile == "fresh" else 0.0
    return value if value > 0 else None


def joules_per_item(record: Record) -> Optional[float]:
    """Return the energy of an item, or None if it was not measured."""
    return record.energy.per_item if record.energy else None


def items_per_batch(record: Record) -> float:
    """Return the items of one batch, or of a round if it has no batches."""
    return record.items_per_round / max(1, record.rounds.batches_per_step)
