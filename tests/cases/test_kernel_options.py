"""The options that all kernels share, and when each is accepted."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

import pytest

from ipubench.bench_kernels.bench_dense import Dense
from ipubench.bench_kernels.bench_lstm import Lstm
from ipubench.bench_kernels.kernel import TensorFlowKernel
from ipubench.fixtures.data.feeds import TensorSpec
from ipubench.fixtures.machine.onednn import Operations
from tests.support.kernels import DATA


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"enable_half_partials": True}, "enable_half_partials=True .*IPU"),
        ({"report_hw_cycle_count": True}, "report_hw_cycle_count=True .*IPU"),
        ({"replicas": 2}, "replicas=2 .*IPU"),
        ({"shards": 2}, "shards=2 .*IPU"),
        ({"shards": 2, "system": "ipu"}, "shards: "),
        ({"data": "real"}, "data real: "),
        ({"system": "pod4"}, "system pod4: "),
        ({"system": "ipu", "xla": "off"}, "xla off: "),
        ({"convolution_options": "{"}, "convolution_options: .* is not JSON"),
        ({"matmul_options": "[]"}, "matmul_options: .* is not a JSON object"),
        ({"matmul_options": '{"partialsType": "half"}'}, "matmul_options: partialsType .*an IPU"),
    ],
)
@pytest.mark.parametrize("config", [Dense(), Lstm()])
def test_impossible_options_are_refused(
    config: TensorFlowKernel, changes: Dict[str, Any], message: str
) -> None:
    config.check()
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **changes).check()


def test_planner_options_are_accepted_if_they_change_no_result() -> None:
    options = '{"availableMemoryProportion": "0.2"}'
    Dense(matmul_options=options, convolution_options=options).check()
    Dense(matmul_options='{"partialsType": "half"}', system="ipu").check()


def test_an_ipu_is_needed_for_each_replica() -> None:
    assert Dense().ipus == 0
    assert Dense(system="ipu").ipus == 1
    assert Dense(system="ipu", replicas=4).ipus == 4


@pytest.mark.parametrize("found", [Operations.EIGEN, Operations.ONEDNN])
def test_xla_can_be_forced_and_otherwise_the_kernel_chooses(
    found: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipubench.fixtures.runtimes.kernel_options.operations", lambda: found)
    assert Lstm().use_xla is Lstm().xla_is_faster(found) is True
    assert not Lstm(xla="off").use_xla
    assert Dense().use_xla is Dense().xla_is_faster(found) is (found is Operations.EIGEN)
    assert Dense(xla="on").use_xla


def test_generated_batches_repeat_after_two_more_steps_than_are_timed() -> None:
    config = Dense(steps=3, batches_per_step=10, data="generated", use_zero_values=True)
    feed = config.arrays(DATA, TensorSpec("inputs", (1, 2)))
    assert (feed.mode, feed.period, feed.zero_values) == ("generated", 50, True)
    assert [spec.name for spec in feed.specs] == ["inputs"]
