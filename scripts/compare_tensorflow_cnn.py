"""How our TensorFlow image classifiers compare with the plain Keras programs, side by side.

For each network it alternates, within one process and with the same allocator and threads:

- ours: the step that the benchmark times, with synthetic data;
- fit or predict: the keras.applications model with Keras's own loop on arrays in memory;
- function: the same model called in one tf.function a batch, batches made beforehand.

Precision 16.16 and 16.32 are Keras's policy mixed_bfloat16 (float32 variables); ours then has
float32 variables too. Keras's ResNet-50 is the older v1: its 1x1 convolutions have the stride, so
it has less work (3.9 GMAC against 4.1). ResNeXt-101 and the modified EfficientNet have no peer.

Usage: python -m scripts.compare_tensorflow_cnn [--only resnet50] [--mode training] [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np

from ipubench.bench_inference.validation import Validation
from ipubench.bench_training.training import Training
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.tensorflow.on_host import TensorFlowHost
from ipubench.plugins.run.conditions import tune_allocator

# A program runs so many batches of inference, or weight updates of one micro batch.
Program = Callable[[int], Any]

KERAS_NAMES = {
    "resnet50": "ResNet50",
    "efficientnet-b0": "EfficientNetB0",
    "efficientnet-b4": "EfficientNetB4",
}
# Images of one timed call: what Keras's loops cost apart from the batches must not show.
IMAGES_OF_CALL = {"inference": 64, "training": 32}
NETWORKS: Dict[str, Dict[str, Any]] = {
    "resnet50": {"model": "resnet", "model_size": "50"},
    "efficientnet-b0": {"model": "efficientnet", "model_size": "B0"},
    "efficientnet-b4": {"model": "efficientnet", "model_size": "B4"},
}
# (mode, network, batch size)
CASES = [
    ("inference", "resnet50", 1),
    ("inference", "resnet50", 16),
    ("inference", "efficientnet-b0", 1),
    ("inference", "efficientnet-b0", 16),
    ("training", "resnet50", 16),
    ("training", "efficientnet-b4", 3),
]


def config_of(mode: str, network: str, batch: int, precision: str) -> Any:
    """Return the benchmark's configuration that Keras's program corresponds to."""
    options = {
        **NETWORKS[network],
        "name": network,
        "system": "host",
        "data": "synthetic",
        "batch_norm": True,
        "micro_batch_size": batch,
        "precision": "16.32" if precision == "16.16" else precision,
        "normalise_input": True,
    }
    if mode == "inference":
        return Validation(**options)
    return Training(**options, optimiser="momentum", weight_decay=0.0)


def batches_of(config: Any) -> int:
    """Return the batches of one timed call."""
    return max(4, IMAGES_OF_CALL[config.mode] // int(config.micro_batch_size))


def ours(host: TensorFlowHost, config: Any) -> Tuple[Any, Program]:
    """Return the benchmark's own step, compiled, and what runs batches of it."""
    feed = config.feed(Data(_no_images, _no_images))
    if config.mode == "training":
        step: Any = host.training(config.classifier(), config.recipe, config, feed)
    else:
        step = host.validation(config.classifier(), config, feed)
    step.build()
    step.compile()
    return step, step.run


def keras_programs(tf: Any, config: Any) -> Dict[str, Program]:
    """Return the Keras programs of a configuration by name."""
    half = config.precision != "32.32"
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16" if half else "float32")
    model = getattr(tf.keras.applications, KERAS_NAMES[config.name])(
        weights=None, classifier_activation=None, input_shape=(config.pixels, config.pixels, 3)
    )
    batch, count = config.micro_batch_size, batches_of(config)
    generator = np.random.default_rng(0)
    shape = (batch * count, config.pixels, config.pixels, 3)
    images = generator.uniform(0, 255, shape).astype(np.float32)
    labels = generator.integers(0, 1000, batch * count).astype(np.int32)
    first = tf.constant(images[:batch])
    if config.mode == "inference":
        run = tf.function(lambda inputs: tf.argmax(model(inputs, training=False), axis=1))
        return {
            "predict": lambda batches: model.predict(images, batch_size=batch, verbose=0),
            "function": lambda batches: [run(first).numpy() for _ in range(batches)],
        }
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimiser = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimiser, loss)

    @tf.function
    def update(inputs: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(wanted, model(inputs, training=True))
        slopes = tape.gradient(value, model.trainable_variables)
        optimiser.apply_gradients(zip(slopes, model.trainable_variables))
        return value

    wanted = tf.constant(labels[:batch])
    return {
        "fit": lambda batches: model.fit(images, labels, batch_size=batch, verbose=0),
        "function": lambda batches: [update(first, wanted).numpy() for _ in range(batches)],
    }


def compare(programs: Dict[str, Program], batches: int, rounds: int) -> Dict[str, List[float]]:
    """Time each program once a round, in changing order; return seconds per batch by program."""
    for program in programs.values():
        program(batches)
    times: Dict[str, List[float]] = {name: [] for name in programs}
    names = list(programs)
    for _ in range(rounds):
        for name in names:
            start = time.perf_counter()
            programs[name](batches)
            times[name].append((time.perf_counter() - start) / batches)
        names.append(names.pop(0))
    return times


def _no_images(*_: str) -> Any:
    raise AssertionError("synthetic data needs no images")


def chosen(arguments: argparse.Namespace) -> Iterator[Any]:
    """Yield the configurations that the command line asks for."""
    for mode, network, batch in CASES:
        if arguments.mode in mode and arguments.only in network:
            yield config_of(mode, network, batch, arguments.precision)


def main() -> None:
    """Print one line per network, mode and program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--precision", default="16.16", choices=("16.16", "32.32"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="part of a network's name")
    parser.add_argument("--mode", default="", help="inference or training only")
    arguments = parser.parse_args()

    tune_allocator()
    device = CpuDevice()
    device.attach()
    host = TensorFlowHost(device)
    tf = host.tf
    print(f"TensorFlow {tf.__version__}, {arguments.precision}, {device.threads} threads")
    print("ratio: our rate over the program's, median of paired rounds")
    print(f"{'case':34} {'program':10} {'images/s':>9} {'ratio':>6}")
    for config in chosen(arguments):
        step, program = ours(host, config)
        programs = {"ours": program, **keras_programs(tf, config)}
        times = compare(programs, batches_of(config), arguments.rounds)
        for name, values in times.items():
            rate = config.micro_batch_size / statistics.median(values)
            ratio = statistics.median(a / b for a, b in zip(values, times["ours"]))
            case = f"{config.name}-{config.mode}-bs{config.micro_batch_size}"
            print(f"{case:34} {name:10} {rate:9.1f} {ratio:6.2f}", flush=True)
        step.close()
        tf.keras.backend.clear_session()


if __name__ == "__main__":
    main()
