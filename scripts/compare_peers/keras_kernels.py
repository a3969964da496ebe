"""The obvious program for each TensorFlow kernel: what a user of Keras writes first.

Each is called in a Python loop, one call of a tf.function per batch, on batches made beforehand.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Callable, Dict, List

from ipubench.bench_kernels.bench_dense import Dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv
from ipubench.bench_kernels.bench_gru import Gru
from ipubench.bench_kernels.bench_hmc import START, STEP_SIZE, Hmc, probability
from ipubench.bench_kernels.bench_lstm import Lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti
from ipubench.fixtures.runtimes.tensorflow.model import RING
from scripts.compare_peers.case import DATA, Program


def peers(tf: Any, config: Any, dtype: Any) -> Dict[str, Callable[[], Program]]:
    """Return what builds each obvious program, without XLA and with it."""
    if isinstance(config, Hmc):
        name, make = "tfp.mcmc", partial(sample_chain, tf, config)
    else:
        name, make = "Keras", partial(keras, tf, config, dtype)
    return {name: partial(make, xla=False), f"{name}, XLA": partial(make, xla=True)}


def keras_model(tf: Any, config: Any, sixteen: bool) -> Any:
    """Return the kernel from Keras layers; recurrent layers there are batch first."""
    layers = tf.keras.layers
    policy = "float32"
    if sixteen:
        # Recurrent layers cannot be initialised in bfloat16: mixed precision is what users run.
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
    """Return the same kernel from Keras, one call of a tf.function per batch."""
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
        optimizer.build(model.trainable_variables)  # under XLA it cannot make its variables
    call = tf.function(train if config.mode == "training" else infer, jit_compile=xla)

    def program(count: int) -> None:
        for index in range(count):
            result = call(batches[index % len(batches)])
        result.numpy()

    return program


def sample_chain(tf: Any, config: Hmc, xla: bool) -> Program:
    """Return a chain as the documentation of TensorFlow Probability writes it."""
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
