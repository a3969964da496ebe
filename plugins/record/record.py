"""The record of a case: what its number was, and everything needed to judge it later.

A record is the value of ``extra_info["ipubench"]`` in a benchmark of pytest-benchmark's format.
The rounds themselves stay where that format keeps them, in ``stats["data"]``, in seconds per batch.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional

from ipubench.fixtures.case.cases import Case, config_hash, effective_options
from ipubench.fixtures.case.options import plain_options
from ipubench.plugins.record.statistics import Throughput

NAMESPACE = "ipubench"
# A case that claims more than this share of the measured peak did not do its work.
LARGEST_CREDIBLE_SHARE = 1.25


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


def describe_case(case: Case) -> Dict[str, Any]:
    """Return the part of a record that the configuration decides."""
    return {
        "name": case.id,
        "config": plain_options(case.config),
        "overrides": sorted(case.overrides),
        "effective_options": effective_options(case.config, case.overrides),
        "config_hash": config_hash(case.config, case.overrides),
    }


def describe_throughput(seconds: List[float], items: float, unit: str) -> Dict[str, Any]:
    """Return the throughput part of a record; ``items`` per round."""
    summary = Throughput.of(seconds, items)
    return {"unit": f"{unit}/s", "spread": summary.spread, **dataclasses.asdict(summary)}


def record_of(benchmark: Dict[str, Any]) -> Dict[str, Any]:
    """Return the record inside a benchmark of pytest-benchmark's format; {} if there is none."""
    record = benchmark.get("extra_info", {}).get(NAMESPACE, {})
    return record if isinstance(record, dict) else {}


def rounds_of(benchmark: Dict[str, Any]) -> List[float]:
    """Return the seconds of each round; the format has seconds per iteration, ours are batches."""
    iterations = benchmark["stats"].get("iterations", 1)
    return [value * iterations for value in benchmark["stats"]["data"]]
