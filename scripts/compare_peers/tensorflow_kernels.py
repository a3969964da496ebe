"""TensorFlow's kernels compared with the obvious Keras programs.

Ours is the step that the benchmark times, with synthetic data, in the form that it chooses
(TensorFlow's loop or XLA). The peers are the same layers in Keras, with and without XLA, in a
Python loop with one tf.function call per batch, on batches made beforehand.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Callable, Dict, List

from ipubench.bench_kernels.bench_dense import Dense, bench_dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv, bench_grouped_conv
from ipubench.bench_kernels.bench_gru import Gru, bench_gru
from ipubench.bench_kernels.bench_hmc import START, STEP_SIZE, Hmc, bench_hmc, probability
from ipubench.bench_kernels.bench_lstm import Lstm, bench_lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti, bench_lstm_multi
from ipubench.bench_kernels.bench_rnn import Rnn, bench_rnn
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.runtimes.tensorflow.model import RING
from scripts.compare_peers.case import Case, Conditions, Family, Program
from scripts.steps import DATA, step_of

BENCHES: Dict[type, Callable[..., None]] = {
    Dense: bench_dense,
    GroupedConv: bench_grouped_conv,
    Gru: bench_gru,
    Hmc: bench_hmc,
    Lstm: bench_lstm,
    LstmMulti: bench_lstm_multi,
    Rnn: bench_rnn,
}
# Each kernel's default, and larger shapes.
CONFIGS: List[Any] = [
    Dense(),
    Dense(name="dense-relu", include_activation=True),
    GroupedConv(),
    GroupedConv(name="grouped_conv-8-images", batch_size=8),
    GroupedConv(name="grouped_conv-groups-of-8", group_dim=8),
    Gru(),
    Gru(name="gru-8x10x256", batch_size=8, timesteps=10, hidden_size=256, input_size=256),
    Gru(name="gru-64x25x512", batch_size=64, timesteps=25, hidden_size=512, input_size=512),
    Lstm(),
    Lstm(name="lstm-8x10x256", batch_size=8, timesteps=10, hidden_size=256),
    Lstm(name="lstm-64x25x512", batch_size=64, timesteps=25, hidden_size=512),
    LstmMulti(),
    LstmMulti(name="lstm_multi-bs16", batch_size=16),
    LstmMulti(name="lstm_multi-bs128", batch_size=128),
    Rnn(),
    Rnn(name="rnn-8x10x256", batch_size=8, timesteps=10, hidden_size=256),
    Rnn(name="rnn-64x25x512", batch_size=64, timesteps=25, hidden_size=512),
    Hmc(),
]
MODES = ("inference", "training")


def _cases() -> Dict[str, Any]:
    """Return each configuration in each mode, by name; a Markov chain has no mode."""
    found = {}
    for config in CONFIGS:
        if isinstance(config, Hmc):
            found[config.name] = config
            continue
        for mode in MODES:
            found[f"{config.name}-{mode}"] = dataclasses.replace(config, mode=mode)
    return found


class TensorFlowKernels(Family):
    """Every TensorFlow kernel at its default size and at larger sizes."""

    title = "TensorFlow kernels"
    unit = "items/s"
    usual = (
        *(f"{kind}-inference" for kind in ("dense", "grouped_conv", "gru", "lstm", "rnn")),
        *(f"{kind}-training" for kind in ("dense", "lstm")),
        *("lstm_multi-bs16-inference", "lstm-64x25x512-inference", "hmc"),
    )

    @classmethod
    def names(cls) -> List[str]:
        return list(_cases())

    def __init__(self, conditions: Conditions) -> None:
        super().__init__(conditions)
        self.host = TensorFlowHost(conditions.device)

    def open(self, name: str) -> Case:
        config = _cases()[name]
        if not isinstance(config, Hmc):
            config = dataclasses.replace(config, precision=self.conditions.precision)
        tf, dtype = self.host.tf, "float32" if isinstance(config, Hmc) else self.conditions.dtype
        found = peers(tf, config, tf.as_dtype(dtype))
        if self.conditions.own:
            other = "off" if config.use_xla else "on"
            found[f"ours, xla={other}"] = partial(self._ours, config, other)
        items = config.hmc_steps if isinstance(config, Hmc) else config.batch_size
        return Case(float(items), dtype, partial(self._ours, config), found)

    def _ours(self, config: Any, xla: str = "auto") -> Program:
        """Return the benchmark's own step."""
        config = dataclasses.replace(config, xla=xla)
        step, _ = step_of(BENCHES[type(config)], config, self.host)
        step.build()
        step.compile()
        run: Program = step.run
        return run


def peers(tf: Any, config: Any, dtype: Any) -> Dict[str, Callable[[], Program]]:
    """Return a builder for each obvious program, without XLA and with it."""
    if isinstance(config, Hmc):
        name, make = "tfp.mcmc", partial(sample_chain, tf, config)
    else:
        name, make = "Keras", partial(keras, tf, config, dtype)
    return {name: partial(make, xla=False), f"{name}, XLA": partial(make, xla=True)}


def keras_model(tf: Any, config: Any, sixteen: bool) -> Any:
    """Return the kernel as Keras layers; recurrent layers are batch first."""
    layers = tf.keras.layers
    policy = "float32"
    if sixteen:
        # Recurrent layers cannot be initialised in bfloat16, so users run mixed precision.
        whole = config.precision == "16.16" and isinstance(config, (Dense, GroupedConv))
        policy = "bfloat16" if whole else "mixed_bfloat16"
    if isinstance(config, Dense):
        activation = "relu" if config.include_activation else None
        parts = [layers.Dense(config.size, activation=activation, dtype=policy)]
    elif isinstance(config, GroupedConv):
        options = {"padding": "same", "use_bias": False, "dtype": policy}
        if config.group_dim == 1:
            make = partial(layers.DepthwiseConv2D, **options)
        else:
            make = partial(layers.Conv2D, config.filter_out, groups=config.groups, **options)
        size, stride = config.kernel_size, config.stride
        parts = [make(kernel_size=size, strides=stride) for _ in range(config.block_repeats)]
    elif isinstance(config, Gru):
        parts = [
            layers.GRU(config.hidden_size, reset_after=False, return_sequences=True, dtype=policy)
        ]
    elif isinstance(config, LstmMulti):
        parts = [
            layers.LSTM(
                config.hidden_size, return_sequences=number < config.num_layers, dtype=policy
            )
            for number in range(1, config.num_layers + 1)
        ]
        parts.append(layers.Dense(1, dtype=policy))
    else:
        kind = layers.LSTM if isinstance(config, Lstm) else layers.SimpleRNN
        parts = [kind(config.hidden_size, return_sequences=True, dtype=policy)]
    return tf.keras.Sequential(parts)


def keras_batches(tf: Any, config: Any, dtype: Any) -> List[Dict[str, Any]]:
    """Return as many batches as ours has, batch first."""
    training = dataclasses.replace(config, mode="training")
    batches = []
    for _ in range(RING):
        batch = {}
        for spec in training.feed(DATA).specs:
            shape = spec.shape
            if len(shape) == 3:  # time-major
                shape = (shape[1], shape[0], shape[2])
            batch[spec.name] = tf.cast(tf.random.normal(shape), dtype)
        batches.append(batch)
    return batches


def keras(tf: Any, config: Any, dtype: Any, xla: bool) -> Program:
    """Return the same kernel in Keras, with one tf.function call per batch."""
    model = keras_model(tf, config, dtype != tf.float32)
    batches = keras_batches(tf, config, dtype)
    model(batches[0]["inputs"])
    optimizer = tf.keras.optimizers.SGD(config.learning_rate)

    def loss_of(output: Any, batch: Dict[str, Any]) -> Any:
        output = tf.cast(output, tf.float32)
        if isinstance(config, (Dense, GroupedConv)):
            return tf.reduce_mean(output)
        labels = tf.cast(batch["labels"], tf.float32)
        if isinstance(config, LstmMulti):
            return tf.reduce_mean(tf.square(output - labels))
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, output))

    def infer(batch: Dict[str, Any]) -> Any:
        return model(batch["inputs"])

    def train(batch: Dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model(batch["inputs"], training=True), batch)
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables))
        return loss

    if config.mode == "training" and hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)  # XLA cannot create its variables
    call = tf.function(train if config.mode == "training" else infer, jit_compile=xla)

    def program(count: int) -> None:
        for index in range(count):
            result = call(batches[index % len(batches)])
        result.numpy()

    return program


def sample_chain(tf: Any, config: Hmc, xla: bool) -> Program:
    """Return a chain as in the documentation of TensorFlow Probability."""
    mcmc = probability().mcmc
    kernel = mcmc.HamiltonianMonteCarlo(
        lambda x: -x - x * x, step_size=STEP_SIZE, num_leapfrog_steps=config.leapfrog_steps
    )

    @tf.function(jit_compile=xla)
    def chain() -> Any:
        return mcmc.sample_chain(
            num_results=config.hmc_steps, current_state=START, kernel=kernel, trace_fn=None
        )

    def program(count: int) -> None:
        for _ in range(count):
            samples = chain()
        samples.numpy()

    return program
