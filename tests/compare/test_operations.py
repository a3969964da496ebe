"""What traces of the frameworks say: operations, each with its own time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

import pytest

from ipubench.plugins.compare.operations import grown, operations_in


def event(name: str, start: float, duration: float, **more: Any) -> Dict[str, Any]:
    """Return an event of PyTorch's trace; times in microseconds."""
    whole = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start}
    return {**whole, "dur": duration, **more}


def shares(folder: Path) -> Dict[str, Any]:
    return {one["name"]: pytest.approx(one["share"]) for one in operations_in(folder)}


def write(folder: Path, value: Any, name: str = "trace.json") -> None:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def test_an_operation_has_its_own_time_without_those_it_calls(tmp_path: Path) -> None:
    events = [
        event("aten::linear", 0, 100),
        event("aten::addmm", 0, 80),  # begins in the same microsecond
        event("aten::empty", 20, 10),
        event("aten::linear", 100, 50),  # begins where the first ends
        event("aten::relu", 0, 50, tid=2),  # another thread's
        event("PyTorch Profiler (0)", 0, 500, cat="Trace"),
        {"ph": "M", "name": "process_name", "ts": 0},
    ]
    write(tmp_path, {"traceEvents": events})
    assert shares(tmp_path) == {
        "aten::linear": 70 / 200, "aten::addmm": 70 / 200,
        "aten::empty": 10 / 200, "aten::relu": 50 / 200,
    }  # fmt: skip
    seconds = {one["name"]: one["seconds"] for one in operations_in(tmp_path)}
    assert seconds["aten::addmm"] == pytest.approx(70e-6)


def test_where_a_gpu_worked_its_kernels_count(tmp_path: Path) -> None:
    events = [event("aten::mm", 0, 100), event("gemm", 50, 30, cat="kernel", tid="stream 7")]
    events.append(event("Memcpy HtoD", 80, 10, cat="gpu_memcpy", tid="stream 7"))
    write(tmp_path, {"traceEvents": events})
    assert shares(tmp_path) == {"gemm": 0.75, "Memcpy HtoD": 0.25}
    assert operations_in(tmp_path)[0]["seconds"] == pytest.approx(30e-6)


def test_nodes_of_onnx_runtime_count_by_their_type(tmp_path: Path) -> None:
    def node(name: str, kind: str, duration: float) -> Dict[str, Any]:
        return event(name, 0, duration, cat="Node", args={"op_name": kind})

    events = [
        event("model_run", 0, 1000, cat="Session", args={}),
        node("conv1_kernel_time", "Conv", 60),
        node("conv2_kernel_time", "Conv", 20),
        node("conv2_fence_before", "Conv", 500),
        node("relu_kernel_time", "Relu", 20),
    ]
    write(tmp_path, events, "onnxruntime_2026.json")
    assert shares(tmp_path) == {"Conv": 0.8, "Relu": 0.2}
    assert operations_in(tmp_path)[0]["seconds"] == pytest.approx(80e-6)


# TensorFlow's: messages in protocol buffers' wire format.


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def message(*fields: Tuple[int, Union[int, str, bytes]]) -> bytes:
    found = b""
    for number, value in fields:
        if isinstance(value, int):
            found += varint(number << 3) + varint(value)
        else:
            text = value.encode() if isinstance(value, str) else value
            found += varint(number << 3 | 2) + varint(len(text)) + text
    return found


def plane(name: str, lines: Dict[str, List[Tuple[str, int]]]) -> bytes:
    """Return an XPlane; ``lines``: title -> events of name and picoseconds."""
    names = list(dict.fromkeys(event for events in lines.values() for event, _ in events))
    parts: List[Tuple[int, Union[int, str, bytes]]] = [(2, name)]
    for title, events in lines.items():
        found = [(4, message((1, names.index(n) + 1), (2, 5), (3, d))) for n, d in events]
        parts.append((3, message((2, title), *found)))
    for number, event in enumerate(names, 1):
        parts.append((4, message((1, number), (2, message((1, number), (2, event))))))
    return message(*parts)


def test_nodes_of_tensorflow_count_by_their_type(tmp_path: Path) -> None:
    host = {
        "python": [("EagerLocalExecute: __inference__loop_99", 10**9), ("_loop", 10**9)],
        "tf_Compute/1": [
            ("ExecutorState::Process", 9 * 10**8),
            ("while/body/_1/while/BiasAdd:_MklNativeFusedMatMul", 6 * 10**8),
            ("while/body/_1/while/add:AddV2", 10**8),
            ("while/body/_1/while/add_1:AddV2", 10**8),
        ],
    }
    folder = tmp_path / "plugins" / "profile" / "2026"
    folder.mkdir(parents=True)
    data = message((1, plane("/host:CPU", host)), (1, plane("Task Environment", {})), (4, "vm"))
    (folder / "vm.xplane.pb").write_bytes(data)
    assert shares(tmp_path) == {"_MklNativeFusedMatMul": 0.75, "AddV2": 0.25}
    # With a GPU: its kernels, not what the host did to start them, nor their sums.
    gpu = {"Stream #1": [("ampere_gemm", 3 * 10**8)], "XLA Ops": [("fusion.1", 3 * 10**8)]}
    data += message((1, plane("/device:GPU:0", gpu)))
    (folder / "vm.xplane.pb").write_bytes(data)
    assert shares(tmp_path) == {"ampere_gemm": 1.0}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"traceEvents": 3}', b'{"x": []}', b"\x0a\x05x", b"\xff" * 40]
)
def test_a_trace_of_another_form_says_nothing(tmp_path: Path, content: bytes) -> None:
    for name in ("trace.json", "vm.xplane.pb", "report.pop"):
        (tmp_path / name).write_bytes(content)
    assert operations_in(tmp_path) == []
    assert operations_in(tmp_path / "none") == []


def operations(**values: float) -> List[Dict[str, Any]]:
    whole = sum(values.values())
    return [{"name": n, "share": v / whole, "seconds": v} for n, v in values.items()]


def test_what_grew_most_comes_first_and_what_is_new_counts() -> None:
    before, now = operations(a=50, b=50), operations(a=50, b=60, c=80, d=1)
    assert [one["name"] for one in grown(before, now)] == ["c"]
    (only,) = grown(operations(a=9, b=1), operations(a=9, b=3))
    assert (only["before"], only["now"]) == (0.1, 0.25)
    assert (only["seconds_before"], only["seconds_now"]) == (1, 3)
    # Everything slower by the same factor, and less than a hundredth: no share grew.
    assert grown(operations(a=1, b=2), operations(a=2, b=4)) == []
    assert grown(operations(a=1000, b=1000), operations(a=1000, b=1020)) == []
