"""How our TensorFlow loop compares with the obvious programs, side by side.

For the dense and lstm kernels it alternates, within one process and with the same allocator:

- ours: the step that the benchmark times, in both forms (TensorFlow's loop, XLA);
- keras: the Keras layer under tf.function, called in a Python loop, batches made beforehand;
- matmul: the layer's matrix products alone, eagerly, in a Python loop.

Usage: python -m scripts.compare_tensorflow [--precision 16.16] [--rounds 9]
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from bench_kernels.bench_dense import Dense, dense
from bench_kernels.bench_lstm import Lstm, lstm
from fixtures.data.folder import ImageFolder
from fixtures.data.provider import Data
from fixtures.devices.cpu import CpuDevice
from fixtures.runtimes.tensorflow_host import TensorFlowHost, compute_dtypes
from plugins.process import tune_allocator

SECONDS_PER_ROUND = 0.1
CONFIGS = [
    Dense(),
    Dense(name="dense-relu", include_activation=True),
    Lstm(),
    Lstm(name="lstm-8x10x256", batch_size=8, timesteps=10, hidden_size=256),
    Lstm(name="lstm-64x25x512", batch_size=64, timesteps=25, hidden_size=512),
]

Program = Callable[[int], None]  # runs so many batches


def no_images() -> ImageFolder:
    """Kernels have no real data."""
    raise AssertionError("kernels need no images")


def ours(host: TensorFlowHost, config: Any, precision: str, xla: bool) -> Program:
    """Return the benchmark's own step."""
    model = dense if isinstance(config, Dense) else lstm
    step = host.loop(
        partial(model, config),
        config.feed(Data(no_images)),
        training=config.mode == "training",
        precision=precision,
        xla=xla,
    )
    step.build()
    step.compile()

    def program(batches: int) -> None:
        step.run(batches)

    return program


def inputs_of(tf: Any, config: Any, dtype: Any) -> List[Tuple[Any, Any]]:
    """Return four batches of (inputs, labels), batch first as Keras wants them."""
    if isinstance(config, Dense):
        shape: Tuple[int, ...] = (config.batch_size, config.size)
    else:
        shape = (config.batch_size, config.timesteps, config.hidden_size)
    return [
        (tf.cast(tf.random.normal(shape), dtype), tf.cast(tf.random.normal(shape), dtype))
        for _ in range(4)
    ]


def keras(tf: Any, config: Any, precision: str, dtype: Any) -> Program:
    """Return the same layer from Keras, one call of a tf.function per batch."""
    sixteen = dtype != tf.float32
    # A Keras LSTM cannot be initialised in bfloat16: mixed precision is what its users run.
    policy = "mixed_bfloat16" if sixteen else "float32"
    if isinstance(config, Dense):
        activation = "relu" if config.include_activation else None
        policy = "bfloat16" if sixteen and precision == "16.16" else policy
        layer = tf.keras.layers.Dense(config.size, activation=activation, dtype=policy)
    else:
        layer = tf.keras.layers.LSTM(config.hidden_size, return_sequences=True, dtype=policy)
    batches = inputs_of(tf, config, dtype)
    layer.build(batches[0][0].shape)
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def infer(inputs: Any, labels: Any) -> Any:
        return layer(inputs)

    @tf.function
    def train(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            output = tf.cast(layer(inputs), tf.float32)
            if isinstance(config, Dense):
                loss = tf.reduce_mean(output)
            else:
                losses = tf.nn.softmax_cross_entropy_with_logits(
                    tf.cast(labels, tf.float32), output
                )
                loss = tf.reduce_mean(losses)
        slopes = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply_gradients(zip(slopes, layer.trainable_variables))
        return loss

    call = train if config.mode == "training" else infer

    def program(count: int) -> None:
        for index in range(count):
            result = call(*batches[index % len(batches)])
        result.numpy()

    return program


def matmul(tf: Any, config: Any, dtype: Any) -> Program:
    """Return the forward products alone: no bias, no gates, no gradients."""
    batches = inputs_of(tf, config, dtype)
    recurrent = isinstance(config, Lstm)
    size = config.hidden_size if recurrent else config.size
    width = 4 * size if recurrent else size
    weights = tf.cast(tf.random.normal([size, width]), dtype)

    def program(count: int) -> None:
        for index in range(count):
            inputs = batches[index % len(batches)][0]
            result = tf.linalg.matmul(tf.reshape(inputs, [-1, size]), weights)
            if recurrent:
                for timestep in range(config.timesteps):
                    result = tf.linalg.matmul(inputs[:, timestep], weights)
        result.numpy()

    return program


def seconds(program: Program, batches: int) -> float:
    """Return the time of one batch."""
    start = time.perf_counter()
    program(batches)
    return (time.perf_counter() - start) / batches


def compare(programs: Dict[str, Program], rounds: int) -> Dict[str, List[float]]:
    """Time each program once a round, in turn; return seconds per batch by program."""
    counts = {}
    for name, program in programs.items():
        program(2)
        counts[name] = max(1, int(SECONDS_PER_ROUND / seconds(program, 2)))
    times: Dict[str, List[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            times[name].append(seconds(program, counts[name]))
    return times


def main() -> None:
    """Print one line per kernel, mode and program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--precision", default="16.16", choices=("16.16", "16.32", "32.32"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="part of a kernel's name")
    arguments = parser.parse_args()

    tune_allocator()
    device = CpuDevice()
    device.attach()
    host = TensorFlowHost(device)
    tf, precision = host.tf, arguments.precision
    dtype = tf.as_dtype(compute_dtypes(device, precision)[0])
    print(f"TensorFlow {tf.__version__}, {precision} as {dtype.name}, {device.threads} threads")
    print("ratio: the program's time over the chosen form's (*), median of paired rounds")
    print(f"{'case':34} {'program':12} {'us/batch':>10} {'GFLOP/s':>8} {'ratio':>6}")
    for base in CONFIGS:
        if arguments.only not in base.name:
            continue
        for mode, data in (
            ("inference", "synthetic"),
            ("inference", "generated"),
            ("training", "synthetic"),
            ("training", "generated"),
        ):
            config: Any = dataclasses.replace(base, mode=mode, data=data)
            chosen = "loop xla" if getattr(config, "xla", False) else "loop"
            programs = {
                "loop": ours(host, config, precision, xla=False),
                "loop xla": ours(host, config, precision, xla=True),
            }
            if data == "synthetic":
                programs["keras"] = keras(tf, config, precision, dtype)
                programs["matmul"] = matmul(tf, config, dtype)
            times = compare(programs, arguments.rounds)
            flops = config.flops_per_item() * config.batch_size
            for name, values in times.items():
                median = statistics.median(values)
                ratio = statistics.median(a / b for a, b in zip(values, times[chosen]))
                rate = "" if name == "matmul" else f"{flops / median / 1e9:.0f}"
                label = name + ("*" if name == chosen else "")
                case = f"{config.name}-{mode}-{data}"
                print(f"{case:34} {label:12} {median * 1e6:10.1f} {rate:>8} {ratio:6.2f}")


if __name__ == "__main__":
    main()
