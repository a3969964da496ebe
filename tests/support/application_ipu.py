"""A small application configuration on IPUs, with its images and steps."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any, Callable, Dict

import numpy as np
import pytest

from ipubench.bench_training.application.case import Application
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.data.tf_data import plain_options
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.runtimes.tensorflow.ipu.settings import ipu_config
from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
from tests.doubles import tensorflow_ipu as double
from tests.doubles.tensorflow_ipu import recorder
from tests.support.tensorflow_ipu import HARDWARE, start_instance

BATCH, VALIDATED = 4, 22  # images per micro batch, and per pass of validation
SPLITS = ("bn_0", "flatten")
# A call has 2 weight updates of 2 micro batches, a log line and, every other time, a checkpoint.
SMALL = Application(
    name="small",
    system="ipu",
    model_name="toy_model_bn",
    precision="32.32",
    data="generated",
    micro_batch_size=BATCH,
    gradient_accumulation_count=2,
    weight_updates_per_epoch=4,
    num_epochs=2,
    logs_per_epoch=Fraction(2),
    l2_regularization=1e-3,
    optimizer_params=Parameters({"momentum": 0.9}),
    lr_schedule="cosine",
    lr_schedule_params=Parameters({"initial_learning_rate": 8e-3, "epochs_to_total_decay": 2}),
)
# Three stages on two IPUs; the first IPU has two.
PIPELINE: Dict[str, Any] = {
    **{"pipeline_splits": SPLITS, "device_mapping": (0, 0, 1)},
    "pipeline_schedule": "Sequential",  # accepts any number of micro batches
}


# Two stages on an IPU each.
PAIR: Dict[str, Any] = {"pipeline_splits": ("flatten",), "pipeline_schedule": "Interleaved"}


def dataset(tf: Any, feed: ApplicationFeed, compute: str, start: int = 0) -> Any:
    """Return batches of different images with a visible class, for any feed."""
    generator = np.random.RandomState(feed.training)
    count = 32 if feed.training else -(-feed.total // BATCH)
    labels = generator.randint(0, 10, (count, BATCH)).astype(np.int32)
    images = generator.normal(size=(count, BATCH, *feed.image_shape)).astype(np.float32)
    images += labels[..., None, None, None] / 4.0
    if not feed.training:
        labels.ravel()[feed.total :] = feed.classes
    found = tf.data.Dataset.from_tensor_slices((images, labels)).with_options(plain_options(tf))
    return found.repeat().skip(start) if feed.training else found


def feed_of(config: Application, training: bool = True) -> ApplicationFeed:
    return ApplicationFeed(
        config.data,
        config.micro_batch_size,
        config.published.image_shape,
        config.published.classes,
        eight_bit=False,
        training=training,
        dataset=config.dataset,
        total=VALIDATED,
    )


def step_of(
    config: Application,
    device: Any = HARDWARE,
    feed: Callable[[Application, bool], ApplicationFeed] = feed_of,
) -> Any:
    """Return a configuration's built step; ``feed(config, training)`` makes its images."""
    runtime: Any = TensorFlowIpu(device) if config.system != "host" else TensorFlowHost(device)
    step = runtime.application(
        config.classifier(),
        config,
        feed(config, config.training),
        lambda: feed(config, False),
    )
    step.build()
    return step


def settings_of(
    config: Application, training: bool = True, device: IpuDevice = HARDWARE
) -> Dict[str, Any]:
    """Return the options of the device that differ from the SDK's defaults."""
    options = config if training else config.for_validation()
    ipu = sys.modules["tensorflow.python.ipu"]
    ipu_config(ipu, options, device, training).configure_ipu_system()
    return {name: getattr(value, "name", value) for name, value in recorder.configured.items()}


def start(monkeypatch: pytest.MonkeyPatch, index: int, *job: int) -> None:
    """Make this process an instance that poprun started, with PopDist's strategy."""
    start_instance(monkeypatch, index, *job)
    for name, module in double.strategies().items():
        monkeypatch.setitem(sys.modules, name, module)
