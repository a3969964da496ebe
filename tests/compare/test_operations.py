"""Operations from the frameworks' traces, each with its own time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.compare.operations import grown, operations_in
from ipubench.plugins.record.structs import Operation


def event(name: str, start: float, duration: float, **more: Any) -> Dict[str, Any]:
    """Return an event of PyTorch's trace; times in microseconds."""
    whole = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start}
    return {**whole, "dur": duration, **more}


def shares(folder: Path) -> Dict[str, Any]:
    return {one.name: pytest.approx(one.share) for one in operations_in(folder)}


def write(folder: Path, value: Any, name: str = "trace.json") -> None:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def test_the_time_of_an_operation_excludes_the_operations_it_calls(tmp_path: Path) -> None:
    events = [
        event("aten::linear", 0, 100),
        event("aten::addmm", 0, 80),  # begins in the same microsecond
        event("aten::empty", 20, 10),
        event("aten::linear", 100, 50),  # begins when the first ends
        event("aten::relu", 0, 50, tid=2),  # another thread's event
        event("PyTorch Profiler (0)", 0, 500, cat="Trace"),
        {"ph": "M", "name": "process_name", "ts": 0},
    ]
    write(tmp_path, {"traceEvents": events})
    assert shares(tmp_path) == {
        "aten::linear": 70 / 200, "aten::addmm": 70 / 200,
        "aten::empty": 10 / 200, "aten::relu": 50 / 200,
    }  # fmt: skip
    seconds = {one.name: one.seconds for one in operations_in(tmp_path)}
    assert seconds["aten::addmm"] == pytest.approx(70e-6)


def test_on_a_gpu_its_kernels_count(tmp_path: Path) -> None:
    events = [event("aten::mm", 0, 100), event("gemm", 50, 30, cat="kernel", tid="stream 7")]
    events.append(event("Memcpy HtoD", 80, 10, cat="gpu_memcpy", tid="stream 7"))
    write(tmp_path, {"traceEvents": events})
    assert shares(tmp_path) == {"gemm": 0.75, "Memcpy HtoD": 0.25}
    assert operations_in(tmp_path)[0].seconds == pytest.approx(30e-6)


def test_onnx_runtime_nodes_count_by_type(tmp_path: Path) -> None:
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
    assert operations_in(tmp_path)[0].seconds == pytest.approx(80e-6)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"traceEvents": 3}', b'{"x": []}', b"\xff" * 40]
)
def test_another_trace_format_gives_no_operations(tmp_path: Path, content: bytes) -> None:
    for name in ("trace.json", "report.pop"):
        (tmp_path / name).write_bytes(content)
    assert operations_in(tmp_path) == []
    assert operations_in(tmp_path / "none") == []


def operations(**values: float) -> List[Operation]:
    whole = sum(values.values())
    return [Operation(n, v / whole, v) for n, v in values.items()]


def test_the_largest_growth_comes_first_and_new_operations_count() -> None:
    before, now = operations(a=50, b=50), operations(a=50, b=60, c=80, d=1)
    assert [one.name for one in grown(before, now)] == ["c"]
    (only,) = grown(operations(a=9, b=1), operations(a=9, b=3))
    assert (only.before, only.now) == (0.1, 0.25)
    assert (only.seconds_before, only.seconds_now) == (1, 3)
    # All are slower by the same factor, by less than a hundredth: no share grew.
    assert grown(operations(a=1, b=2), operations(a=2, b=4)) == []
    assert grown(operations(a=1000, b=1000), operations(a=1000, b=1020)) == []
