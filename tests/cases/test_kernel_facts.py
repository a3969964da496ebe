"""Facts of the TensorFlow kernels: defaults, feeds, operation counts, limits."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.bench_kernels import bench_lstm_multi
from ipubench.bench_kernels.bench_dense import Dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv, covered
from ipubench.bench_kernels.bench_gru import Gru
from ipubench.bench_kernels.bench_hmc import Hmc
from ipubench.bench_kernels.bench_lstm import Lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti
from ipubench.bench_kernels.bench_rnn import Rnn
from ipubench.fixtures.case.cases import USUAL, CaseSet, Sweep, effective_options
from ipubench.fixtures.machine.onednn import Operations
from ipubench.plugins.selection.expand import expand
from tests.support.kernels import DATA

KERNELS: List[Any] = [Dense(), GroupedConv(), Gru(), Lstm(), LstmMulti(), Rnn()]
DEFAULTS: Dict[type, Dict[str, Any]] = {
    Dense: {"batches_per_step": 5000, "batch_size": 32, "size": 1024, "include_activation": False},
    GroupedConv: {
        "batch_size": 1,
        "filter_in": 64,
        "filter_out": 64,
        "kernel_size": 3,
        "stride": 1,
        "input_size": 56,
        "block_repeats": 10,
        "group_dim": 1,
        "learning_rate": 1e-30,
    },
    Gru: {"batch_size": 1, "timesteps": 5, "hidden_size": 128, "input_size": 128, "popnn": False},
    Lstm: {"batch_size": 1, "timesteps": 5, "hidden_size": 128, "popnn": False},
    LstmMulti: {
        "batch_size": 1,
        "timesteps": 200,
        "input_size": 16,
        "hidden_size": 256,
        "num_layers": 2,
    },
    Rnn: {"batch_size": 1, "timesteps": 5, "hidden_size": 128},
}
SHAPES: Dict[type, Tuple[Tuple[int, ...], Tuple[int, ...]]] = {
    Dense: ((32, 1024), ()),
    GroupedConv: ((1, 56, 56, 64), ()),
    Gru: ((5, 1, 128), (5, 1, 128)),
    Lstm: ((5, 1, 128), (5, 1, 128)),
    LstmMulti: ((200, 1, 16), (1, 1)),
    Rnn: ((5, 1, 128), (5, 1, 128)),
}


def name(config: Any) -> str:
    return str(config.name)


@pytest.mark.parametrize("config", KERNELS, ids=name)
def test_defaults_are_the_original_programs(config: Any) -> None:
    shared = {"batches_per_step": 1000, "steps": 5, "learning_rate": 0.01, "replicas": 1}
    for key, value in {**shared, **DEFAULTS[type(config)]}.items():
        assert getattr(config, key) == value, key
    config.check()


@pytest.mark.parametrize("config", KERNELS, ids=name)
def test_labels_are_fed_only_in_training(config: Any) -> None:
    inputs, labels = SHAPES[type(config)]
    specs = [(spec.name, spec.shape) for spec in config.feed(DATA).specs]
    assert specs == [("inputs", inputs)]
    training = dataclasses.replace(config, mode="training").feed(DATA)
    specs = [(spec.name, spec.shape) for spec in training.specs]
    assert specs == [("inputs", inputs)] + ([("labels", labels)] if labels else [])
    assert training.period == 7 * config.batches_per_step


@pytest.mark.parametrize("config", KERNELS, ids=name)
def test_zero_values_are_for_synthetic_batches(config: Any) -> None:
    assert not config.feed(DATA).zero_values
    assert dataclasses.replace(config, use_zero_values=True).feed(DATA).zero_values
    words = {"use_zero_values": ["true"]}
    family = CaseSet.of(config, {})
    (synthetic,) = expand(family, words, data="synthetic")
    (generated,) = expand(family, words, data="generated")
    assert not synthetic.error and "use_zero_values" in synthetic.overrides
    assert "use_zero_values=True " in generated.error


@pytest.mark.parametrize(
    ("config", "inference", "training"),
    [
        (Dense(size=10), 200, 400),
        # Each timestep: [1, 3] x [3, 12] for the inputs and, from the second on, for the state.
        # Training adds the gradients of both weights and of the state.
        (Lstm(timesteps=1, hidden_size=3), 72, 2 * 72),
        (Lstm(timesteps=2, hidden_size=3), 3 * 72, (2 * 2 + 3) * 72),
        # [1, 4] x [4, 12] for the inputs.
        (Lstm(timesteps=2, hidden_size=3, input_size=4), 2 * 96 + 72, 4 * 96 + 3 * 72),
        (Rnn(timesteps=2, hidden_size=3), 3 * 18, (2 * 2 + 3) * 18),
        # [1, 4] x [4, 9] for the inputs, [1, 3] x [3, 9] for the state.
        (Gru(timesteps=2, hidden_size=3, input_size=4), 2 * 72 + 54, 4 * 72 + 3 * 54),
        # Layer 1: [1, 4] x [4, 12] and [1, 3] x [3, 12]. Layer 2: the latter for both its inputs
        # and its state. Then [1, 3] x [3].
        (
            LstmMulti(timesteps=2, input_size=4, hidden_size=3),
            2 * 96 + 72 + 3 * 72 + 6,
            4 * 96 + 3 * 72 + 3 * 3 * 72 + 18,
        ),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
def test_operations_per_item(config: Any, inference: int, training: int) -> None:
    assert config.flops_per_item() == inference
    assert dataclasses.replace(config, mode="training").flops_per_item() == training


def test_pixels_that_a_kernel_covers() -> None:
    from tests.support.kernel_reference import convolution

    for side, size, stride in itertools.product((1, 2, 5, 8), (1, 2, 3, 4), (1, 2, 3)):
        counted = convolution(np.ones((1, side, side, 1)), np.ones((size, size, 1, 1)), stride)
        assert covered(side, size, stride) ** 2 == counted.sum(), (side, size, stride)


def test_operations_of_grouped_convolutions() -> None:
    # 3 x 3 pixels: 2, 3 and 2 of a row are covered, so 49 in two dimensions.
    one = GroupedConv(input_size=3, filter_in=4, filter_out=6, group_dim=3, block_repeats=1)
    assert one.flops_per_item() == 2 * 49 * (4 // 2) * 6
    training = dataclasses.replace(one, mode="training")
    assert training.flops_per_item() == 2 * one.flops_per_item()  # and the kernel's gradient
    # The second convolution has 6 channels; an item is an image in one convolution.
    two = dataclasses.replace(one, block_repeats=2)
    first, second = 2 * 49 * 2 * 6, 2 * 49 * 3 * 6
    assert two.flops_per_item() == (first + second) / 2
    training = dataclasses.replace(two, mode="training")
    assert training.flops_per_item() == (2 * first + 3 * second) / 2
    # Each convolution has a stride: 7, 4 and 2 pixels.
    strided = GroupedConv(input_size=7, stride=2, block_repeats=2)
    assert strided.layers == [(7, 64), (4, 64)]


def test_the_group_width_holds_in_every_convolution() -> None:
    # The original program's own test ends with groups of another width.
    config = GroupedConv(input_size=112, stride=3, filter_in=32, filter_out=16)
    config.check()
    assert config.groups == 16
    assert [channels // config.groups for _, channels in config.layers] == [2] + [1] * 9


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GroupedConv(filter_out=10, group_dim=4), "filter_out=10 "),
        (GroupedConv(filter_in=6, filter_out=8, group_dim=2), "filter_in=6 "),
        (GroupedConv(filter_out=4, group_dim=8), "filter_out=4 "),
        (Hmc(system="pod4"), "system pod4"),
        (Hmc(replicas=2), "replicas=2 needs an IPU"),
        (Hmc(replicas=2, system="ipu"), "replicas: "),
        (Hmc(xla="off", system="ipu"), "xla off: "),
    ],
)
def test_impossible_options_are_refused(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config.check()


@pytest.mark.parametrize("config", [*KERNELS, Hmc()], ids=name)
def test_every_size_has_to_be_positive(config: Any) -> None:
    sizes = [item for item in dataclasses.fields(config) if item.type == "int"]
    # A default of 0 means another size.
    assert all(item.metadata["minimum"] == (1 if item.default else 0) for item in sizes)


def test_an_lstm_has_as_many_inputs_as_hidden_units_by_default() -> None:
    sizes: Dict[str, Any] = {"timesteps": 2, "batch_size": 3, "hidden_size": 4, "mode": "training"}
    for config, features in ((Lstm(**sizes), 4), (Lstm(**sizes, input_size=5), 5)):
        inputs, labels = config.feed(DATA).specs
        assert (inputs.shape, labels.shape) == ((2, 3, features), (2, 3, 4))
    # Baselines of earlier versions have this.
    assert "input_size" not in effective_options(Lstm(), frozenset())
    assert effective_options(Lstm(input_size=128), frozenset())["input_size"] == 128


def test_the_original_defaults_of_hmc() -> None:
    config = Hmc()
    config.check()
    assert (config.hmc_steps, config.leapfrog_steps, config.steps) == (10000, 5, 100)
    assert config.feed(DATA).describe() == {"mode": "synthetic", "values": "none"}
    assert config.use_xla and not Hmc(xla="off").use_xla


def test_hmc_is_left_out_with_other_data_or_precisions() -> None:
    family = CaseSet.of(Hmc(), {})
    (generated,) = expand(family, {}, data="generated")
    assert generated.excluded.startswith("--data=generated, ") and not generated.error
    (sixteen,) = expand(family, {}, precision="16.16")
    assert sixteen.excluded.startswith("--precision=16.16, ") and not sixteen.error
    (synthetic,) = expand(family, {}, data="synthetic", precision="32.32")
    assert not synthetic.excluded


def by_xla(config: Any, beside: Operations, **changes: Any) -> bool:
    """Return the choice for a case with other options."""
    return bool(dataclasses.replace(config, **changes).xla_is_faster(beside))


RECURRENT = (Lstm(), Gru(), Rnn(), LstmMulti())
MODES = ("inference", "training")
LARGE: Dict[str, Any] = {"batch_size": 64, "hidden_size": 512}
EIGEN, ONEDNN, VNNI, BFLOAT16 = Operations


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("config", RECURRENT, ids=name)
def test_xla_runs_layers_over_time_unless_bfloat16_makes_large_ones_fast(
    config: Any, mode: str
) -> None:
    for beside in (EIGEN, ONEDNN, VNNI):
        assert by_xla(config, beside, mode=mode, **LARGE)
    for precision in ("16.16", "32.32"):
        assert by_xla(config, BFLOAT16, mode=mode, precision=precision)
        kept = (mode, precision) == ("training", "32.32")
        assert by_xla(config, BFLOAT16, mode=mode, precision=precision, **LARGE) == kept


def test_xla_runs_some_convolutions() -> None:
    others = ({"batch_size": 8}, {"group_dim": 2}, {"stride": 2}, {"filter_out": 128})
    for beside in (ONEDNN, VNNI, BFLOAT16):  # only small depthwise inference
        assert by_xla(GroupedConv(), beside)
        for change in (*others, {"mode": "training"}):
            assert not by_xla(GroupedConv(), beside, **change), change
    # The others use sums of shifts, and gradients of groups.
    for mode in MODES:
        assert by_xla(GroupedConv(), EIGEN, mode=mode, batch_size=64)
        assert by_xla(GroupedConv(group_dim=2), EIGEN, mode=mode) == (mode == "training")
    assert not by_xla(GroupedConv(stride=2), EIGEN)


def test_xla_runs_dense_layers_next_to_slower_operations() -> None:
    chosen = {mode: [by_xla(Dense(), beside, mode=mode) for beside in Operations] for mode in MODES}
    assert chosen["inference"] == [True, False, False, False]
    assert chosen["training"] == [True, True, False, False]


def test_the_published_sweep_exists() -> None:
    marks = inspect.unwrap(bench_lstm_multi.bench_lstm_multi).pytestmark
    (sweep,) = [entry for mark in marks for entry in mark.args if isinstance(entry, Sweep)]
    points: List[Any] = list(sweep.configurations())
    assert [config.batch_size for config, _ in points] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert [config.batch_size for config, tier in points if tier == USUAL] == [1, 512]
