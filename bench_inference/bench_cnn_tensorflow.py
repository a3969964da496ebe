"""Image classification inference with TensorFlow: images per second through one network.

images [micro_batch_size, S, S, 3] -> logits [micro_batch_size, 1000], compared with the labels. The
published tables: synthetic data on one device, and data generated on the host for four instances.
"""

from __future__ import annotations

from pathlib import Path

from ipubench.bench_inference.validation import Validation
from ipubench.fixtures.case.cases import Sweep, cases, load_presets

PRESETS = Path(__file__).with_name("tensorflow.yml")
IPU = load_presets(PRESETS, "ipu", Validation)
M2000 = load_presets(PRESETS, "m2000", Validation)
HOST = load_presets(PRESETS, "host", Validation)
HOST_INSTANCES = load_presets(PRESETS, "host_instances", Validation)
# The published batch sizes. A host always runs 1 and the second size: few cores gain no more.
ONE_DEVICE = {
    "resnet50": (1, 4, 16, 32, 64, 90),
    "resnext101": (1, 2, 4, 8, 16),
    "efficientnet-b0": (1, 8, 16, 32),
}
INSTANCES = {**ONE_DEVICE, "resnet50": (1, 4, 16, 32, 64, 80)}


@cases(
    *(Sweep(HOST[name], "micro_batch_size", sizes, (1, 16)) for name, sizes in ONE_DEVICE.items()),
    data=("synthetic", "generated", "real"),
    rare_on_cpu=("generated",),
    quick=("resnet50", "efficientnet-b0"),
)
@cases(
    *(
        Sweep(HOST_INSTANCES[f"{name}-instances4"], "micro_batch_size", sizes, (1, 16))
        for name, sizes in INSTANCES.items()
    ),
    quick=("resnet50-instances4",),
)
@cases(*(Sweep(IPU[name], "micro_batch_size", sizes) for name, sizes in ONE_DEVICE.items()))
@cases(*(Sweep(M2000[name], "micro_batch_size", sizes) for name, sizes in INSTANCES.items()))
def bench_cnn_tensorflow(config, tensorflow, data, instances, meter):
    step = tensorflow.validation(config.classifier(), config, config.feed(data))
    meter(instances(step), items=config.micro_batch_size * config.replicas, unit="images")
