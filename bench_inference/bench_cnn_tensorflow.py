"""Image classification inference with TensorFlow: images per second through one network.

images [micro_batch_size, S, S, 3] -> logits [micro_batch_size, 1000], compared with the labels. The
published tables: synthetic data on one device, and data generated on the host for four instances.
"""

from __future__ import annotations

from pathlib import Path

from ipubench.bench_inference.validation import Validation
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.presets import load_presets

PRESETS = Path(__file__).with_name("tensorflow.yml")
IPU = load_presets(PRESETS, "ipu", Validation)
M2000 = load_presets(PRESETS, "m2000", Validation)
HOST = load_presets(PRESETS, "host", Validation, refused=("data",))
HOST_INSTANCES = load_presets(PRESETS, "host_instances", Validation)
DATA = ("synthetic", "generated", "real")


@cases(*HOST.entries, data=DATA, rare_on_cpu=("generated",), sweep_on_cpu=("bs1-real",))
@cases(*HOST_INSTANCES.entries, sweep_on_cpu=("instances4-bs1-generated",))
@cases(*IPU.entries)
@cases(*M2000.entries)
def bench_cnn_tensorflow(config, tensorflow, data, instances, meter):
    step = instances(tensorflow.validation(config.classifier(), config, config.feed(data)))
    meter(step, items=config.micro_batch_size * config.replicas, unit="images")
