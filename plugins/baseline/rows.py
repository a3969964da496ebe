"""What a report is made of: a document of results, what the gate said, and one row per case."""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ipubench.plugins.gate.rule import log_cost
from ipubench.plugins.record.record import THROUGHPUT, processes_of, record_of
from ipubench.plugins.record.statistics import median
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import COMPARED, UNJUDGED, noisier

# In the order in which a reader wants to hear of them.
KINDS = (
    "regressed",
    "failed",
    "missing",
    "inconclusive",
    "incomparable",
    "improved",
    "new",
    "pass",
    UNJUDGED,
    "measured",
)
CHANGED = ("regressed", "failed", "missing", "inconclusive", "incomparable", "improved", "new")
MOST_NOISY = 5  # cases named
BAD = ("regressed", "failed", "missing")
# Words of a bench function's name that say what its cases run on; any other kernel is TensorFlow's.
FRAMEWORK_WORDS = ("tensorflow", "torch", "popart", "triton", "serving")
# Key of a row -> where a record has it.
FIGURES: Dict[str, Tuple[str, ...]] = {
    "precision": ("effective", "precision"),
    "device": ("device", "name"),
    "fingerprint": ("device", "fingerprint"),
    "throughput": ("throughput", "median"),
    "low": ("throughput", "low"),
    "high": ("throughput", "high"),
    "mean": ("throughput", "mean"),
    "min": ("throughput", "min"),
    "max": ("throughput", "max"),
    "spread": ("throughput", "spread"),
    "p50_ms": ("latency", "p50_ms"),
    "p90_ms": ("latency", "p90_ms"),
    "p99_ms": ("latency", "p99_ms"),
    "latency_samples": ("latency", "samples"),
    "latency_source": ("latency", "source"),
    "build_seconds": ("build_seconds",),
    "compile_seconds": ("compile_seconds",),
    "compile": ("compile",),
    "first_step_seconds": ("first_step_seconds",),
    "rounds": ("rounds", "count"),
    "batches_per_step": ("rounds", "batches_per_step"),
    "stopped_by": ("rounds", "stopped_by"),
    "host_memory_bytes": ("memory", "host_peak_rss_bytes"),
    "device_memory_bytes": ("memory", "device_peak_bytes"),
    "flops_per_item": ("compute", "flops_per_item"),
    "achieved_flops": ("compute", "achieved"),
    "peak_flops": ("compute", "peak"),
    "share": ("compute", "share"),
    "loader": ("input", "loader"),
    "model_alone": ("input", "model"),
    "config_hash": ("config_hash",),
    "allocator": ("conditions", "allocator"),
    "git": ("git",),
    "time": ("time",),
}


@dataclass
class Report:
    """One run, or stored documents, as the files of a report show it."""

    #: In pytest-benchmark's format, as a baseline holds it.
    document: Dict[str, Any]
    #: Node id -> what the gate said (``Verdict.as_dict()``); missing cases too.
    verdicts: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    #: Node id -> passed, failed, skipped.
    outcomes: Dict[str, str] = field(default_factory=dict)
    #: What it was compared with, or ''.
    baseline: str = ""
    #: What it was judged by, such as 'gate 5.0%'.
    gate: str = "no gate"
    command: str = ""
    started: Optional[float] = None  # seconds since 1970
    ended: Optional[float] = None
    interrupted: bool = False

    def rows(self) -> List[Dict[str, Any]]:
        """Return a row per measured case, then those that failed unmeasured or are missing."""
        measured = {b["fullname"]: b for b in self.document["benchmarks"]}
        rows = [self._row(nodeid, benchmark) for nodeid, benchmark in measured.items()]
        others = [case for case, outcome in self.outcomes.items() if outcome == "failed"]
        others += self.verdicts
        for nodeid in dict.fromkeys(others):
            if nodeid not in measured:
                rows.append(self._row(nodeid, {"fullname": nodeid}))
        return rows

    def _row(self, nodeid: str, benchmark: Dict[str, Any]) -> Dict[str, Any]:
        verdict = self.verdicts.get(nodeid, {})
        kind = verdict.get("kind", "measured")
        if self.outcomes.get(nodeid) == "failed" and kind not in ("regressed", "missing"):
            kind = "failed"
        return {
            **row_of(benchmark),
            "kind": kind,
            "before": verdict.get("before"),
            "now": verdict.get("now"),
            "change": verdict.get("change"),
            "change_low": verdict.get("low"),
            "change_high": verdict.get("high"),
            "threshold": verdict.get("threshold"),
            "metric": verdict.get("metric", "throughput") if verdict else None,
            "processes_now": verdict.get("processes"),
            "processes_before": verdict.get("processes_before"),
            "allowed": verdict.get("allowed"),
            "in_turns": bool(verdict.get("in_turns")),
            "reasons": reasons_of(verdict),
        }


def reasons_of(verdict: Dict[str, Any]) -> List[str]:
    """Return in words what else a verdict says: other metrics that changed, and its reasons."""
    found = []
    for other in verdict.get("also") or ():
        if other.get("kind") != "pass" and other.get("change") is not None:
            text = f"{other['metric']}: {percent(other['change'], sign=True)}"
            found.append(f"{text} ({interval_text(other)})")
    return [*found, *map(str, verdict.get("reasons") or ())]


def interval_text(verdict: Any) -> str:
    """Return the interval of the change, or '-'."""
    low, high = (None, None) if verdict is None else (verdict.get("low"), verdict.get("high"))
    if low is None or high is None:
        return "-"
    return f"{percent(low, sign=True)} to {percent(high, sign=True)}"


def dig(value: Any, *keys: str) -> Any:
    """Return ``value[key][key]...``, or None where a part is not there."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def row_of(benchmark: Dict[str, Any]) -> Dict[str, Any]:
    """Return the key figures of a benchmark, None where it has none: rates in items per second."""
    record = record_of(benchmark)
    nodeid = str(benchmark["fullname"])
    path, _, rest = nodeid.partition("::")
    function, _, identifier = rest.partition("[")
    config = dig(record, "config") or {}
    batch_size = config.get("batch_size", config.get("micro_batch_size"))
    name = str(record.get("name") or identifier.rstrip("]") or nodeid)
    processes = processes_of(benchmark) if record else []
    canaries = [value for process in processes for value in process["canaries"]]
    return {
        "id": nodeid,
        "name": name,
        "function": function,
        "file": path,
        "network": config.get("name"),
        "framework": framework_name(function, record) if record else None,
        "mode": config.get("mode"),
        "data": config.get("data"),
        "batch_size": batch_size,
        "instances": config.get("instances", 1) if record else None,
        "series": "-".join(word for word in name.split("-") if word != f"bs{batch_size}"),
        **{key: dig(record, *place) for key, place in FIGURES.items()},
        "unit": dig(record, "throughput", "unit"),
        "processes": len(processes) or None,
        "canary_ms": 1000 * median(canaries) if canaries else None,
        "implausible": bool(record.get("implausible")),
    }


def framework_name(function: str, record: Dict[str, Any]) -> str:
    """Return the record's framework; older records have none, and the function's name says it."""
    words = [word for word in FRAMEWORK_WORDS if word in function]
    return str(record.get("framework") or (words[0] if words else "tensorflow"))


def process_rows(benchmark: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return what each process of a case measured: rates of its rounds, milliseconds of canaries.

    ``speed``: what the gate compares, relative to the first process.
    """
    rows: List[Dict[str, Any]] = []
    processes = processes_of(benchmark)
    costs = [log_cost(process, THROUGHPUT) or 0.0 for process in processes]
    for process, cost in zip(processes, costs):
        items = process["items_per_round"]
        rows.append(
            {
                "fresh": bool(process.get("fresh")),
                "throughput": items / median(process["seconds"]),
                "speed": math.exp(costs[0] - cost),
                "rates": [items / value for value in process["seconds"]],
                "canaries_ms": [1000 * value for value in process["canaries"]],
                "p99_ms": process.get("latency_p99_ms"),
                "compile_seconds": process.get("compile_seconds"),
                "compile": process.get("compile"),
                "memory_bytes": process.get("memory_bytes"),
            }
        )
    return rows


def counts(rows: Sequence[Dict[str, Any]]) -> Dict[str, int]:
    """Return how many rows there are of each kind, in the order a reader wants them."""
    found = collections.Counter(row["kind"] for row in rows)
    return {kind: found[kind] for kind in KINDS if found[kind]}


def headline(report: Report, rows: Sequence[Dict[str, Any]]) -> str:
    """Return the one sentence that says how the run ended."""
    numbers = [f"{count} {kind}" for kind, count in counts(rows).items()]
    text = f"{_cases(len(rows))}: {', '.join(numbers) or 'none'}"
    if report.baseline:
        text += f", against {report.baseline} ({report.gate})"
    return text + ("; the run was interrupted" if report.interrupted else "")


def conclusion(report: Report, rows: Sequence[Dict[str, Any]]) -> str:
    """Return what matters most in a few words: what is wrong, or that nothing is."""
    found = counts(rows)
    wrong = [f"{found[kind]} {kind}" for kind in BAD if kind in found]
    judged = sum(found.get(kind, 0) for kind in COMPARED)
    cases = _cases(len(rows))
    if wrong:
        text = f"{', '.join(wrong)} of {cases}"
    elif judged:
        others = [f"{found[kind]} {kind}" for kind in ("inconclusive",) if kind in found]
        others += [f"{len(rows) - judged} not judged"] if len(rows) > judged else []
        text = ", ".join([f"No regression in {_cases(judged)}", *others])
    else:
        text = f"{cases} measured" + (", none judged" if report.baseline else "")
    return text + ("; the run was interrupted" if report.interrupted else "")


def _cases(count: int) -> str:
    return f"{count} case{'' if count == 1 else 's'}"


def own_noise(verdicts: Iterable[Tuple[str, Dict[str, Any]]]) -> str:
    """Return the line that names the cases whose own noise allows more than the gate, or ''.

    ``verdicts``: names of cases with their verdicts, or rows.
    """
    found = [
        (verdict["allowed"], name)
        for name, verdict in verdicts
        if verdict.get("kind") in COMPARED
        and noisier(verdict.get("threshold"), verdict.get("allowed"))
    ]
    if not found:
        return ""
    found.sort(reverse=True)
    names = ", ".join(f"{name} {percent(allowed)}" for allowed, name in found[:MOST_NOISY])
    more = f" and {len(found) - MOST_NOISY} more" if len(found) > MOST_NOISY else ""
    subject, whose = (
        ("1 case is", "its") if len(found) == 1 else (f"{len(found)} cases are", "their")
    )
    return f"{subject} allowed more than the gate, by {whose} own noise: {names}{more}"


def place(verdict: Dict[str, Any]) -> Tuple[int, float]:
    """Return where a verdict, or a row, stands among others: by its kind, then by its change."""
    kind, change = verdict.get("kind"), verdict.get("change")
    rank = KINDS.index(kind) if kind in KINDS else len(KINDS)
    return rank, 0.0 if change is None else change


def by_change(rows: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the rows with the worst first, and equals in the run's order."""
    return sorted(rows, key=place)


def environment(document: Dict[str, Any]) -> Dict[str, Dict[str, str]]:
    """Return group -> key -> value of what the cases ran with; all values where they differ."""
    groups: Dict[str, Dict[str, List[str]]] = {}
    for benchmark in document["benchmarks"]:
        record = record_of(benchmark)
        device = dig(record, "device") or {}
        parts = {
            "versions": dig(record, "versions") or {},
            "device": {
                **{key: device.get(key) for key in ("kind", "name", "fingerprint")},
                **(dig(device, "details") or {}),
            },
            "conditions": dig(record, "conditions") or {},
            "code": {"git": record.get("git")},
        }
        for group, values in parts.items():
            for key, value in _flat(values):
                seen = groups.setdefault(group, {}).setdefault(key, [])
                if value not in seen:
                    seen.append(value)
    machine = dict(dig(document, "machine_info") or {})
    if isinstance(machine.get("cpu"), dict):  # a hundred words that nobody reads
        machine["cpu"] = {k: v for k, v in machine["cpu"].items() if k != "flags"}
    for key, value in _flat(machine):
        groups.setdefault("machine", {})[key] = [value]
    return {
        group: {key: " | ".join(seen) for key, seen in values.items()}
        for group, values in groups.items()
    }


def _flat(values: Any, prefix: str = "") -> List[Tuple[str, str]]:
    """Return nested values as (dotted key, text)."""
    found: List[Tuple[str, str]] = []
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            found.append((f"{prefix}{key}", ", ".join(map(str, value))))
        elif value is not None:
            found.append((f"{prefix}{key}", str(value)))
    return found
