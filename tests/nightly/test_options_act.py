"""Options of PyTorch cases and of kernels on an IPU act, or are refused or declared idle.

Each option of a case is changed. Then either the case is refused, or the option is declared idle or
only recorded, or the requests to the runtime differ: other calls of the SDK, another graph, other
data, another schedule. The SDK is the stand-in of tests/doubles.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import sys
from functools import lru_cache, partial
from typing import Any, Callable, Dict, Generator, Set, Tuple

import pytest

from ipubench.bench_inference.bench_cnn_torch import IPU as TORCH
from ipubench.bench_inference.classifier import Classifier
from ipubench.bench_kernels.bench_dense import Dense, dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv, grouped_conv
from ipubench.bench_kernels.bench_gru import Gru, gru
from ipubench.bench_kernels.bench_hmc import Hmc, hmc
from ipubench.bench_kernels.bench_lstm import Lstm, lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti, lstm_multi
from ipubench.bench_kernels.bench_rnn import Rnn, rnn
from ipubench.fixtures.case.options import CaseConfig
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.instances.plan import plan
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.models.torch.classification import Described
from tests.nightly.options_act import digest_of, plain, without_effect
from tests.support.kernels import no_images
from tests.support.tensorflow_ipu import SYNTHETIC

pytestmark = pytest.mark.framework


@lru_cache(maxsize=3)
def drawn(network: Described) -> Any:
    """Return a network, drawn once for all options that do not change it."""
    return network()


def copied(network: Described) -> Callable[[], Any]:
    """Return a function that copies a drawn network for a step to change."""
    return lambda: copy.deepcopy(drawn(network))


def torch_asked(config: Classifier, monkeypatch: pytest.MonkeyPatch) -> Generator[str, None, None]:
    """Yield the requests to PopTorch: the feed and the instances; its calls and the network."""
    import torch

    from ipubench.fixtures.runtimes.torch.ipu.poptorch_ipu import PopTorchIpu
    from tests.doubles import poptorch as double

    monkeypatch.setitem(sys.modules, "poptorch", double.as_module())
    feed = config.feed(Data(no_images))
    shared = plan(config, "ipu", frozenset({0, 1}))
    yield plain(feed, shared, config.batches_per_step, config.model_cache_path)
    torch.manual_seed(0)
    step = PopTorchIpu(IpuDevice()).inference(copied(config.network()), config, feed)
    step.build()
    model = double.recorder.arguments("inferenceModel")["model"]
    state = model.state_dict().items()
    weights = {name: (tuple(v.shape), float(v.double().sum())) for name, v in state}
    yield plain(double.recorder.calls, weights)


def known(config: Classifier) -> Set[str]:
    """Return the meter's options, and the second name for eight bits (on the device)."""
    return {"compile_only"} | ({"normalization_location"} if config.eight_bit_io else set())


def changed_case(name: str, **changes: Any) -> Classifier:
    return dataclasses.replace(TORCH[name], **changes)


@pytest.mark.parametrize(
    "config",
    [
        changed_case("common", data="generated", random_weights=True),
        changed_case("common", data="synthetic", random_weights=True, norm_type="group"),
        changed_case(
            "efficientnet-b0-g16-gn", data="generated", micro_batch_size=1, eight_bit_io=False
        ),
    ],
    ids=lambda config: f"{config.name}-{config.data}",
)
def test_every_option_of_a_pytorch_case_acts(
    config: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found = without_effect(config, lambda one: torch_asked(one, monkeypatch), known(config))
    assert found == set()


def test_options_that_change_nothing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    # The weights of a small network are drawn quickly.
    config = changed_case(
        "common", model="mobilenet-v3-small", random_weights=True, data="generated"
    )
    idle = set(config.idle())
    monkeypatch.setattr(Classifier, "idle", lambda self: {})
    # The test above shows that no other option is found.
    others = {item.name for item in dataclasses.fields(config)} - idle
    found = without_effect(config, lambda one: torch_asked(one, monkeypatch), others)
    # Two more belong to a layer and a feed that are not used then, so no comparison finds them.
    assert idle - found == {"batchnorm_momentum", "dataloader_rebatch_size"}


def kernel_asked(kernel: Any, config: Any, by_xla: bool = False) -> Generator[str, None, None]:
    """Yield the requests to the SDK's TensorFlow: the feed, the IPUs, and the whole program.

    Without ``by_xla`` a program of synthetic data is traced but not compiled.
    """
    from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
    from tests.doubles.tensorflow_ipu import recorder

    recorder.reset()
    recorder.by_xla = by_xla
    feed = config.feed(Data(no_images))
    fused = partial(kernel, config, fused=True) if getattr(config, "popnn", False) else None
    runtime = TensorFlowIpu(IpuDevice())
    step = runtime.loop(partial(kernel, config), config, feed, fused)
    step.build()
    try:
        shapes = [(weight.name, tuple(weight.shape)) for weight in step.layer.trainable_variables]
        yield plain(recorder.calls, planned(recorder.configured, set()), shapes, feed)
        step.compile()
        (program,) = recorder.programs
        digest, operations = program_in(program.get_concrete_function().graph)
        calls = list(recorder.calls)
        settings = planned(recorder.configured, operations | {name for name, _ in calls})
        yield plain(calls, settings, digest)
    finally:
        step.close()


#: Planner options by the operations of a program, and by the layers, that use them.
PLANNED = {
    "convolutions.poplar_options": {"Conv2D", "DepthwiseConv2dNative"},
    "matmuls.poplar_options": {
        "MatMul",
        "BatchMatMulV2",
        "PopnnLSTM.__init__",
        "PopnnGRU.__init__",
    },
}


def planned(configured: Dict[str, Any], operations: Set[str]) -> Dict[str, Any]:
    """Return the configuration of the IPUs, without planner options that no operation uses."""
    return {
        name: value
        for name, value in configured.items()
        if PLANNED.get(name, operations) & operations
    }


def program_in(graph: Any) -> Tuple[str, Set[str]]:
    """Return a graph's digest, without counters of earlier tracing, and its operations."""
    text = str(graph.as_graph_def())
    operations = set(re.findall(r'\bop: "(\w+)"', text))
    return digest_of(text), operations


INFERENCE, TRAINING = "inference", "training"
#: Options of the loop and its planners, independent of the layer: the dense layer and the LSTM show
#: that they act.
OF_THE_LOOP = {"enable_half_partials"}
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
        # Trained like the LSTM, which takes twice as long to trace.
        (gru, Gru(hidden_size=4, input_size=4, timesteps=2), INFERENCE),
        (rnn, Rnn(hidden_size=4, timesteps=2), INFERENCE),
        (lstm_multi, LstmMulti(hidden_size=4, timesteps=2), INFERENCE),
        (hmc, Hmc(hmc_steps=3, leapfrog_steps=2), INFERENCE),
    ],
    ids=lambda value: getattr(value, "name", value if isinstance(value, str) else ""),
)
def test_every_option_of_a_kernel_acts(
    kernel: Any, config: CaseConfig, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from tests.doubles import tensorflow_ipu as double

    for name, module in double.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv(TF_FLAGS, raising=False)
    changes: Dict[str, Any] = {"system": "ipu", "batches_per_step": 2}
    if isinstance(config, Hmc):  # it has no other data
        pytest.importorskip("tensorflow_probability", reason="needs TensorFlow Probability")
        monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    else:
        changes["data"] = "generated"
    config = dataclasses.replace(config, mode=mode, precision="32.32", **changes)
    shown = OF_THE_LOOP if isinstance(config, (Gru, Rnn, LstmMulti)) else set()
    assert without_effect(config, lambda one: kernel_asked(kernel, one), shown) == set()
    if isinstance(config, Hmc):  # its program without input is one that XLA accepts
        assert list(kernel_asked(kernel, config, by_xla=True))
