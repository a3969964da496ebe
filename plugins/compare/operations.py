"""Where the time of a profiled call went: the share of each operation, from a framework's trace.

Three kinds of trace are read, all without the framework: PyTorch's and ONNX Runtime's JSON, in
Chrome's trace format, and TensorFlow's ``xplane.pb``. An operation's time is its own, without that
of the operations it calls. Where a GPU worked, its kernels count.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, DefaultDict, Dict, Iterator, List, Sequence, Tuple, Union

#: One operation: name, share of the time of all (0 to 1), seconds. The largest share comes first.
Operations = List[Dict[str, Any]]
#: Kept of a trace.
MOST_OPERATIONS = 100
#: A change of share that is worth a word.
LEAST_GROWTH = 0.01
MOST_GROWN = 5

DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_EVENTS = ("cpu_op",)
#: TensorFlow's name of an operation that ran: the node and its type.
NODE = re.compile(r"[\w./-]+:(\w+)")
#: Fields of TensorFlow's XSpace, XPlane, XLine and XEvent (tsl/profiler/protobuf/xplane.proto).
PLANES, PLANE_NAME, LINES, METADATA = 1, 2, 3, 4
EVENTS, EVENT_ID, EVENT_DURATION = 4, 1, 3
METADATA_VALUE, METADATA_NAME = 2, 2
LINE_NAME = 2
#: Lines of a GPU's plane that say again, coarser, what its streams say.
DERIVED_LINES = ("XLA Modules", "XLA Ops", "TensorFlow Name Scope", "TensorFlow Ops", "Steps")

Seconds = Dict[str, float]


def operations_in(folder: Path) -> Operations:
    """Return the operations of all traces in a folder; none where there is no trace to be read."""
    total: DefaultDict[str, float] = defaultdict(float)
    for path in sorted(folder.rglob("*")):
        try:
            if path.suffix == ".json":
                found = _of_chrome(json.loads(path.read_text(encoding="utf-8")))
            elif path.name.endswith(".xplane.pb"):
                found = _of_xspace(path.read_bytes())
            else:
                continue
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
            continue  # a trace of another form says nothing
        _add(total, found)
    whole = sum(total.values())
    largest = sorted(total.items(), key=lambda entry: -entry[1])[:MOST_OPERATIONS]
    return [
        {"name": name, "share": seconds / whole, "seconds": seconds}
        for name, seconds in largest
        if seconds > 0
    ]


def grown(before: Operations, now: Operations) -> List[Dict[str, Any]]:
    """Return the operations whose share grew, the one that grew most first."""
    shares = {one["name"]: one for one in before}
    found = []
    for one in now:
        old = shares.get(one["name"], {"share": 0.0, "seconds": 0.0})
        found.append(
            {
                "name": one["name"],
                "before": old["share"],
                "now": one["share"],
                "seconds_before": old["seconds"],
                "seconds_now": one["seconds"],
            }
        )
    found = [one for one in found if one["now"] - one["before"] >= LEAST_GROWTH]
    return sorted(found, key=lambda one: one["before"] - one["now"])[:MOST_GROWN]


def _add(total: DefaultDict[str, float], found: Seconds) -> None:
    for name, seconds in found.items():
        total[name] += seconds


def _of_chrome(trace: Any) -> Seconds:
    """Return operation -> seconds of a trace in Chrome's format; its times are microseconds."""
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
    """Return name -> time without that of events inside; of a thread's start, duration, name."""
    total: DefaultDict[str, float] = defaultdict(float)
    around: List[Tuple[float, str]] = []  # end and name of the events that are open
    for start, duration, name in sorted(entries, key=lambda entry: (entry[0], -entry[1])):
        while around and around[-1][0] <= start:
            around.pop()
        total[name] += duration
        if around:
            total[around[-1][1]] -= min(duration, around[-1][0] - start)
        around.append((start + duration, name))
    return dict(total)


def _of_xspace(data: bytes) -> Seconds:
    """Return operation -> seconds of TensorFlow's profile; its times are picoseconds."""
    host: DefaultDict[str, float] = defaultdict(float)
    device: DefaultDict[str, float] = defaultdict(float)
    for field, plane in _fields(data):
        if field != PLANES or not isinstance(plane, bytes):
            continue
        parts = list(_fields(plane))
        name = b"".join(v for f, v in parts if f == PLANE_NAME and isinstance(v, bytes)).decode()
        names = dict(_metadata(v) for f, v in parts if f == METADATA and isinstance(v, bytes))
        for line in (v for f, v in parts if f == LINES and isinstance(v, bytes)):
            if name.startswith("/device:"):
                _add(device, _of_line(line, names, nodes_only=False))
            elif name.startswith("/host:"):
                _add(host, _of_line(line, names, nodes_only=True))
    return dict(device or host)


def _of_line(line: bytes, names: Dict[int, str], nodes_only: bool) -> Seconds:
    total: DefaultDict[str, float] = defaultdict(float)
    parts = list(_fields(line))
    title = b"".join(v for f, v in parts if f == LINE_NAME and isinstance(v, bytes)).decode()
    if title in DERIVED_LINES:
        return {}
    for event in (v for f, v in parts if f == EVENTS and isinstance(v, bytes)):
        values = dict(_fields(event))
        identifier, duration = values.get(EVENT_ID, 0), values.get(EVENT_DURATION, 0)
        name = names.get(identifier, "") if isinstance(identifier, int) else ""
        node = NODE.fullmatch(name)
        if isinstance(duration, int) and (node or (name and not nodes_only)):
            total[node.group(1) if node else name] += duration / 1e12
    return dict(total)


def _metadata(entry: bytes) -> Tuple[int, str]:
    """Return number and name of a kind of event."""
    value = dict(_fields(entry))[METADATA_VALUE]
    parts = dict(_fields(value)) if isinstance(value, bytes) else {}
    number, name = parts.get(1, 0), parts.get(METADATA_NAME, b"")
    return int(number), name.decode(errors="replace") if isinstance(name, bytes) else ""


def _fields(data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    """Yield number and value of each field of a message in protocol buffers' wire format."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, place = _varint(data, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind} is not known")
        if place + size > len(data):
            raise ValueError("the message is cut")
        yield tag >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place
