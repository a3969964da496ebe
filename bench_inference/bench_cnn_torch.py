"""Image classification inference with PyTorch: images per second through one network.

The network takes a batch of images [micro_batch_size, 3, image_size, image_size] and returns
logits [micro_batch_size, 1000]. Images travel as uint8 and are normalised on the device, as in
the original program's configurations.
"""

from __future__ import annotations

from pathlib import Path

from bench_inference.classifier import Classifier
from fixtures.config import Sweep, cases
from fixtures.presets import load_presets

PRESETS = Path(__file__).with_name("configs.yml")
HOST = load_presets(PRESETS, "host", Classifier)
IPU = load_presets(PRESETS, "ipu", Classifier)
DATA = ("synthetic", "generated", "real")


@cases(
    HOST["resnet18"],
    Sweep(HOST["resnet50"], "micro_batch_size", (1, 4, 8, 16)),
    data=DATA,
)
@cases(*IPU.values(), data=DATA)
def bench_cnn_torch(config, pytorch, data, meter):
    step = pytorch.inference(config.network(), config, data.images(config))
    meter(step, items=config.micro_batch_size * config.replicas, unit="images")
