"""Callables that launch work on a GPU, whose work ends after the call has returned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipubench.fixtures.runtimes.call import CallStep, holds_a_gpu
from tests.support.own_project import OwnProject

#: Stands for PyTorch with a GPU that works in a queue.
TORCH = """
import time
from types import SimpleNamespace

__version__ = "2.0"
version = SimpleNamespace(cuda="12.1")
facts = SimpleNamespace(
    name="a GPU", total_memory=1, multi_processor_count=1, major=9, minor=0
)
ends = 0.0


def launch(seconds):
    global ends
    ends = max(ends, time.perf_counter()) + seconds


def wait():
    time.sleep(max(0.0, ends - time.perf_counter()))


cuda = SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 1,
    set_device=lambda number: None,
    get_device_properties=lambda number: facts,
    synchronize=wait,
    empty_cache=lambda: None,
    is_initialized=lambda: True,
)
"""

TESTS = """
import pytest
import torch

def work():
    torch.launch(0.005)


async def awaited():
    torch.launch(0.005)


def setup():
    torch.launch(0.1)


def test_meter(meter):
    meter(work)


def test_coroutine(meter):
    meter(awaited)


def test_setup(meter):
    meter(work, setup=setup, teardown=setup)


def test_benchmark(benchmark):
    benchmark(work)


def test_pedantic(benchmark):
    benchmark.pedantic(work, setup=setup, rounds=3)


@pytest.mark.benchmark
def test_marked():
    work()


CALLS = []


@pytest.mark.benchmark
def test_once():
    CALLS.append(1)
    assert len(CALLS) == 1
    work()
"""


def test_the_end_of_the_work_is_timed(own: OwnProject) -> None:
    (own.work.parent / "torch.py").write_text(TORCH)
    own.write(TESTS)
    own.run("tests", "--device=cuda", "--budget=0.5", alone=True).assert_code(0)
    found = {name: one["extra_info"]["ipubench"] for name, one in own.records().items()}
    assert len(found) == 7
    for record in found.values():
        assert record["throughput"]["max"] <= 1 / 0.005
        assert record["latency"]["p50_ms"] >= 5
        assert not record["canary"]["seconds"]  # arithmetic on the host
    for name in ("test_setup", "test_pedantic"):  # whose setup and teardown launch more
        assert found[name]["latency"]["p50_ms"] < 100


def test_a_gpu_that_nothing_waits_for_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "3").symlink_to(os.devnull)
    assert not holds_a_gpu(tmp_path)
    (tmp_path / "4").symlink_to("/dev/nvidia0")
    assert holds_a_gpu(tmp_path)
    assert not holds_a_gpu(tmp_path / "none")
    step = CallStep(int)
    assert step.finish().facts == {}
    monkeypatch.setattr("ipubench.fixtures.runtimes.call.holds_a_gpu", lambda: True)
    assert "--device=cuda" in step.finish().lines[0]
    step.wait_by(lambda: None)
    assert not step.finish().lines
