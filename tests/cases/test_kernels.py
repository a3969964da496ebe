"""The TensorFlow kernels compared with NumPy: outputs, and weights after training on one batch."""

from __future__ import annotations

import dataclasses
from typing import Any, List, Set

import numpy as np
import pytest

from ipubench.bench_kernels.bench_dense import Dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv
from ipubench.bench_kernels.bench_gru import Gru
from ipubench.bench_kernels.bench_lstm import Lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti
from ipubench.bench_kernels.bench_rnn import Rnn
from ipubench.fixtures.runtimes.step import ask
from tests.support.kernel_reference import loss_of, output_of
from tests.support.kernels import (
    batches_of,
    built,
    check_slopes,
    copy_weights,
    float64,
    needs_exact_bfloat16,
    one_update,
    probabilities,
    weights_of,
)

pytestmark = pytest.mark.framework

# At least two shapes each. 36 and 40 timesteps are a loop in the graph, fewer are unrolled.
CONFIGS = [
    Dense(batch_size=4, size=16),
    Dense(batch_size=3, size=40, include_activation=True),
    GroupedConv(batch_size=2, filter_in=4, filter_out=4, input_size=6, block_repeats=3),
    GroupedConv(
        batch_size=1, filter_in=8, filter_out=4, input_size=9, block_repeats=2, group_dim=2
    ),
    GroupedConv(
        name="strided",
        filter_in=6,
        filter_out=6,
        input_size=11,
        block_repeats=2,
        stride=2,
        group_dim=3,
        kernel_size=4,
    ),
    GroupedConv(
        name="even", filter_in=3, filter_out=3, input_size=5, block_repeats=2, kernel_size=2
    ),
    Gru(batch_size=1, timesteps=3, hidden_size=8, input_size=8),
    Gru(batch_size=3, timesteps=36, hidden_size=6, input_size=10),
    Lstm(batch_size=1, timesteps=3, hidden_size=8),
    Lstm(batch_size=3, timesteps=40, hidden_size=6, input_size=9),
    Lstm(name="one-timestep", batch_size=2, timesteps=1, hidden_size=4),
    LstmMulti(batch_size=1, timesteps=3, input_size=3, hidden_size=8),
    # One layer with one product for all timesteps, one with alternation (recurrent.parts_in_loop).
    LstmMulti(batch_size=3, timesteps=36, input_size=40, hidden_size=6),
    Rnn(batch_size=1, timesteps=3, hidden_size=8),
    Rnn(batch_size=3, timesteps=40, hidden_size=6),
]
ONE_OF_EACH = list({type(config): config for config in CONFIGS}.values())
# A host's loop, a host's loop compiled by XLA, and the input of an IPU's compiler.
FORMS = {"loop": {"xla": "off"}, "xla": {"xla": "on"}, "ipu": {"system": "ipu", "xla": "on"}}


def name(config: Any) -> str:
    return f"{config.name}-{CONFIGS.index(config)}"


def forms_of(config: Any) -> List[str]:
    """Return every form that differs.

    An IPU always gets a loop over timesteps, so a long one shows what a short one does.
    """
    return [form for form in FORMS if form != "ipu" or getattr(config, "timesteps", 1) != 3]


# 3e-2: a bfloat16 has 8 significant bits, so rounding a value near 2 costs up to 2^-8. A product
# rounds its output; a recurrent layer rounds gates and state at each timestep.
TOLERANCE = {"32.32": 1e-5, "16.16": 3e-2}
# In 16 bits a loop computes what unrolled timesteps compute, and also stores it.
LONG = [config for config in CONFIGS if getattr(config, "timesteps", 36) >= 36]


@pytest.mark.parametrize(
    ("config", "precision"),
    [*((one, "32.32") for one in CONFIGS), *((one, "16.16") for one in LONG)],
    ids=lambda value: value if isinstance(value, str) else name(value),
)
def test_the_output_is_numpys(config: Any, precision: str) -> None:
    for form in forms_of(config):
        step = built(config, precision=precision, **FORMS[form])
        check_outputs(config, step, TOLERANCE[precision], form)


def check_outputs(config: Any, step: Any, tolerance: float, form: str) -> None:
    # One graph for all batches: a layer compiles its cell on each call from Python.
    layer = step._tf.function(lambda inputs: step.layer({"inputs": inputs}), autograph=False)
    for index, batch in enumerate(batches_of(step)):
        inputs = {key: ring[index] for key, ring in step.ring.items()}
        output = layer(inputs["inputs"])
        expected = output_of(config, weights_of(step), batch)
        assert output.dtype == inputs["inputs"].dtype
        atol = tolerance * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(float64(output), expected, atol=atol, err_msg=form)


# The test above runs every layer without XLA, and the training test runs every layer with it. One
# layer of each kind shows what the loop adds.
@pytest.mark.parametrize("xla", ["on", "off"])
@pytest.mark.parametrize("config", ONE_OF_EACH, ids=name)
def test_the_loop_computes_the_same_outputs(config: Any, xla: str) -> None:
    step = built(config, xla=xla)
    step.compile()
    assert step.describe()["constant_weights"] is True
    outputs = [output_of(config, weights_of(step), batch) for batch in batches_of(step)]
    for batches in (len(outputs), 2 * len(outputs)):  # every batch counts each time
        run = (outputs * 2)[:batches]
        expected = sum(o.sum() if xla == "on" else o.flat[0] for o in run)
        scale = sum(np.abs(o).sum() if xla == "on" else abs(o.flat[0]) for o in run)
        assert step.run(batches) == pytest.approx(expected, rel=1e-4, abs=1e-5 * scale)


# In float32 an IPU gets the same long layer as XLA on a host. One with a special recurrence and one
# of two layers show that. On a host two short layers show what happens between layers and how XLA
# gets an LSTM's unrolled timesteps; one long layer shows the loop.
# XLA gets of each other layer one shape: the loop shows every shape, and an IPU's form too.
SHOWN = {"lstm-9-ipu", "rnn-14-ipu", "lstm-8-xla", "lstm_multi-12-loop", "lstm_multi-12-xla"}
SHOWN |= {"dense-1-xla", "grouped_conv-3-xla", "even-5-xla", "gru-7-xla", "one-timestep-10-xla"}
# Other shapes of layers that are trained in the same form.
AT_NIGHT = {
    "one-timestep-10-loop",
    "one-timestep-10-ipu",
    "rnn-14-loop",
    "rnn-14-xla",
    "gru-7-loop",
}
TRAINED = {
    f"{name(config)}-{form}": (config, form) for config in CONFIGS for form in forms_of(config)
}
assert TRAINED.keys() > SHOWN | AT_NIGHT


@pytest.mark.parametrize(
    ("config", "form"),
    [
        pytest.param(*pair, id=id_, marks=pytest.mark.nightly if id_ in AT_NIGHT else [])
        for id_, pair in TRAINED.items()
        if id_ not in SHOWN
    ],
)
def test_training_follows_the_gradient(config: Any, form: str) -> None:
    # At a high rate the update is large compared with the rounding of the weight.
    step = built(config, mode="training", learning_rate=10.0, **FORMS[form])
    if isinstance(config, (Gru, Lstm, Rnn)):
        probabilities(step)
    weights, batch = weights_of(step), next(batches_of(step))
    found = one_update(step)
    check_slopes(found, weights, lambda moved: loss_of(config, moved, batch))


# Several LSTMs in a loop take long to compile. The GRU's loop is the one that XLA gets.
SHORT = LstmMulti(timesteps=2, input_size=3, hidden_size=8)
IN_BFLOAT16 = [SHORT if isinstance(one, LstmMulti) else one for one in ONE_OF_EACH]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(one, marks=[] if isinstance(one, (Dense, Gru)) else pytest.mark.nightly)
        for one in IN_BFLOAT16
    ],
    ids=lambda config: str(config.name),
)
def test_training_in_bfloat16_stays_near_float32(config: Any) -> None:
    if isinstance(config, GroupedConv):
        needs_exact_bfloat16()
    options = {"mode": "training", "learning_rate": 10.0}
    full = built(config, xla="off", **options)
    # A layer of an RNN or an LSTM compiles like one of several LSTMs.
    compiled = () if isinstance(config, (Lstm, Rnn)) else ("on",)
    start = built(config, precision="16.16", xla="off", **options)
    copy_weights(start, full)
    halves = {"off": start}
    # The update of 16-bit variables is the same for all layers that XLA compiles.
    if isinstance(config, (Dense, GroupedConv)):
        halves["on"] = built(config, precision="16.16", xla="on", **options)
        copy_weights(start, halves["on"])
    mixes = {
        xla: built(config, precision="16.32", xla=xla, **options) for xla in ("off", *compiled)
    }
    for mixed in mixes.values():
        copy_weights(start, mixed)
    expected = one_update(full)
    for xla, mixed in mixes.items():
        slopes = one_update(mixed)
        for key, slope in expected.items():
            # Sums of many products, each rounded to 8 bits, through up to two layers.
            error = np.linalg.norm(slopes[key] - slope)
            assert error < 1e-1 * np.linalg.norm(slope) + 1e-4, key
        if xla in halves:
            one_update(halves[xla])
            rounded, exact = weights_of(halves[xla]), weights_of(mixed)
            for key in expected:
                # 16.16 rounds the same update to a bfloat16: half a unit of its 8 bits, and one
                # for ties.
                np.testing.assert_allclose(rounded[key], exact[key], rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("config", ONE_OF_EACH, ids=name)
def test_no_two_weights_start_equal(config: Any) -> None:
    values = [value for value in weights_of(built(config)).values() if value.ndim > 1]
    firsts = [value.flat[0] for value in values]
    assert len(set(firsts)) == len(firsts)


def test_weights_start_as_in_the_original_programs() -> None:
    start = weights_of(built(Dense(size=64)))
    assert np.abs(start["kernel"]).max() <= np.sqrt(6 / 128)
    assert not start["bias"].any()
    lstm = weights_of(built(Lstm(hidden_size=8)))
    np.testing.assert_array_equal(lstm["lstm.bias"].reshape(4, -1)[:, 0], [0, 1, 0, 0])
    gru = weights_of(built(Gru(hidden_size=8)))
    np.testing.assert_array_equal(gru["bias"].reshape(3, -1)[:, 0], [1, 1, 0])
    assert not weights_of(built(Rnn(hidden_size=8)))["bias"].any()
    # Truncated normal of variance 1 / fan in, here 3 x 3 x 4.
    kernel = weights_of(built(GroupedConv(group_dim=4)))["kernels.0"]
    assert kernel.shape == (3, 3, 4, 64)
    assert kernel.std() == pytest.approx(1 / 6, rel=0.05)


def test_the_original_learning_rate_changes_no_weight_of_grouped_conv() -> None:
    config = GroupedConv(filter_in=4, filter_out=4, input_size=5, block_repeats=1)
    step = built(config, mode="training")
    before = weights_of(step)
    step.compile()
    np.testing.assert_array_equal(weights_of(step)["kernels.0"], before["kernels.0"])


def test_an_ipu_gets_convolutions_and_loops() -> None:
    def operations(config: Any) -> Set[str]:
        step = built(config, system="ipu")
        graph = step._tf.function(
            lambda: step.layer({"inputs": step.ring["inputs"][0]}), autograph=False
        )
        return {node.type for node in graph.get_concrete_function().graph.get_operations()}

    # An IPU could not recognise a host's sums of shifted images or unrolled timesteps.
    small = GroupedConv(filter_in=4, filter_out=4, input_size=5, block_repeats=1)
    assert "Conv2D" in operations(small)
    for config in (Lstm(hidden_size=4), Gru(hidden_size=4, input_size=4), Rnn(hidden_size=4)):
        assert operations(config) & {"While", "StatelessWhile"}


def test_xla_does_not_parallelise_products_of_small_layers() -> None:
    """It did for unrolled layers that compute their weights; waking a thread took longer."""
    step = built(Rnn(timesteps=3), mode="training", precision="16.16", xla="on")
    step.compile()
    program = step._run.experimental_get_compiler_ir(step._tf.constant(1))(stage="optimized_hlo")
    assert "while" in program and "outer_dimension_partitions" not in program


def test_one_more_convolution_adds_one_convolution() -> None:
    config = GroupedConv(filter_in=4, filter_out=4, input_size=6, block_repeats=2)
    two, four = built(config), built(dataclasses.replace(config, block_repeats=4))
    for number, kernel in enumerate(four.layer.kernels):
        kernel.assign(two.layer.kernels[number % 2])
    inputs = two.ring["inputs"][0]
    twice = two.layer({"inputs": two.layer({"inputs": inputs})})
    np.testing.assert_allclose(
        float64(four.layer({"inputs": inputs})), float64(twice), rtol=1e-4, atol=1e-5
    )


def test_weight_traffic_is_that_of_the_layer() -> None:
    """A matrix and a bias; training also writes them."""
    weights = 16 * 16 + 16
    assert ask(built(Dense(size=16)).work.weight_traffic) == 4 * weights
    assert ask(built(Dense(size=16, mode="training")).work.weight_traffic) == 2 * 4 * weights
