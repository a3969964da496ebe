"""The processes that measured one case: what a baseline keeps of each, and what the gate compares.

A process is the independent unit of a comparison: its rounds share its memory layout and are
correlated. A record holds its processes under ``processes``; a record of the journal, which one
process wrote, has none and stands for itself.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from plugins.record import NAMESPACE, record_of, rounds_of


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
