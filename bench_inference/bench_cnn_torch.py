"""Image classification inference with PyTorch: images per second through one network.

The network takes a batch of images [micro_batch_size, 3, image_size, image_size] and returns
logits [micro_batch_size, 1000]. Images travel as uint8 and are normalised on the device, as in
the original program's configurations.
"""

from __future__ import annotations

from pathlib import Path

from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.cases import NAMED, Sweep, cases, load_presets

PRESETS = Path(__file__).with_name("configs.yml")
HOST = load_presets(PRESETS, "host", Classifier)
OPENVINO = load_presets(PRESETS, "openvino", Classifier)
IPU = load_presets(PRESETS, "ipu", Classifier)
IPU_OTHERS = load_presets(PRESETS, "ipu_others", Classifier)
POD4 = load_presets(PRESETS, "pod4", Classifier)
DATA = ("synthetic", "generated", "real")
# Batch sizes of the published tables. On a host 1 and 16 always run: on few cores nothing is gained
# beyond; on an IPU the preset's own does.
BATCHES = {
    "resnet50": (1, 4, 16, 32, 64, 90),
    "resnext101": (1, 2, 4, 8, 16),
    "efficientnet-b0": (1, 8, 16, 32),
}
# Those of the original's benchmarks.yml, in SDK 3.0 and 3.1; later ones are among them.
POD4_BATCHES = {
    "resnet50_infer_gen_pod4": (1, 2, 4, 16, 32, 64, 80),
    "resnet50_infer_pod4": (1, 4, 16, 32, 64, 80),
    "resnet50_minlatency": (1, 2, 4),
    "resnext101": (1, 2, 4, 8, 16),
    "efficientnet_b0": (1, 8, 16, 32, 36, 48),
    "efficientnet_b0_minlatency": (1, 2, 4),
    "efficientnet_b0_gn": (1, 32, 64, 80, 96, 100),
    "efficientnet_b4": (1, 4, 6, 8, 10, 12),
    "efficientnet_b4_minlatency": (1, 2, 4),
    "efficientnet_b4_gn": (1, 3, 9, 15, 21),
}


def ipu_sweep(name: str, config: Classifier) -> Sweep:
    """Return a preset at the published batch sizes and at its own, the one that always runs."""
    own = config.micro_batch_size
    sizes = tuple(sorted({*BATCHES.get(name, ()), own}))
    return Sweep(config, "micro_batch_size", sizes, usual=(own,))


@cases(
    *(
        Sweep(config, "micro_batch_size", BATCHES.get(config.model, (1, 16)), usual=(1, 16))
        for config in OPENVINO.values()
    ),
    data=("synthetic",),
    quick=("resnet50-openvino",),
)
@cases(
    *(
        Sweep(config, "micro_batch_size", BATCHES.get(name, (1, 16)), usual=(1, 16))
        for name, config in HOST.items()
    ),
    data=DATA,
    # Images that lie in a CPU's own memory anyway say what synthetic ones do.
    rare_on_cpu=("generated",),
    quick=("resnet50", "mobilenet-v3-large", "efficientnet-b0"),
)
@cases(*(ipu_sweep(name, config) for name, config in IPU.items()), data=DATA)
@cases(
    *(Sweep(config, "micro_batch_size", (1, 16)) for config in IPU_OTHERS.values()),
    data=DATA,
    tier=NAMED,
)
@cases(*(Sweep(POD4[name], "micro_batch_size", sizes) for name, sizes in POD4_BATCHES.items()))
def bench_cnn_torch(config, pytorch, data, instances, meter):
    step = pytorch.inference(config.network(), config, config.feed(data))
    meter(instances(step), items=config.micro_batch_size * config.replicas, unit="images")
