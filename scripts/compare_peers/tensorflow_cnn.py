"""TensorFlow's image classifiers compared with plain Keras programs.

Ours is the step that the benchmark times, with synthetic data. The peers run the same network of
keras.applications in two ways: with Keras's own loop on arrays in memory (``predict`` or ``fit``),
and with one tf.function per batch on batches made beforehand, with and without XLA. In training the
latter is the plain loop.

In 16 bits the peers use Keras's policy mixed_bfloat16 (float32 variables); ours then has float32
variables too. Keras's ResNet-50 is the older v1: its 1x1 convolutions have the stride, so it does
less work (3.9 GMAC, not 4.1). ResNeXt-101 and the modified EfficientNet have no peer.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from ipubench.bench_inference.validation import Validation
from ipubench.bench_training.training import Training
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from scripts.compare_peers.case import Case, Conditions, Family, Program, repeated
from scripts.steps import DATA

NETWORKS: Dict[str, Dict[str, Any]] = {
    "resnet50": {"model": "resnet", "model_size": "50"},
    "efficientnet-b0": {"model": "efficientnet", "model_size": "B0"},
    "efficientnet-b4": {"model": "efficientnet", "model_size": "B4"},
}
KERAS_NAMES = {
    "resnet50": "ResNet50",
    "efficientnet-b0": "EfficientNetB0",
    "efficientnet-b4": "EfficientNetB4",
}
# Long enough to hide what Keras's loops cost besides the batches.
CALL_SECONDS = 1.0
# Images that Keras's loops have in memory; each call takes as many as it needs.
IMAGES = 128


class _TensorFlowCnn(Family):
    """Image classifiers in one mode."""

    unit = "images/s"
    mode: str
    sizes: Dict[str, Tuple[int, ...]]  # by network

    def __init__(self, conditions: Conditions) -> None:
        super().__init__(conditions)
        self.host = TensorFlowHost(conditions.device)
        self._step: Optional[Any] = None

    @classmethod
    def names(cls) -> List[str]:
        return [f"{network}-bs{size}" for network, sizes in cls.sizes.items() for size in sizes]

    def open(self, name: str) -> Case:
        network, _, size = name.rpartition("-bs")
        config = self._config(network, int(size))
        peers = KerasPeers(self.host.tf, config, self.conditions.dtype)
        return Case(
            float(size), self.conditions.dtype, partial(self._ours, config), peers.builders(),
            close=self._close_case, call_seconds=CALL_SECONDS,
        )  # fmt: skip

    def _config(self, network: str, batch: int) -> Any:
        """Return the benchmark's configuration that matches Keras's program."""
        precision = self.conditions.precision
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
        if self.mode == "inference":
            return Validation(**options)
        return Training(**options, optimiser="momentum", weight_decay=0.0)

    def _ours(self, config: Any) -> Program:
        """Return the benchmark's own compiled step as a program."""
        feed = config.feed(DATA)
        if self.mode == "training":
            step: Any = self.host.training(config.classifier(), config, feed)
        else:
            step = self.host.validation(config.classifier(), config, feed)
        self._step = step
        step.build()
        step.compile()
        run: Program = step.run
        return run

    def _close_case(self) -> None:
        if self._step is not None:
            self._step.close()
            self._step = None
        self.host.tf.keras.backend.clear_session()


class TensorFlowInference(_TensorFlowCnn):
    """Inference."""

    title = "TensorFlow CNN inference"
    mode = "inference"
    sizes = {"resnet50": (1, 16), "efficientnet-b0": (1, 16), "efficientnet-b4": (1, 16)}
    usual = ("resnet50-bs16",)


class TensorFlowTraining(_TensorFlowCnn):
    """Training with one micro batch per update."""

    title = "TensorFlow CNN training"
    mode = "training"
    sizes = {"resnet50": (8, 16), "efficientnet-b0": (8,), "efficientnet-b4": (3,)}
    usual = ("resnet50-bs8",)


class KerasPeers:
    """The Keras programs of one configuration, which share a model and its images."""

    def __init__(self, tf: Any, config: Any, dtype: str) -> None:
        self.tf = tf
        self.config = config
        self.policy = "mixed_bfloat16" if dtype == "bfloat16" else "float32"
        self.batch = int(config.micro_batch_size)
        self._made: Optional[Tuple[Any, Any, Any]] = None

    def builders(self) -> Dict[str, Callable[[], Program]]:
        """Return a builder for each program, by name."""
        if self.config.mode == "inference":
            return {
                "Keras predict": self._predict,
                "tf.function": partial(self._function, xla=False),
                "tf.function, XLA": partial(self._function, xla=True),
            }
        return {
            "Keras fit": self._fit,
            "plain loop": partial(self._loop, xla=False),
            "plain loop, XLA": partial(self._loop, xla=True),
        }

    def _parts(self) -> Tuple[Any, Any, Any]:
        """Return (model, images, labels), made once; images are float32 in host memory."""
        if self._made is None:
            tf, pixels = self.tf, self.config.pixels
            tf.keras.mixed_precision.set_global_policy(self.policy)
            model = getattr(tf.keras.applications, KERAS_NAMES[self.config.name])(
                weights=None, classifier_activation=None, input_shape=(pixels, pixels, 3)
            )
            generator = np.random.default_rng(0)
            count = max(1, IMAGES // self.batch) * self.batch
            images = generator.random((count, pixels, pixels, 3), dtype=np.float32) * 255
            self._made = model, images, generator.integers(0, 1000, count).astype(np.int32)
        return self._made

    def _in_loops_of_keras(self, loop: Callable[[Any, Any], object]) -> Program:
        """Return a program that passes all its images to one call of Keras's loop."""
        _, images, labels = self._parts()

        def program(batches: int) -> None:
            left = batches * self.batch
            while left:
                part = min(left, len(images))
                loop(images[:part], labels[:part])
                left -= part

        return program

    def _predict(self) -> Program:
        model, batch = self._parts()[0], self.batch
        return self._in_loops_of_keras(
            lambda images, _: model.predict(images, batch_size=batch, verbose=0)
        )

    def _function(self, xla: bool) -> Program:
        model, images, _ = self._parts()
        first = self.tf.constant(images[: self.batch])
        run = self.tf.function(
            lambda inputs: self.tf.argmax(model(inputs, training=False), axis=1), jit_compile=xla
        )
        return repeated(lambda: run(first).numpy())

    def _trained(self) -> Tuple[Any, Any, Any]:
        """Return (model, loss, optimiser) for training."""
        model = self._parts()[0]
        loss = self.tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return model, loss, self.tf.keras.optimizers.SGD(0.01, momentum=0.9)

    def _fit(self) -> Program:
        model, loss, optimiser = self._trained()
        model.compile(optimiser, loss)
        return self._in_loops_of_keras(
            lambda images, labels: model.fit(images, labels, batch_size=self.batch, verbose=0)
        )

    def _loop(self, xla: bool) -> Program:
        model, loss, optimiser = self._trained()
        if hasattr(optimiser, "build"):
            optimiser.build(model.trainable_variables)  # XLA cannot create its variables

        @self.tf.function(jit_compile=xla)
        def update(inputs: Any, wanted: Any) -> Any:
            with self.tf.GradientTape() as tape:
                value = loss(wanted, model(inputs, training=True))
            slopes = tape.gradient(value, model.trainable_variables)
            optimiser.apply_gradients(zip(slopes, model.trainable_variables))
            return value

        _, images, labels = self._parts()
        first = self.tf.constant(images[: self.batch]), self.tf.constant(labels[: self.batch])
        return repeated(lambda: update(*first).numpy())
