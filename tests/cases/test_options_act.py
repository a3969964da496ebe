"""What is accepted acts, or is refused: every option of cases in PyTorch and of kernels on an IPU.

Each option of a case is changed. Then the case is refused, or the option is declared idle or only
recorded, or the runtime is asked for something else: other calls of the SDK, another graph, other
data, another schedule. The SDK is the stand-in of tests/doubles.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Set

import pytest

from ipubench.bench_inference.bench_cnn_torch import IPU as TORCH
from ipubench.bench_inference.classifier import Classifier
from ipubench.bench_kernels.bench_dense import Dense, dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv, grouped_conv
from ipubench.bench_kernels.bench_gru import Gru, gru
from ipubench.bench_kernels.bench_lstm import Lstm, lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti, lstm_multi
from ipubench.bench_kernels.bench_rnn import Rnn, rnn
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import CaseConfig, check_value, option_types
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.instances.plan import plan
from ipubench.fixtures.poplar.options import TF_FLAGS
from tests.support.kernels import no_images

pytestmark = pytest.mark.framework

#: Recorded only: they name the case or say how long it is measured, and no runtime reads them.
RECORDED = {"name", "steps"}
#: Chosen by other options of the command line; a case of each is there.
CHOSEN = {"mode", "system", "data"}
#: Text and parameters that a runtime accepts.
TEXTS: Dict[str, List[Any]] = {
    "convolution_options": ['{"use128BitConvUnitLoad": "true"}'],
    "matmul_options": ['{"use128BitConvUnitLoad": "true"}'],
    "pipeline_splits": [("layer1", "layer2"), ("layer1/0/conv1",)],
}


def others(config: CaseConfig, name: str) -> Iterator[Any]:
    """Yield other values of an option, those that its declaration accepts."""
    (field,) = [item for item in dataclasses.fields(config) if item.name == name]
    now, kind = getattr(config, name), option_types(type(config))[name]
    found: List[Any] = list(TEXTS.get(name, ()))
    found += list(field.metadata.get("choices") or ())
    if kind is bool:
        found.append(not now)
    elif kind in (int, float, Fraction):
        found += [now + 1, now * 2, now + 32, now / 2 if kind is float else now // 2]
    elif kind is str and not found:
        found.append("other")
    for value in found:
        try:
            check_value(type(config), name, value)
        except ValueError:
            continue
        if value != now:
            yield value


def changed(config: CaseConfig, name: str) -> List[CaseConfig]:
    """Return the case with other values of an option, less those that are refused."""
    found = []
    for value in others(config, name):
        one = dataclasses.replace(config, **{name: value})
        try:
            one.check()
        except ValueError:
            continue
        if name not in one.idle():
            found.append(one)
    return found


def without_effect(config: CaseConfig, asked: Callable[[Any], str], known: Set[str]) -> Set[str]:
    """Return the options of which no accepted value changes what the runtime is asked for."""
    before = asked(config)
    assert asked(config) == before, "the same case asks for two things"
    names = {item.name for item in dataclasses.fields(config)} - CHOSEN - RECORDED - known
    found = set()
    for name in sorted(names):
        ones = changed(config, name)
        if ones and all(asked(one) == before for one in ones):
            found.add(name)
    return found


def plain(*parts: Any) -> str:
    """Return the parts as text, without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(parts))


def torch_asked(config: Classifier, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what PopTorch is asked for: its calls, the network, the feed and the instances."""
    import torch

    from ipubench.fixtures.runtimes.torch.ipu import PopTorchIpu
    from tests.doubles import poptorch as double

    monkeypatch.setitem(sys.modules, "poptorch", double.as_module())
    feed = config.feed(Data(no_images))
    torch.manual_seed(0)
    try:
        step = PopTorchIpu(IpuDevice("ipu", None)).inference(config.network(), config, feed)
        step.build()
    except (CaseError, DeviceError) as error:
        return str(error)
    model = double.recorder.arguments("inferenceModel")["model"]
    state = model.state_dict().items()
    weights = {name: (tuple(v.shape), float(v.double().sum())) for name, v in state}
    calls = double.recorder.calls
    shared = plan(config, "ipu", frozenset({0, 1}))
    return plain(calls, weights, feed, shared, config.batches_per_step, config.model_cache_path)


def changed_case(name: str, **changes: Any) -> Classifier:
    return dataclasses.replace(TORCH[name], **changes)


@pytest.mark.parametrize(
    "config",
    [
        changed_case("common", data="generated", random_weights=True),
        changed_case("common", data="synthetic", random_weights=True, norm_type="group"),
        changed_case("efficientnet-b0-g16-gn", data="generated", micro_batch_size=1),
    ],
    ids=lambda config: f"{config.name}-{config.data}",
)
def test_every_option_of_a_pytorch_case_acts(
    config: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found = without_effect(config, lambda one: torch_asked(one, monkeypatch), {"compile_only"})
    assert found == set()


def test_options_that_change_nothing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    config = changed_case("common", random_weights=True, data="generated")
    idle = config.idle()
    monkeypatch.setattr(Classifier, "idle", lambda self: {})
    found = without_effect(config, lambda one: torch_asked(one, monkeypatch), {"compile_only"})
    assert found < set(idle)
    # Two more are said of a layer and of a feed, and not used then: no comparison shows it.
    assert set(idle) - found == {"batchnorm_momentum", "dataloader_rebatch_size"}


def kernel_asked(kernel: Any, config: Any, folder: Path) -> str:
    """Return what the SDK's TensorFlow is asked for: its calls, the program and the feed."""
    from ipubench.fixtures.runtimes.tensorflow.on_ipu import TensorFlowIpu
    from tests.doubles.tensorflow_ipu import recorder

    recorder.reset()
    feed = config.feed(Data(no_images))
    fused = partial(kernel, config, fused=True) if getattr(config, "popnn", False) else None
    runtime = TensorFlowIpu(IpuDevice("ipu", None))
    try:
        step = runtime.loop(partial(kernel, config), config, feed, fused)
        step.build()
        step.compile()
    except (CaseError, DeviceError) as error:
        return str(error)
    step.save_graph(folder)
    shapes = [(weight.name, tuple(weight.shape)) for weight in step.layer.trainable_variables]
    calls, configured = list(recorder.calls), dict(recorder.configured)
    step.close()
    return plain(calls, configured, shapes, program_in(folder / "graph.pb"), feed)


def program_in(path: Path) -> str:
    """Return a digest of a graph, without the numbers of what TensorFlow has traced so far."""
    from tensorflow.core.framework import graph_pb2

    text = str(graph_pb2.GraphDef.FromString(path.read_bytes()))
    lines = sorted(re.sub(r"[_-]+[0-9]+", "", text).splitlines())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


INFERENCE, TRAINING = "inference", "training"
CONVOLUTION = (
    grouped_conv,
    GroupedConv(filter_in=4, filter_out=4, input_size=4, block_repeats=2),
)


@pytest.mark.parametrize(
    ("kernel", "config", "mode"),
    [
        (dense, Dense(size=4), INFERENCE),
        (dense, Dense(size=4), TRAINING),
        (lstm, Lstm(hidden_size=4, timesteps=2), INFERENCE),
        (lstm, Lstm(hidden_size=4, timesteps=2), TRAINING),
        (CONVOLUTION[0], CONVOLUTION[1], INFERENCE),
        (CONVOLUTION[0], CONVOLUTION[1], TRAINING),
        # As the LSTM, so once each.
        (gru, Gru(hidden_size=4, input_size=4, timesteps=2), TRAINING),
        (rnn, Rnn(hidden_size=4, timesteps=2), TRAINING),
        (lstm_multi, LstmMulti(hidden_size=4, timesteps=2), TRAINING),
    ],
    ids=lambda value: getattr(value, "name", value if isinstance(value, str) else ""),
)
def test_every_option_of_a_kernel_acts(
    kernel: Any, config: CaseConfig, mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from tests.doubles import tensorflow_ipu as double

    for name, module in double.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv(TF_FLAGS, raising=False)
    changes: Dict[str, Any] = {"system": "ipu", "data": "generated", "batches_per_step": 2}
    config = dataclasses.replace(config, mode=mode, precision="32.32", **changes)
    assert without_effect(config, lambda one: kernel_asked(kernel, one, tmp_path), set()) == set()
