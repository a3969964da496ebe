"""Options of the PopART kernels on an IPU act, or are refused or declared idle.

As in tests/nightly/test_options_act.py, with the PopART of tests/doubles.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Dict, Generator

import pytest

from ipubench.bench_kernels.bench_popart_conv import PopartConv, conv
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm, lstm
from ipubench.bench_kernels.popart_kernel import PopartKernel
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.runtimes.popart.popart_ipu import PopartIpu
from tests.doubles import popart as double
from tests.nightly.options_act import plain, without_effect
from tests.support.kernels import no_images

pytestmark = pytest.mark.framework

LSTM = PopartLstm(batch_size=2, timesteps=3, hidden_size=4)
CONV = PopartConv(batch_size=2, input_width=9, input_height=8, channel_size=3, filter_number=5)
NETWORKS = {PopartLstm: lstm, PopartConv: conv}
#: Session options that only one operation uses.
ASKED_BY = {"convolutionOptions": "Conv"}


def asked(config: Any, monkeypatch: pytest.MonkeyPatch) -> Generator[str, None, None]:
    """Yield the requests to PopART: the arrays; its calls, the graph and the options."""
    monkeypatch.setitem(sys.modules, "popart", double.as_module())
    network: Any = NETWORKS[type(config)]
    feed = config.feed(Data(no_images))
    yield plain(feed)
    popart = PopartIpu(IpuDevice())
    step = popart.loop(lambda dtype: network(config, dtype), config, feed)
    step.build()
    step.compile()
    step()
    assert step.graph is not None
    operations = {node.op_type for node in step.graph.builder._model.graph.node}
    options = {
        name: value
        for name, value in double.recorder.options.items()
        if ASKED_BY.get(name) in {None, *operations}
    }
    found = plain(double.recorder.calls, options, step.counters())
    step.close()
    yield found


@pytest.mark.parametrize("config", [LSTM, CONV], ids=lambda config: config.name)
@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "inference"},
        {"mode": "inference", "data": "synthetic"},
        {"mode": "evaluation", "shards": 2},
        {"mode": "training"},
        {"mode": "training", "shards": 2, "pipeline": True, "recompute": True},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_option_of_a_popart_kernel_acts(
    config: PopartKernel, changes: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnx", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed: make setup installs it")
    fixed: Dict[str, Any] = {"system": "ipu", "data": "generated", "batches_per_step": 3}
    one = dataclasses.replace(config, **{**fixed, **changes})
    one.check()
    assert without_effect(one, lambda other: asked(other, monkeypatch), set()) == set()
