"""Shows a published throughput next to ours, for orientation and not as a verdict.

published.json has images per second of complete systems, each with its platform, SDK, batch and
source, but none with doubtful conditions. A case on an IPU gets the figure with the nearest
conditions, and a list of the differences; most cases get none.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

import msgspec

from ipubench.fixtures.case.options import IPUS_OF_SYSTEM
from ipubench.fixtures.schedule.batches import Batches
from ipubench.plugins.record.record import text_of
from ipubench.plugins.record.structs import Benchmark, Facts, Record

DATA_FILE = Path(__file__).with_name("published.json")
FRAMEWORKS = {
    "tensorflow": "TensorFlow 2",
    "torch": "PyTorch (PopTorch)",
    "popart": "PopART",
    "triton": "Triton",
}
#: Heads the lines, so that they do not look like verdicts.
HEADING = "published by others, for orientation only"
MOST_LINES = 12
# Weights of differences, in doublings of a batch. The chip and the number of IPUs weigh most; a
# batch of another scope weighs like any other condition, regardless of its number. A condition that
# one side does not state may be the same.
OF_HARDWARE, OF_A_WORD, OF_UNKNOWN = 4.0, 2.0, 0.5


@dataclass(frozen=True)
class Conditions:
    """The conditions of a throughput; None if unknown."""

    framework: Optional[str]
    chip: Optional[str]
    ipus: Optional[int]
    data: Optional[str]
    batch: Optional[int]
    batch_scope: str  # global, of one IPU, of a request, micro, or ''
    precision: Optional[str]
    variant: Optional[str]  # of the network

    def distance(self, other: Conditions) -> float:
        """Return the distance of two conditions: 0 if no difference is known."""
        same_scope = self.batch_scope == other.batch_scope
        apart = OF_HARDWARE * _doublings(self.ipus, other.ipus)
        apart += _apart(self.chip, other.chip, OF_HARDWARE)
        apart += _doublings(self.batch, other.batch) if same_scope else OF_A_WORD
        for name in ("framework", "data", "precision"):
            apart += _apart(getattr(self, name), getattr(other, name), OF_A_WORD)
        for name in ("variant", "batch_scope"):
            apart += OF_A_WORD * (getattr(self, name) != getattr(other, name))
        return apart

    def differences(self, here: Conditions) -> List[str]:
        """Return the conditions that differ here, as texts."""
        ours, theirs = here.in_words(), self.in_words()
        return [
            f"{name} {theirs[name] or 'not stated'}, here {value or 'not known'}"
            for name, value in ours.items()
            if theirs[name] != value
        ]

    def in_words(self) -> Dict[str, Union[str, int, None]]:
        """Return the label and the value of each condition."""
        return {
            "framework": self.framework,
            "chip": self.chip,
            "IPUs": self.ipus,
            "data": self.data,
            "batch": self.batch_text(),
            "precision": self.precision,
            "variant": self.variant or "none named",
        }

    def batch_text(self) -> str:
        """Return the batch as text; '' if unknown."""
        return "" if self.batch is None else f"{self.batch} {self.batch_scope}".strip()


@dataclass(frozen=True)
class Figure:
    """One published throughput, in images per second."""

    network: str
    mode: str
    conditions: Conditions
    platform: str
    sdk: Optional[str]
    throughput: float
    derived: bool  # computed from published times
    source: str
    note: str = ""  # on the run


@functools.lru_cache(maxsize=None)
def figures() -> Sequence[Figure]:
    """Return all published figures."""
    plain = json.loads(DATA_FILE.read_text(encoding="utf-8"))
    entries = [{**entry, "conditions": entry} for entry in plain]
    return msgspec.convert(entries, List[Figure])


def network_of(config: Facts) -> str:
    """Return the network of a configuration, with the figures' name for it, or ''."""
    model = str(config.get("model_name") or config.get("model") or "")
    size = config.get("model_size")
    if size is None or model not in ("resnet", "resnext", "efficientnet"):
        return model
    # The size of an EfficientNet may be b4, B4 or 4.
    word = str(size).lower().lstrip("b")
    return f"efficientnet-b{word}" if model == "efficientnet" else f"{model}{word}"


def conditions_of(record: Record) -> Conditions:
    """Return the conditions of a case's own throughput."""
    config = record.config
    micro = _count(config, "micro_batch_size")
    batch, scope = _count(config, "validation_micro_batch_size") or micro, "of one IPU"
    if config.get("mode") == "training" and micro is not None:
        batch, scope = _global_batch(config, micro), "global"
    elif "request_batch_size" in config or "request_type" in config:
        batch, scope = _count(config, "request_batch_size") or micro, "of a request"
    group = _count(config, "efficientnet_group_dim") or _count(config, "group_dim") or 1
    return Conditions(
        framework=FRAMEWORKS.get(record.framework or ""),
        chip=text_of(record.device.details, "chip") or None,
        ipus=_count(record.effective, "ipus") or IPUS_OF_SYSTEM.get(str(config.get("system"))),
        data=text_of(config, "data") or None,
        batch=batch,
        batch_scope=scope,
        precision=text_of(config, "precision") or None,
        variant=f"G{group}" if group > 1 else None,
    )


def _global_batch(config: Facts, micro: int) -> int:
    """Return the images per weight update; a configured global batch may be rounded."""
    whole = _count(config, "global_batch_size")
    accumulated = None if whole else _count(config, "gradient_accumulation_count") or 1
    replicas = _count(config, "replicas") or 1
    return Batches.of(micro, replicas, accumulated, whole).global_batch_size


def _count(values: Facts, name: str) -> Optional[int]:
    """Return an option that is a positive integer, or None."""
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def nearest(record: Record) -> Optional[Figure]:
    """Return the figure with the conditions nearest to a case's; None without one or an IPU."""
    config = record.config
    if record.device.kind != "ipu" or record.throughput.unit != "images/s":
        return None
    wanted, here = (network_of(config), config.get("mode")), conditions_of(record)
    fitting = [item for item in figures() if (item.network, item.mode) == wanted]
    return min(fitting, key=lambda item: item.conditions.distance(here), default=None)


def line_of(record: Record) -> str:
    """Return a line with the published figure, its conditions and how they differ, or ''."""
    found = nearest(record)
    if found is None:
        return ""
    stated = (found.platform, found.sdk, found.conditions.batch_text() or None)
    words = [*filter(None, stated[:2]), *([f"batch {stated[2]}"] if stated[2] else [])]
    how = f"; {found.note}" if found.note else ""
    how += "; computed from published times" if found.derived else ""
    differs = "; ".join(found.conditions.differences(conditions_of(record))) or "nothing known"
    return (
        f"{record.name}: {found.throughput:,.0f} images/s ({', '.join(words)}{how}; "
        f"{found.source}); differs: {differs}"
    )


def lines_of(benchmarks: Sequence[Benchmark]) -> List[str]:
    """Return a line for each case that has a published figure."""
    return list(filter(None, (line_of(benchmark.record) for benchmark in benchmarks)))


def last_lines(benchmarks: Sequence[Benchmark]) -> List[str]:
    """Return the lines for below a table, with a heading; limited to MOST_LINES."""
    found = lines_of(benchmarks)
    lines = [f"  {line}" for line in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        lines.append(f"  {len(found) - MOST_LINES} more are in the page that --report=DIR writes")
    return [f"{HEADING}:", *lines] if found else []


def _apart(one: Optional[str], other: Optional[str], weight: float) -> float:
    if one == other:
        return 0.0
    return OF_UNKNOWN if one is None or other is None else weight


def _doublings(one: Optional[int], other: Optional[int]) -> float:
    return abs(math.log2(one / other)) if one and other else 1.0
