"""The throughput of a case with its interval, as every table and file shows it. Pure functions."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any, Dict, Optional

from ipubench.plugins.gate.countable import deciding
from ipubench.plugins.gate.metric_verdict import typical
from ipubench.plugins.record.record import THROUGHPUT, processes_of, record_of, spread_of
from ipubench.plugins.record.statistics import Throughput, median_interval


def throughput_of(benchmark: Dict[str, Any]) -> Dict[str, Any]:
    """Return the throughput of a case with its interval and spread, as a record holds it.

    Of one process it is the record's own. Of several it is what a comparison shows of those that
    decide, with the 95% interval between them; mean, min and max are of all their rounds.
    """
    if len(processes_of(benchmark) if record_of(benchmark) else ()) < 2:
        return _of_own_process(benchmark)
    processes = deciding(benchmark)
    each = [Throughput.of(one["seconds"], one["items_per_round"]) for one in processes]
    rates = [one["items_per_round"] / value for one in processes for value in one["seconds"]]
    low, high = each[0].low, each[0].high
    if len(each) > 1:
        low, high = median_interval([one.median for one in each])
    whole = Throughput(
        median=typical(processes, THROUGHPUT),
        low=low,
        high=high,
        mean=fmean(rates),
        min=min(rates),
        max=max(rates),
    )
    return {**_of_own_process(benchmark), **vars(whole), "spread": whole.spread}


def shown_throughput(
    benchmark: Dict[str, Any], verdict: Optional[Dict[str, Any]]
) -> Dict[str, Any]:
    """Return the throughput that stands beside a verdict: the figure that was compared.

    With the interval of the processes that it is of. It may be of none of the benchmark's: of
    pairs, which have processes of their own. Then nothing but the figure is known.
    """
    found, compared = throughput_of(benchmark), verdict or {}
    now = compared.get("now")
    if now is None or not found:
        return found
    elsewhere = compared.get("in_turns") or compared.get("by_cpu_time")
    for one in () if elsewhere else (found, _of_own_process(benchmark)):
        if math.isclose(one["median"], now):  # but for what logarithms are rounded by
            return one
    return {**dict.fromkeys(found), "unit": found["unit"], "median": now}


def shown_compute(benchmark: Dict[str, Any], throughput: Dict[str, Any]) -> Dict[str, Any]:
    """Return the FLOP/s and the share of the peak that a shown throughput means, None if unknown.

    The record has those of the session's own process.
    """
    record = record_of(benchmark)
    compute = record.get("compute") or {}
    known = {key: compute[key] for key in ("achieved", "share") if compute.get(key) is not None}
    factor = throughput["median"] / record["throughput"]["median"] if known else 1.0
    return {"achieved": None, "share": None, **{key: factor * known[key] for key in known}}


def _of_own_process(benchmark: Dict[str, Any]) -> Dict[str, Any]:
    """Return what the process of the session found; a single round has no interval."""
    record = record_of(benchmark)
    if not record:
        return {}
    spread = spread_of(record)
    unknown = {"low": None, "high": None} if spread is None else {}
    return {**record["throughput"], "spread": spread, **unknown}
