"""Reads the share of time of each operation from the trace of a profiled call.

Reads traces of PyTorch and ONNX Runtime, JSON in Chrome's trace format. An operation's time
excludes the operations that it calls. If the trace has GPU kernels, only these count.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, DefaultDict, Dict, List, Sequence, Tuple

from ipubench.plugins.record.structs import GrownOperation, Operation

#: The largest share comes first.
Operations = Sequence[Operation]
#: Operations kept of a trace.
MOST_OPERATIONS = 100
#: The least growth of a share to report.
LEAST_GROWTH = 0.01
MOST_GROWN = 5

DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_EVENTS = ("cpu_op",)
Seconds = Dict[str, float]


def operations_in(folder: Path) -> Operations:
    """Return the operations of all readable traces in a folder."""
    total: DefaultDict[str, float] = defaultdict(float)
    for path in sorted(folder.rglob("*.json")):
        try:
            found = _of_chrome(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
            continue  # not a trace that we can read
        _add(total, found)
    seconds_of_all = sum(total.values())
    largest = sorted(total.items(), key=lambda entry: -entry[1])[:MOST_OPERATIONS]
    return [
        Operation(name, seconds / seconds_of_all, seconds)
        for name, seconds in largest
        if seconds > 0
    ]


def grown(before: Operations, now: Operations) -> List[GrownOperation]:
    """Return the operations whose share grew, largest growth first."""
    shares = {one.name: one for one in before}
    none = Operation("", 0.0, 0.0)
    both = [(shares.get(one.name, none), one) for one in now]
    found = [
        GrownOperation(new.name, old.share, new.share, old.seconds, new.seconds)
        for old, new in both
        if new.share - old.share >= LEAST_GROWTH
    ]
    return sorted(found, key=lambda one: one.before - one.now)[:MOST_GROWN]


def _add(total: DefaultDict[str, float], found: Seconds) -> None:
    for name, seconds in found.items():
        total[name] += seconds


def _of_chrome(trace: Any) -> Seconds:
    """Return operation -> seconds for a trace in Chrome's format, which has microseconds."""
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    events = [event for event in events if event.get("ph") == "X"]
    total: DefaultDict[str, float] = defaultdict(float)
    nodes = [event for event in events if event.get("cat") == "Node"]
    kernels = [event for event in events if event.get("cat") in DEVICE_EVENTS]
    if nodes:  # ONNX Runtime
        for event in nodes:
            if str(event["name"]).endswith("_kernel_time"):
                total[str(event["args"]["op_name"])] += event["dur"] / 1e6
    elif kernels:
        for event in kernels:
            total[str(event["name"])] += event["dur"] / 1e6
    else:
        threads: Dict[Tuple[Any, Any], List[Tuple[float, float, str]]] = defaultdict(list)
        for event in events:
            if event.get("cat") in HOST_EVENTS:
                entry = (float(event["ts"]), float(event["dur"]), str(event["name"]))
                threads[(event.get("pid"), event.get("tid"))].append(entry)
        for entries in threads.values():
            _add(total, {name: own / 1e6 for name, own in _own_times(entries).items()})
    return dict(total)


def _own_times(entries: Sequence[Tuple[float, float, str]]) -> Seconds:
    """Return name -> time, without nested events, for one thread's (start, duration, name)."""
    total: DefaultDict[str, float] = defaultdict(float)
    around: List[Tuple[float, str]] = []  # end and name of the open events
    for start, duration, name in sorted(entries, key=lambda entry: (entry[0], -entry[1])):
        while around and around[-1][0] <= start:
            around.pop()
        total[name] += duration
        if around:
            total[around[-1][1]] -= min(duration, around[-1][0] - start)
        around.append((start + duration, name))
    return dict(total)
